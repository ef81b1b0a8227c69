"""A plan for a user's program: which savings attached from outside make it fit, each step rehearsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from legroom.model.attachment import AttachedNote
from legroom.model.plan import Price
from legroom.model.rehearsal import ProgramPrediction

Savings = Mapping[str, int | None]  # attachments by name, with their number where they take one


@dataclass(frozen=True)
class Attached:
    """The program rehearsed with some savings attached.

    Args:
        savings: that were asked for, all of them.
        price: of the dearest one; `free` where there is none.
        notes: what was attached in the program, and what was not and why.
        free: names of those that are attached anyway.
    """

    savings: Savings
    price: Price
    prediction: ProgramPrediction
    notes: tuple[AttachedNote, ...] = ()
    free: frozenset[str] = frozenset()

    @property
    def effective(self) -> tuple[str, ...]:
        """Return the savings that found something to attach to, as `--with` writes them."""
        found = {note.name for note in self.notes if note.attached}
        return tuple(
            name if number is None else f"{name}={number}" for name, number in self.savings.items() if name in found
        )

    @property
    def to_ask_for(self) -> tuple[str, ...]:
        """Return those of them that `--with` has to name."""
        return tuple(word for word in self.effective if word.partition("=")[0] not in self.free)


@dataclass(frozen=True)
class ProgramPlan:
    """What was rehearsed, from the program as it is on, the cheapest first."""

    tried: tuple[Attached, ...]

    @property
    def plain(self) -> Attached:
        return self.tried[0]

    @property
    def best(self) -> Attached | None:
        """Return the cheapest that fits as far as it was seen, None where none does."""
        return next((one for one in self.tried if one.prediction.fits or one.prediction.so_far), None)

    @property
    def fits(self) -> bool | None:
        """Return whether one fits; None where that is unknown of it, or of the last that was tried."""
        return (self.best or self.tried[-1]).prediction.fits
