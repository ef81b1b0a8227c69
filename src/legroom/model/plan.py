"""A Plan: the knobs that were turned to make a run fit, what each bought, and the run that came out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from legroom.model.footprint import Footprint
from legroom.model.run import Run
from legroom.model.shown import ShownInNotebooks
from legroom.model.verdict import Budget

Price = Literal["free", "slower", "changes-learning"]
PRICES: tuple[Price, ...] = ("free", "slower", "changes-learning")  # cheapest first
SAME_LEARNING = PRICES[:2]


@dataclass(frozen=True)
class Change:
    """One key of the run, before and after."""

    key: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Turn:
    """One knob, turned.

    Args:
        changes: the first one names the knob; the others go along with it.
        say: what it does, and what it costs, in a sentence.
        saved: bytes by which the peaks of host and GPU went down together; negative where it made room to be used.
        after: the footprint once it is turned.
    """

    changes: tuple[Change, ...]
    price: Price
    say: str
    saved: int
    after: Footprint

    @property
    def name(self) -> str:
        return self.changes[0].key


@dataclass(frozen=True)
class Plan(ShownInNotebooks):
    """What was asked for, what came out, and whether it fits.

    Args:
        asked: the run as it was given, with its spaces.
        run: the run with the knobs turned; where nothing fits, the one that comes nearest.
        needed: where nothing fits, the least that would do, by place ("host", "gpu").
        notes: what else the user should know.
    """

    asked: Run
    run: Run
    before: Footprint
    after: Footprint
    budget: Budget
    fits: bool
    turns: tuple[Turn, ...] = ()
    needed: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        turned = ", ".join(turn.name for turn in self.turns) or "no changes"
        return f"Plan({self.asked.name}: {'fits' if self.fits else 'does not fit'}, {turned})"


@dataclass(frozen=True)
class MostEnvs:
    """A plan with as many environments as there may be, and what bounds them.

    Args:
        steps_per_update: environment steps that one update learns from; `cap` is the most it may.
        by_memory: the environments that memory alone would allow.
    """

    plan: Plan
    bound: Literal["memory", "env steps per update", "as asked"]
    steps_per_update: int
    cap: int
    by_memory: int
