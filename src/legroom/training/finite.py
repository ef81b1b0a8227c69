"""Whether what is learned is still made of numbers: nothing that holds NaN is a checkpoint worth going on from.

One NaN (a reward, a division in an environment, a learning rate that is too high) reaches every parameter within a few
updates, and no later update takes it out again. So networks and optimizers are looked at before every checkpoint.

Rewards that are not finite end a training at the next boundary: they are in replay already, or in what is learned.
Observations and losses that are not finite are grounds for suspicion alone, since a network may be made for missing
values: from then on the newest checkpoint from before is never deleted, and once the parameters are lost, those
written after it are put aside, since replay in them may hold what spoiled the training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from legroom.model.learner import Figures

LEARNED = ("policy/", "optimizer/")
_EXPONENTS = {"bfloat16": 0x7F80, "float8_e5m2": 0x7C}  # all ones: NaN or infinite
_MANTISSAS = {"bfloat16": 0x007F, "float8_e5m2": 0x03}


class NotFinite(Exception):
    """What is learned is not finite any more; the text is the story."""


@dataclass(frozen=True)
class Suspicion:
    """The first number that was not finite: what it was, and the step it was seen at."""

    what: str
    step: int


class FiniteWatch:
    """Looks at what is learned before it is kept, and remembers what was seen that is not finite.

    Attributes:
        suspicion: the first observation or loss that was not finite.
        fatal: the first number with which no training can go on.
        checked_at: the last step at which what is learned was finite.
        in_doubt: something was seen since; a look at what is learned is due.
    """

    def __init__(self) -> None:
        self.suspicion: Suspicion | None = None
        self.fatal: Suspicion | None = None
        self.checked_at: int | None = None
        self.in_doubt = False
        self._constants: dict[str, int] | None = None

    def saw(self, what: str, step: int, *, ends: bool) -> None:
        """Remember a number that is not finite, if it is the first of its kind."""
        if ends and self.fatal is None:
            self.fatal, self.in_doubt = Suspicion(what, step), True
        elif not ends and self.suspicion is None:
            self.suspicion, self.in_doubt = Suspicion(what, step), True

    def check(self, tensors: Mapping[str, np.ndarray], step: int) -> None:
        """Look at networks and optimizers.

        Infinities that are there at the first look, and stay as many, are constants of the network (a mask of
        attention, say).

        Raises:
            NotFinite: one holds NaN or has become infinite, or something was seen with which no training can go on.
        """
        constants = self._constants if self._constants is not None else {}
        for name, array in tensors.items():
            if not name.startswith(LEARNED):
                continue
            nans, infinities = count_not_finite(array)
            if not nans and self._constants is None and infinities:
                constants[name] = infinities
            if nans or infinities != constants.get(name, 0):
                kinds = [f"{n:,} {kind}" for n, kind in ((nans, "NaN"), (infinities, "infinite")) if n]
                since = f" (finite at step {self.checked_at:,})" if self.checked_at is not None else ""
                raise NotFinite(self._story(f"{name} holds {' and '.join(kinds)} of {array.size:,} numbers{since}"))
        if self.fatal is not None:
            raise NotFinite(self._story())
        self._constants = constants
        self.checked_at, self.in_doubt = step, False

    def seen(self) -> list[str]:
        """Say what was seen that is not finite, and when."""
        return [f"{each.what} at step {each.step:,}" for each in (self.fatal, self.suspicion) if each is not None]

    def _story(self, found: str = "") -> str:
        return "not finite: " + "; ".join(filter(None, (found, *self.seen())))


def loss_not_finite(figures: Figures) -> str:
    """Say which loss among the figures of an iteration is not finite; "" where all are."""
    for name, value in figures.items():
        if "loss" in name and value is not None and not math.isfinite(value):
            return f"{name} was {value}"
    return ""


def count_not_finite(array: np.ndarray) -> tuple[int, int]:
    """Return how many numbers of the array are NaN, and how many infinite."""
    name = array.dtype.names[0] if array.dtype.names else ""
    if name in _EXPONENTS:
        bits = array[name]
        special = (bits & _EXPONENTS[name]) == _EXPONENTS[name]
        nans = int(np.count_nonzero(special & ((bits & _MANTISSAS[name]) != 0)))
        return nans, int(np.count_nonzero(special)) - nans
    if array.dtype.kind not in "fc" or all_finite(array):
        return 0, 0
    return int(np.count_nonzero(np.isnan(array))), int(np.count_nonzero(np.isinf(array)))


def all_finite(array: np.ndarray) -> bool:
    """Return whether all numbers are finite; one pass without an array of answers where they are."""
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(abs(array.sum())):  # of one NaN the sum is NaN; of large numbers it may overflow
            return True
    return bool(np.isfinite(array).all())
