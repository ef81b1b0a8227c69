"""Which of a workload's named runs a machine can train, largest first: the question people ask before any knob."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from legroom.fitting.free import with_free_savings
from legroom.fitting.predictor import Predictor
from legroom.model.footprint import Footprint
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


def compare(predictors: Sequence[Predictor], budget: Budget) -> list[Named]:
    """Return the runs beside the budget, in their order."""
    compared = []
    for predictor in predictors:
        run = predictor.run
        free = with_free_savings(run, predictor.evidence(run))
        footprint, freely = predictor.footprint(run), predictor.footprint(free)
        compared.append(Named(run, footprint, fits(footprint, budget) is True, freely, fits(freely, budget) is True))
    return compared


def recommended(compared: Sequence[Named]) -> Named | None:
    """Return the first run that fits as it is, else the first that fits with what is free; None where none does."""
    return next((named for named in compared if named.fits), None) or next(
        (named for named in compared if named.fits_freely), None
    )
