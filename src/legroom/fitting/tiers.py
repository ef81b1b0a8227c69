"""Several plans side by side, each proven like any other: the questions people ask before any knob.

One plan per size of GPU: what a run would be on cards of 8, 12, 16 ... GB. Or one per named run of a workload, largest
first: which of them a machine can train.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from legroom.backends.base import backend_of
from legroom.fitting.grow import grown
from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit
from legroom.model.footprint import Footprint
from legroom.model.plan import PRICES, MostEnvs, Plan
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.units import GIB


@dataclass(frozen=True)
class Tier:
    """The plan for one size of card, or for one card, and what people look at first.

    Args:
        card: its name; empty where only its memory is given.
        most: of runs that get all environments that a card has room for, what bounds them.
    """

    vram: int
    plan: Plan
    batch: int
    minibatches: int | None
    most: MostEnvs | None
    card: str = ""

    @property
    def n_envs(self) -> int:
        return self.plan.run.env.n_envs

    @property
    def micro_batch(self) -> int | None:
        micro = self.plan.run.memory.micro_batch
        return micro if isinstance(micro, int) else None


def tiers(
    sizes_gb: Sequence[float],
    budget: Budget,
    predictor: Predictor,
    *,
    grow: bool = False,
    most_steps: int | None = None,
) -> Iterator[Tier]:
    """Yield a tier per size, smallest first; a card of 8 GB is taken to have 8 GiB, as its maker counts.

    Args:
        grow: use what is free; `Backend.with_most_envs` is asked in any case.
        most_steps: env steps that one update may learn from, for runs that get all environments there is room for.
    """
    for size in sorted(sizes_gb):
        yield tier(int(size * GIB), budget, predictor, grow=grow, most_steps=most_steps)


def tier(
    vram: int, budget: Budget, predictor: Predictor, *, grow: bool = False, most_steps: int | None = None,
    card: str = "",
) -> Tier:  # fmt: skip
    """Return the tier of one card; `predictor` predicts for it."""
    plan = fit(predictor.run, replace(budget, vram=vram, vram_origin=f"of a {card}" if card else "given"), predictor)
    most = backend_of(plan.run).with_most_envs(plan, predictor.footprint, most_steps)
    if most is not None:
        plan = most.plan
    elif grow:
        plan = grown(plan, predictor)
    return Tier(vram, plan, *backend_of(plan.run).gradient_step(plan.run), most, card)


@dataclass(frozen=True)
class Named:
    """A named run beside the budget: as it is written, and with what costs nothing."""

    run: Run
    footprint: Footprint
    fits: bool
    freely: Footprint
    fits_freely: bool


@dataclass(frozen=True)
class Recommendation:
    """What a machine can train of a workload.

    Args:
        named: its runs beside the budget, in their order.
        chosen: the first that fits as it is, else the first that fits with what is free; None where none does.
        plan: the workload's default run, made to fit with all knobs.
        shown: the plan of the chosen run, with what is free alone; where none was chosen, `plan`.
    """

    named: tuple[Named, ...]
    chosen: Named | None
    plan: Plan
    shown: Plan


def recommend(predictors: Mapping[str, Predictor], default: str, budget: Budget) -> Recommendation:
    """Return which of the runs fits, and what the knobs would make of the default one.

    Raises:
        BadInput: a run breaks a rule of its library that no knob mends, or the GPU's size is not known.
    """
    named = tuple(_beside(predictor, budget) for predictor in predictors.values())
    fitting = [each for each in named if each.fits] + [each for each in named if each.fits_freely]
    chosen = next(iter(fitting), None)
    plan = fit(predictors[default].run, budget, predictors[default])
    if chosen is None:
        return Recommendation(named, None, plan, plan)
    predictor = predictors[chosen.run.name]
    return Recommendation(named, chosen, plan, fit(predictor.run, budget, predictor, allow=PRICES[:1]))


def _beside(predictor: Predictor, budget: Budget) -> Named:
    run = predictor.run
    footprint, freely = predictor.footprint(run), predictor.footprint(predictor.freely())
    return Named(run, footprint, fits(footprint, budget) is True, freely, fits(freely, budget) is True)
