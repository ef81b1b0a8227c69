"""Answers to code that reads a value of a tensor that has none, by where the value comes from.

- of a check for what should not be (`isnan`, `isinf`, `any`, a comparison): no;
- of a check for what should be (`all`, `isfinite`): yes;
- of a position (`argmax`, `argmin`) or a sample of one: 0;
- of a mean or a sum: 0, since values are about as often positive as negative;
- other numbers (a maximum, a norm, a deviation): 1, as of data that is scaled;
- of a selection (`nonzero`, a mask, `unique`): all of it, which is marked as setting a size.

A program gets these answers, and is told of them (`Assumptions`). Of a run, the library's own logging and checks get
them: nothing hangs on those. What anyone else does with a value may decide how much memory is used, so the question is
refused unless the user says otherwise (`RunReads`).
"""

from __future__ import annotations

import os
from typing import Any, Callable

import torch

from .journal import Assumed, ValueRefused, Values
from .source_lines import OURS, calls, where

_TORCH = os.path.dirname(os.path.abspath(torch.__file__))
_BETWEEN = (  # a read and us
    OURS,
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
    """What a program was answered without its being known; told at the first time, then whenever the count doubled."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._counts: dict[tuple[str, int, str], int] = {}

    def known(self, what: str) -> None:
        """Hear of values that were given as they are."""

    def add(self, what: str, sets_size: bool) -> None:
        asker, (file, line) = reader(), where()
        key = (file, line, f"{what} {asker}")
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count & (count - 1) == 0:
            self._tell("assumed", file=file, line=line, what=what, count=count, sets_size=sets_size, reader=asker)


class RunReads:
    """Who may read values of a run's tensors, what was answered, and where.

    Args:
        values: what those get who are not trusted: nothing, the answers above, or what a CPU computed.
        trusted: folders of library code whose questions are answered.
    """

    def __init__(self, values: Values, trusted: tuple[str, ...]) -> None:
        self.values = values
        self._trusted = (_TORCH, *trusted)
        self._found: dict[tuple[str, int, str], int] = {}

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """What was answered to code that is not trusted, in the order in which it first asked."""
        return tuple(Assumed(*where, count) for where, count in self._found.items())

    def known(self, what: str) -> None:
        self._note(reader(), f"{what} computed from observations of zeros")

    def add(self, what: str, sets_size: bool) -> None:
        """Note an answer.

        Raises:
            ValueRefused: it may not be given.
        """
        asker = reader()
        if self.values != "assume" and not self._is_trusted(asker):
            way = "--values assume answers it, and says so"
            why = "could not be computed on the CPU" if self.values == "real" else "does not exist before the run"
            if self.values == "refuse":
                way += "; --values real computes it"
            raise ValueRefused(f"{asker[0]}:{asker[1]} reads a tensor's value, which {why}", way=way)
        self._note(asker, what)

    def _note(self, asker: tuple[str, int], what: str) -> None:
        if not self._is_trusted(asker):
            self._found[(*asker, what)] = self._found.get((*asker, what), 0) + 1

    def _is_trusted(self, asker: tuple[str, int]) -> bool:
        return not asker[0] or asker[0].startswith(self._trusted)


def reader() -> tuple[str, int]:
    """Return file and line of the code that reads a value: of the program, of a library, or of torch's own Python."""
    for frame in calls():
        file = frame.f_code.co_filename
        if not file.startswith(_BETWEEN) and not file.startswith("<"):
            return file, frame.f_lineno
    return "", 0
