"""What would be compiled runs as it is written."""

import torch
from torch import nn

from legroom.hollow.compiling import run_uncompiled


def test_only_backends_with_kernels_of_their_own_are_noted() -> None:
    layer = nn.Linear(2, 3)
    asked: list[bool] = []
    with run_uncompiled(lambda: asked.append(True)):
        assert torch.compile(layer, backend="eager").weight is layer.weight
        assert torch.compile(layer, backend="aot_eager")._orig_mod is layer
        assert list(torch.compile(layer, disable=True).state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
        assert asked == []
        torch.compile(layer)
        layer.compile(mode="max-autotune")

        @torch.compile(dynamic=True)
        def twice(x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        assert twice(torch.ones(1)).item() == 2
    assert len(asked) == 3
