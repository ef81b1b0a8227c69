"""Answers to code that reads a value of a hollow tensor, by where the value comes from.

- of a check for what should not be (`isnan`, `isinf`, `any`, a comparison): no;
- of a check for what should be (`all`, `isfinite`): yes;
- of a position (`argmax`, `argmin`) or a sample of one: 0;
- of a mean or a sum: 0, since values are about as often positive as negative;
- other numbers (a maximum, a norm, a deviation): 1, as of data that is scaled;
- of a selection (`nonzero`, a mask, `unique`): all of it, which is marked as setting a size.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

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

    def add(self, where: tuple[str, int], what: str, sets_size: bool = False) -> None:
        key = (*where, what)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count & (count - 1) == 0:
            self._tell("assumed", file=where[0], line=where[1], what=what, count=count, sets_size=sets_size)
