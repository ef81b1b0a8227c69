"""What would be compiled runs as it is written."""

import torch
from torch import nn

from legroom.hollow.compiling import run_uncompiled


def test_only_backends_with_kernels_of_their_own_are_noted() -> None:
    layer = nn.Linear(2, 3)
    with run_uncompiled() as asked:
        assert torch.compile(layer, backend="eager") is layer
        assert torch.compile(layer, backend="aot_eager") is layer
        assert torch.compile(layer, disable=True) is layer
        assert asked == []
        assert torch.compile(layer) is layer
        layer.compile(mode="max-autotune")

        @torch.compile(dynamic=True)
        def twice(x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        assert twice(torch.ones(1)).item() == 2
    assert asked == ["inductor"] * 3
