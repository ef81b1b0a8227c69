"""Predict evaluation environments: they stand beside the training ones from start to end, mostly idle."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.backends.sb3.bill.envs import in_flight_items, instance_items
from legroom.backends.sb3.bill.runtime import helper_items, worker_items
from legroom.backends.sb3.stored import bounds_nbytes
from legroom.model.evidence import Evidence
from legroom.model.facts import spaces_of
from legroom.model.footprint import Item, Place
from legroom.model.run import Run


def evaluation_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield the evaluation environments' items, none without `eval`."""
    if run.eval is None:
        return
    observation, _ = spaces_of(run)
    envs, workers = run.eval.n_envs, run.eval.workers
    place = Place.HOST if workers == "dummy" else Place.WORKER
    yield from worker_items("eval", workers, envs, run.env.start_method, evidence.base)
    if workers == "subproc" and run.env.workers != "subproc":  # otherwise the training workers' serve both
        yield from helper_items("eval", run.env.start_method, evidence.base)
    yield from instance_items("eval", run, evidence, envs, place)
    bounds = bounds_nbytes(observation)
    yield Item("eval.space bounds", bounds, place, "low, high and two masks per Box, in every instance", count=envs)
    yield from in_flight_items("eval", run, workers, envs, envs)
