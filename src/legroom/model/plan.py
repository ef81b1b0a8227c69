"""Knobs, the Plan of those that were turned to make a run fit, and a Prediction: what is shown of a run everywhere.

A backend gives knobs and ways to grow. *free*: bit-equal results, and no slower. *slower*: the same mathematics, to the
bit or up to rounding (1e-6 per update). *changes-learning*: anything else, however harmless.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from legroom.model.evidence import Evidence, LeanProbe
from legroom.model.footprint import Footprint
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.units import format_size

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
    """One knob, turned."""

    changes: tuple[Change, ...]  # the first one names the knob; the others go along with it
    price: Price
    say: str  # what it does, and what it costs, in a sentence
    saved: int  # bytes by which the peaks of host and GPU went down together; negative where it made room to be used
    after: Footprint  # the footprint once it is turned

    @property
    def name(self) -> str:
        return self.changes[0].key


@dataclass(frozen=True)
class Plan:
    """What was asked for, what came out, and whether it fits."""

    asked: Run  # the run as it was given, with its spaces
    run: Run  # the run with the knobs turned; where nothing fits, the one that comes nearest
    before: Footprint
    after: Footprint
    budget: Budget
    fits: bool
    turns: tuple[Turn, ...] = ()
    # where nothing fits, the least that would do, by place ("host", "gpu")
    needed: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what else the user should know

    def __repr__(self) -> str:
        turned = ", ".join(turn.name for turn in self.turns) or "no changes"
        return f"Plan({self.asked.name}: {'fits' if self.fits else 'does not fit'}, {turned})"


@dataclass(frozen=True)
class MostEnvs:
    """A plan with as many environments as there may be, and what bounds them."""

    plan: Plan
    bound: Literal["memory", "env steps per update", "as asked"]
    steps_per_update: int  # environment steps that one update learns from; `cap` is the most it may
    cap: int
    by_memory: int  # the environments that memory alone would allow


Exact = Literal["bits", "rounding", ""]


@dataclass(frozen=True)
class Knob:
    """One setting that memory depends on, with its price."""

    key: str  # the setting it turns, by its name in the run file; the first of them where it turns several
    price: Price
    exact: Exact  # whether results stay equal to the bit, up to rounding, or not
    say: str  # what it does and what it costs, for the person who reads the plan
    # its settings for a run, from the least turned to the most; none where it does nothing
    ladder: Callable[[Run, Evidence], Iterator[Run]]
    # what it costs a run, as a probe of the environment tells; None where no probe decides
    probed_price: Callable[[Run, Evidence], Price] | None = None
    also: tuple[str, ...] = ()  # keys that it turns instead of `key` in runs of other algorithms
    counted: bool = True  # whether predictions show what it saves
    starts_over: bool = False  # whether what was learned before it was turned is of no use after: no retreat turns it

    @property
    def asks_probe(self) -> bool:
        """Whether its price depends on what a probe of the environment measures."""
        return self.probed_price is not None

    @property
    def unprobed_price(self) -> Price:
        """What it costs a run of which nothing was measured."""
        return "slower" if self.asks_probe else self.price

    def price_for(self, run: Run, evidence: Evidence) -> Price:
        """Return what it costs this run."""
        return self.price if self.probed_price is None else self.probed_price(run, evidence)


@dataclass(frozen=True)
class Growth:
    """One way to use free memory, which changes what is learned."""

    say: str  # what grows, and what that is good for
    # the run with it so many times as large; None where that is past what is sensible
    larger: Callable[[float], Run | None]
    bound: str = ""  # what limits it besides memory, for the person who reads the plan


@dataclass(frozen=True)
class LeanOption:
    """What lean storage would do for a run that has not got it, on top of every free saving."""

    footprint: Footprint
    price: Price
    measured: bool  # whether a probe of the environment told how much its observations have in common


@dataclass(frozen=True)
class Prediction:
    """All that is shown of one run: its footprint, the same with savings, and the verdict."""

    run: Run
    footprint: Footprint
    free: Footprint  # with every free saving; lean storage is one of them where its price is `free`
    budget: Budget
    fits: bool | None
    lean: LeanOption | None = None  # None where the run has lean storage already, or cannot have it
    probe: LeanProbe | None = None

    def __repr__(self) -> str:
        fits = {True: "fits", False: "does not fit", None: "unknown whether it fits"}[self.fits]
        return f"Prediction({self.footprint.name}: {fits}, host {format_size(self.footprint.host.nbytes)})"

    @property
    def bad(self) -> bool:
        """Whether the command should end with exit code 1."""
        unknown = self.footprint.unseen or self.footprint.unknown or self.footprint.not_built
        return self.fits is False or bool(unknown)


@dataclass(frozen=True)
class Attachment:
    """One saving that a backend can attach to a program that uses its library."""

    name: str  # as `--with` calls it
    price: Price  # that of its knob; what is free is attached by default
    say: str  # what it does, for the person who reads the help
    # by module of the user's libraries, the function that is called with that module once it is loaded, as
    # `legroom.x:function`. It runs in the user's interpreter, which need have no more than his libraries.
    hooks: Mapping[str, str] = field(default_factory=dict)
    # of the program's environment, where the user has not set them
    variables: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()  # variables of the user's that stand for those as well
    needs_gpu: bool = False  # whether it does anything without one
    takes: str = ""  # what its number is, for `name=N`; empty where it takes none
    # which memory it saves: the host's, or that of the device that trains, which may be the host
    saves: Literal["host", "device"] = "host"
