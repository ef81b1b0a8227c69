"""Answers to code that reads a value of a hollow tensor, by where the value comes from.

- of a check for what should not be (`isnan`, `isinf`, `any`, a comparison): no;
- of a check for what should be (`all`, `isfinite`): yes;
- of a position (`argmax`, `argmin`) or a sample of one: 0;
- of a mean or a sum: 0, since values are about as often positive as negative;
- other numbers (a maximum, a norm, a deviation): 1, as of data that is scaled;
- of a selection (`nonzero`, a mask, `unique`): all of it, which is marked as setting a size.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable

import torch

_TORCH = os.path.dirname(os.path.abspath(torch.__file__))
_BETWEEN = (  # a read and us
    os.path.join(os.path.dirname(os.path.abspath(__file__)), ""),
    *(os.path.join(_TORCH, each) for each in ("_tensor.py", "_ops.py", "_compile.py", os.path.join("utils", "_"))),
)

_EXPECTED = ("all", "_is_all_true", "isfinite", "logical_not", "allclose", "equal")
_UNEXPECTED = ("isnan", "isinf", "any")  # also where they are told by a number, as a GradScaler does
_POSITIONS = ("argmax", "argmin", "argsort", "multinomial", "randint")
_CENTRED = ("mean", "sum", "sub", "rsub", "neg", "nansum")


def answer(dtype: torch.dtype, origin: str) -> Any:
    """Return what a single hollow value is said to be."""
    if dtype == torch.bool:
        return origin in _EXPECTED
    number = 0 if origin in (*_POSITIONS, *_CENTRED, *_UNEXPECTED) else 1
    if dtype.is_complex:
        return complex(number)
    return float(number) if dtype.is_floating_point else number


class Assumptions:
    """What was answered without being known; told at the first time, then whenever the count has doubled."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._counts: dict[tuple[str, int, str], int] = {}

    def add(self, where: tuple[str, int], what: str, sets_size: bool, asker: tuple[str, int]) -> None:
        key = (*where, f"{what} {asker}")
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count & (count - 1) == 0:
            file, line = where
            self._tell("assumed", file=file, line=line, what=what, count=count, sets_size=sets_size, reader=asker)


def reader() -> tuple[str, int]:
    """Return file and line of the code that reads a value: of the program, of a library, or of torch's own Python."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_BETWEEN) and not file.startswith("<"):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0
