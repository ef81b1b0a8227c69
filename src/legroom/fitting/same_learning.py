"""The first way to fit that changes nothing of what is learned: lean storage, then smaller and smaller micro-batches.

Used by `train` when a run does not fit as it is. Both keep the mathematics: lean storage to the bit, micro-batches up
to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from legroom.fitting.free import with_lean_storage
from legroom.model.facts import algorithm_of
from legroom.model.footprint import Footprint
from legroom.model.run import Run
from legroom.model.stored import MICRO_BATCHED, batch_samples, may_store_leanly, storage_said
from legroom.model.verdict import Budget, fits


def fit_same_learning(run: Run, budget: Budget, predict: Callable[[Run], Footprint]) -> tuple[Run, Footprint] | None:
    """Return the first variant of the run that fits, None when none does."""
    for variant in _variants(run):
        footprint = predict(variant)
        if fits(footprint, budget) is not False:
            return variant, footprint
    return None


def _variants(run: Run) -> Iterator[Run]:
    if may_store_leanly(run) and storage_said(run) is None:
        run = with_lean_storage(run)
        yield run
    if algorithm_of(run).name not in MICRO_BATCHED or run.memory.micro_batch is not None:
        return
    size = batch_samples(run)
    while size > 1:
        size = max(size // 2, 1)
        yield run.replace(memory=run.memory.model_copy(update={"micro_batch": size}))
