"""Which of a workload's named runs a machine can train, largest first: the question people ask before any knob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit
from legroom.model.footprint import Footprint
from legroom.model.plan import PRICES, Plan
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits


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
