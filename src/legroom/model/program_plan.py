"""What a search may do to a user's program: savings attached from outside, arguments set; and what came of each try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from legroom.model.plan import Price
from legroom.model.rehearsal import ProgramPrediction

Number = int | float


@dataclass(frozen=True)
class Constant:
    """A number that a program assigns to a name once: at the top of a module, in a class, or in its `main`."""

    name: str
    value: Number
    file: str
    first: int  # lines of the assignment
    last: int
    scope: str = "<module>"  # name of the code that assigns: `<module>`, or of the class or function
    begins: tuple[int, int] = (0, 1)  # the first line of that code, with and without decorators


@dataclass(frozen=True)
class Param:
    """One argument: `{name}` in the command stands for it, or a constant of the program has that name."""

    name: str
    values: Sequence[Number]  # to choose from, the smallest first; a `range` where the user gave one
    given: bool = False  # whether the user chose the step or the list, so that no other values may be tried
    constant: Constant | None = None


@dataclass(frozen=True)
class ParamTrial:
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
    """What a search found: the largest values that fit, confirmed by a rehearsal."""

    params: tuple[Param, ...]
    best: ParamTrial | None  # the trial of the values found; None where nothing fits
    # the smallest larger value that was tried and does not fit; None where the whole range fits
    next: ParamTrial | None = None
    trials: tuple[ParamTrial, ...] = ()  # all of them, in the order in which they were made
    # with two arguments, the best trial for each value of the first one
    frontier: tuple[ParamTrial, ...] = field(default=())
    why: str = ""  # why there is no answer, or why it is not the last word; empty otherwise

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


@dataclass(frozen=True)
class AttachedNote:
    """What a program said of one attachment: that it is there, or why not, and at which line of the program."""

    name: str
    attached: bool
    text: str
    where: str = ""


@dataclass(frozen=True)
class PredictedNote:
    """What a model of the program was predicted to need without anything attached, in bytes of host memory."""

    what: str
    where: str
    host: int
    low: int
    high: int


@dataclass(frozen=True)
class StoredNote:
    """What a buffer of the program took, and what the library's own would have taken."""

    what: str
    nbytes: int
    plain_nbytes: int


Savings = Mapping[str, int | None]  # attachments by name, with their number where they take one


@dataclass(frozen=True)
class Attached:
    """The program rehearsed with some savings attached."""

    savings: Savings  # that were asked for, all of them
    price: Price  # of the dearest one; `free` where there is none
    prediction: ProgramPrediction
    notes: tuple[AttachedNote, ...] = ()  # what was attached in the program, and what was not and why
    free: frozenset[str] = frozenset()  # names of those that are attached anyway

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
