"""A run's prediction with what its savings would do: the same for the command and for the page."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from legroom.backends.base import backend_of, spreading_backend
from legroom.errors import BadInput
from legroom.model.cluster import Cluster, NodeBill
from legroom.model.evidence import Evidence
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.prediction import LeanOption, Prediction
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.predicting.predict import add_up, gather_all


def predict_all(
    runs: Sequence[Run], machine: Machine, budget: Budget, cluster: Cluster | None = None, **how: Any
) -> list[Prediction]:
    """Return the predictions of runs, per node where they are spread over a cluster; `how` is `gather_all`'s.

    Raises:
        BadInput: a run cannot be predicted, or not be spread.
    """
    gathered = gather_all(runs, machine, **how)
    predictions = [priced(run, evidence, budget) for run, evidence in gathered]
    if cluster is None:
        return predictions
    both = zip(predictions, gathered, strict=True)
    return [_per_node(prediction, evidence, cluster) for prediction, (_, evidence) in both]


def _per_node(prediction: Prediction, evidence: Evidence, cluster: Cluster) -> Prediction:
    """Return the prediction with a bill per node; whether it fits is theirs to say."""
    run, backend = prediction.run, backend_of(prediction.run)
    if not backend.spreads:
        able = spreading_backend()
        title = able.title if able else "another backend"
        raise BadInput(f"--nodes is for {title}, {run.name} uses backend {backend.name}")
    bills = tuple(backend.node_bills(run, evidence, cluster, reserve=prediction.budget.reserve))
    return replace(prediction, cluster=cluster, bills=bills, fits=_all_fit(bills, footprint=prediction.footprint))


def _all_fit(bills: Sequence[NodeBill], footprint: Footprint) -> bool | None:
    if not all(bill.fits for bill in bills):
        return False
    return None if footprint.unseen or footprint.unknown else True


def priced(run: Run, evidence: Evidence, budget: Budget) -> Prediction:
    """Return the prediction of a run as it is written, with every free saving, and with lean storage at its price."""
    backend = backend_of(run)
    footprint, freely, lean = add_up(run, evidence), backend.with_free_savings(run, evidence), None
    for knob in backend.knobs:
        if knob.slowdown is not None and any(True for _ in knob.ladder(run, evidence)):
            turned = next(knob.ladder(freely, evidence), freely)
            price = knob.price_for(run, evidence)
            lean = LeanOption(add_up(turned, evidence), price, knob.slowdown(run, evidence))
    return Prediction(
        run=run,
        footprint=footprint,
        free=add_up(freely, evidence),
        budget=budget,
        fits=fits(footprint, budget),
        lean=lean,
        probe=evidence.lean,
    )
