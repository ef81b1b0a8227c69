"""Models of many kinds dispatch on hollow tensors what they dispatch on a card, and take as much.

`operator_kinds.json` was recorded with torch 2.14.1 (CUDA 13) on a device that runs no kernels. If one of
these fails, predictions of programs with such a model are off.
"""

from __future__ import annotations

import json

import pytest
from tests.hollow import operator_kinds

from legroom.hollow.scratch_uncertainty import KNOWN, doubt_of

RECORDED = json.loads(operator_kinds.DATA.read_text())


def test_there_are_at_least_forty_kinds_and_each_was_recorded() -> None:
    assert len(operator_kinds.KINDS) >= 40
    assert set(RECORDED["kinds"]) == set(operator_kinds.KINDS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", operator_kinds.KINDS)
def test_a_kind_of_model_dispatches_what_it_does_on_a_card(name: str) -> None:
    assert operator_kinds.unexplained(name, RECORDED) == []


def test_what_differs_is_not_called_known() -> None:
    assert {"mm", "convolution", "native_layer_norm", "add"} <= KNOWN
    assert not {"_embedding_bag", "_cdist_forward"} & KNOWN


def test_an_operator_that_was_never_compared_is_doubted() -> None:
    import torch

    what, size = doubt_of(torch.ops.aten._cdist_forward.default)
    x = torch.empty(4, 8, device="meta")
    assert what == "aten._cdist_forward"
    assert size((x, x), {}, torch.empty(4, 4, device="meta")) == 2 * 4 * 8 * 4 + 4 * 4 * 4
    assert doubt_of(torch.ops.aten.mm.default) is None


def test_convolutions_are_doubted_in_bfloat16_only() -> None:
    import torch

    _, size = doubt_of(torch.ops.aten.convolution.default)
    shapes = (2, 3, 8, 8), (5, 3, 3, 3), (2, 5, 6, 6)
    x, weight, out = (torch.empty(shape, device="meta") for shape in shapes)
    assert size((x, weight), {}, out) == 0
    x, weight, out = x.bfloat16(), weight.bfloat16(), out.bfloat16()
    # windows of one sample (27 x 36), the weight and the input, two bytes each
    assert size((x, weight), {}, out) == 2 * (27 * 36 + 135 + 384)
