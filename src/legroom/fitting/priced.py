"""A run's prediction with what its savings would do: the same for the command and for the page."""

from __future__ import annotations

from legroom.backends.sb3.bill.lean import slowdown
from legroom.fitting.free import lean_price, with_free_savings, with_lean_storage
from legroom.model.evidence import Evidence
from legroom.model.prediction import LeanOption, Prediction
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.predicting.predict import add_up


def priced(run: Run, evidence: Evidence, budget: Budget) -> Prediction:
    """Return the prediction of a run as it is written, with every free saving, and with lean storage at its price."""
    footprint, freely = add_up(run, evidence), with_free_savings(run, evidence)
    price, lean = lean_price(run, evidence), None
    if price is not None:
        lean = LeanOption(add_up(with_lean_storage(freely), evidence), price, slowdown(run, evidence))
    return Prediction(
        run=run,
        footprint=footprint,
        free=add_up(freely, evidence),
        budget=budget,
        fits=fits(footprint, budget),
        lean=lean,
        probe=evidence.lean,
    )
