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
class Plan:
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


Exact = Literal["bits", "rounding", ""]


@dataclass(frozen=True)
class Knob:
    """One setting that memory depends on, with its price.

    Args:
        key: the setting it turns, by its name in the run file; the first of them where it turns several.
        say: what it does and what it costs, for the person who reads the plan.
        ladder: its settings for a run, from the least turned to the most; none where it does nothing.
        exact: whether results stay equal to the bit, up to rounding, or not.
        probed_price: what it costs a run, as a probe of the environment tells; None where no probe decides.
        also: keys that it turns instead of `key` in runs of other algorithms.
        counted: whether predictions show what it saves.
        starts_over: whether what was learned before it was turned is of no use after: no retreat turns it.
    """

    key: str
    price: Price
    exact: Exact
    say: str
    ladder: Callable[[Run, Evidence], Iterator[Run]]
    probed_price: Callable[[Run, Evidence], Price] | None = None
    also: tuple[str, ...] = ()
    counted: bool = True
    starts_over: bool = False

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
    """One way to use free memory, which changes what is learned.

    Args:
        say: what grows, and what that is good for.
        larger: the run with it so many times as large; None where that is past what is sensible.
        bound: what limits it besides memory, for the person who reads the plan.
    """

    say: str
    larger: Callable[[float], Run | None]
    bound: str = ""


@dataclass(frozen=True)
class LeanOption:
    """What lean storage would do for a run that has not got it, on top of every free saving.

    Args:
        measured: whether a probe of the environment told how much its observations have in common.
    """

    footprint: Footprint
    price: Price
    measured: bool


@dataclass(frozen=True)
class Prediction:
    """All that is shown of one run: its footprint, the same with savings, and the verdict.

    Args:
        free: with every free saving; lean storage is one of them where its price is `free`.
        lean: None where the run has lean storage already, or cannot have it.
    """

    run: Run
    footprint: Footprint
    free: Footprint
    budget: Budget
    fits: bool | None
    lean: LeanOption | None = None
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
    """One saving that a backend can attach to a program that uses its library.

    Args:
        name: as `--with` calls it.
        price: that of its knob; what is free is attached by default.
        say: what it does, for the person who reads the help.
        hooks: by module of the user's libraries, the function that is called with that module once it is loaded, as
            `legroom.x:function`. It runs in the user's interpreter, which need have no more than his libraries.
        variables: of the program's environment, where the user has not set them.
        others: variables of the user's that stand for those as well.
        needs_gpu: whether it does anything without one.
        takes: what its number is, for `name=N`; empty where it takes none.
        saves: which memory it saves: the host's, or that of the device that trains, which may be the host.
    """

    name: str
    price: Price
    say: str
    hooks: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    needs_gpu: bool = False
    takes: str = ""
    saves: Literal["host", "device"] = "host"
