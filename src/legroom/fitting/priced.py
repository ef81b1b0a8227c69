"""A run's prediction with what its savings would do: the same for the command and for the page."""

from collections.abc import Sequence
from typing import Any

from legroom.backends.base import backend_of
from legroom.model.evidence import Evidence
from legroom.model.machine import Machine
from legroom.model.prediction import LeanOption, Prediction
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.predicting.predict import add_up, gather_all


def predict_all(runs: Sequence[Run], machine: Machine, budget: Budget, **how: Any) -> list[Prediction]:
    """Return the predictions of runs; `how` is `gather_all`'s.

    Raises:
        BadInput: a run cannot be predicted.
    """
    return [priced(run, evidence, budget) for run, evidence in gather_all(runs, machine, **how)]


def priced(run: Run, evidence: Evidence, budget: Budget) -> Prediction:
    """Return the prediction of a run as it is written, with every free saving, and with lean storage at its price."""
    fitter = backend_of(run).fitter
    footprint, freely, lean = add_up(run, evidence), fitter.with_free_savings(run, evidence), None
    for knob in fitter.knobs:
        if knob.asks_probe and any(True for _ in knob.ladder(run, evidence)):
            turned = next(knob.ladder(freely, evidence), freely)
            price = knob.price_for(run, evidence)
            lean = LeanOption(add_up(turned, evidence), price, evidence.lean is not None)
    return Prediction(
        run=run,
        footprint=footprint,
        free=add_up(freely, evidence),
        budget=budget,
        fits=fits(footprint, budget),
        lean=lean,
        probe=evidence.lean,
    )
