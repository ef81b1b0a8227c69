"""Arguments of a user's program that a search may set: names, values to try, and what came of each try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from legroom.model.rehearsal import ProgramPrediction

Number = int | float


@dataclass(frozen=True)
class Constant:
    """A number that a program assigns to a name once: at the top of a module, in a class, or in its `main`.

    Args:
        first, last: lines of the assignment.
        scope: name of the code that assigns: `<module>`, or of the class or function.
        begins: the first line of that code, with and without decorators.
    """

    name: str
    value: Number
    file: str
    first: int
    last: int
    scope: str = "<module>"
    begins: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class Param:
    """One argument: `{name}` in the command stands for it, or a constant of the program has that name.

    Args:
        values: to choose from, the smallest first; a `range` where the user gave one.
        given: whether the user chose the step or the list, so that no other values may be tried.
    """

    name: str
    values: Sequence[Number]
    given: bool = False
    constant: Constant | None = None


@dataclass(frozen=True)
class Trial:
    """One rehearsal of the program with its arguments set.

    Args:
        fits: as far as it was seen; None where that is unknown, or where the program refused the values.
        refused: what the program said when it refused them; empty where it ran.
    """

    params: Mapping[str, Number]
    prediction: ProgramPrediction
    refused: str = ""

    @property
    def fits(self) -> bool | None:
        return None if self.refused else self.prediction.so_far or self.prediction.fits

    @property
    def unknown(self) -> bool:
        """Return whether it ran and its verdict is open all the same."""
        return not self.refused and self.fits is None


@dataclass(frozen=True)
class ParamSearch:
    """What a search found: the largest values that fit, confirmed by a rehearsal.

    Args:
        best: the trial of the values found; None where nothing fits.
        next: the smallest larger value that was tried and does not fit; None where the whole range fits.
        trials: all of them, in the order in which they were made.
        frontier: with two arguments, the best trial for each value of the first one.
        why: why there is no answer, or why it is not the last word; empty otherwise.
    """

    params: tuple[Param, ...]
    best: Trial | None
    next: Trial | None = None
    trials: tuple[Trial, ...] = ()
    frontier: tuple[Trial, ...] = field(default=())
    why: str = ""

    @property
    def fits(self) -> bool | None:
        """Return whether something fits; None where that is unknown, or known only as far as it was seen."""
        if self.best is not None:
            return self.best.prediction.fits
        if any(trial.unknown for trial in self.trials) or self.refused:
            return None
        return False

    @property
    def refused(self) -> bool:
        """Return whether the program took none of the values that were tried."""
        return all(trial.refused for trial in self.trials)
