"""Ladders of the knobs that cost time: the same mathematics, to the bit or up to rounding."""

from __future__ import annotations

import math
from collections.abc import Iterator

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.bill.lean import stored_nbytes
from legroom.backends.sb3.bill.net_arithmetic import may_checkpoint
from legroom.backends.sb3.stored import MICRO_BATCHED, batch_samples, is_sb3, stores_leanly
from legroom.fitting.settings import halves, with_settings
from legroom.model.evidence import Evidence
from legroom.model.run import Run
from legroom.units import MIB

LEAST_SPILL_LIMIT = 16 * MIB  # below it hardly anything but the newest records would be in memory
SPILL_STEP = 0.8
EMPTY_CACHE_EVERY = 1


def micro_batches(run: Run, evidence: Evidence) -> Iterator[Run]:
    """A minibatch goes through the networks in pieces, whose gradients add up to its own."""
    if not is_sb3(run) or algorithm_of(run).name not in MICRO_BATCHED:
        return
    given = run.memory.micro_batch
    if given is not None and not isinstance(given, int):
        return  # a schedule of the user's own
    for size in halves(min(given or math.inf, batch_samples(run))):
        yield with_settings(run, memory={"micro_batch": size})


def activation_checkpointing(run: Run, evidence: Evidence) -> Iterator[Run]:
    """What layers hand on is computed again for the backward pass instead of being kept."""
    if is_sb3(run) and run.memory.activation_checkpointing is None and may_checkpoint(run) is not False:
        yield with_settings(run, memory={"activation_checkpointing": True})


def single_tensor_optimizer(run: Run, evidence: Evidence) -> Iterator[Run]:
    """The optimizer updates one tensor after the other; on the CPU it does so anyway."""
    if is_sb3(run) and run.memory.foreach is None and evidence.device == "cuda":
        yield with_settings(run, memory={"foreach": False})


def envs_per_worker(run: Run, evidence: Evidence) -> Iterator[Run]:
    """Several environments in one process, stepped one after the other."""
    if not is_sb3(run) or run.env.workers != "light":
        return
    each = run.env.envs_per_worker
    while each < run.env.n_envs:
        each = min(2 * each, run.env.n_envs)
        yield with_settings(run, env={"envs_per_worker": each})


def spilling(run: Run, evidence: Evidence) -> Iterator[Run]:
    """The oldest stored observations are kept in files."""
    if not is_sb3(run) or not stores_leanly(run):
        return
    counted = stored_nbytes(run, evidence)
    limit = counted * SPILL_STEP
    while limit > LEAST_SPILL_LIMIT:
        yield with_settings(run, memory={"max_bytes": int(limit)})
        limit *= SPILL_STEP
    if counted > LEAST_SPILL_LIMIT:
        yield with_settings(run, memory={"max_bytes": LEAST_SPILL_LIMIT})


def emptied_cache(run: Run, evidence: Evidence) -> Iterator[Run]:
    """The CUDA cache is given back after every update."""
    if is_sb3(run) and evidence.device == "cuda" and run.memory.empty_cache_every is None:
        yield with_settings(run, memory={"empty_cache_every": EMPTY_CACHE_EVERY})
