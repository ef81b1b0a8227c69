"""What CUDA operators allocate inside: the one table of operator -> scratch, each with its reason.

An operator that is one call in Python may allocate and free on the device before it returns. A program is a generator
that says, in order, what is allocated (`alloc`), freed (`free`), and where the visible result comes (`out`); results it
does not place come last. Found by comparing recorded request sequences of real runs (torch 2.14.1, CUDA 13) with the
sequences followed here, and read off the operators' sources in aten/src/ATen/native.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

_aten = torch.ops.aten


@dataclass(frozen=True)
class Step:
    """One step of an operator's inside; `name` tells scratch blocks (or, for `out`, results) apart."""

    kind: Literal["alloc", "free", "out"]
    name: str = ""
    nbytes: int = 0


Program = Callable[[Any, Any, Any], Iterator[Step]]

# Operators that call cuBLAS and so need its workspace.
MATMULS = {
    _aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default, _aten.mv.default,
    _aten.addmv.default, _aten.addbmm.default, _aten.dot.default, _aten._addmm_activation.default,
}  # fmt: skip

PROGRAMS: dict[Any, Program] = {}


def _program(*operators: Any) -> Callable[[Program], Program]:
    def register(program: Program) -> Program:
        for operator in operators:
            PROGRAMS[operator] = program
        return program

    return register


def nbytes(tensor: torch.Tensor, itemsize: int | None = None) -> int:
    return tensor.numel() * (tensor.element_size() if itemsize is None else itemsize)
