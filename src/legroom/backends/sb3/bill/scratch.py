"""Measure what a CPU update needs beyond its tensors, by making a small real one in a child process.

oneDNN reorders weights and takes workspaces, BLAS packs its operands, malloc keeps freed blocks and loses some space
between them: none of it is a tensor, so no trace shows it, and it can be half as much as the tensors. So a fresh child
(`evidence_child`) builds the run's own algorithm and policy, makes a few updates, and reports its peak. Where the run's
batch is small it is used as it is; otherwise two smaller ones are, and the peak is extrapolated along the straight line
through them: activations and workspaces grow with the batch, weights do not. The line is straight only if malloc maps
the blocks of the small batches as it does those of the large one, so it is told to; then it holds within 1 %.

Of a run with micro-batches it is the micro-batch that is meant by all that.

The result is kept under the user's cache directory by everything it depends on.
"""

import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.base_figures import LIBRARIES
from legroom.backends.sb3.stored import (
    gather_excess,
    has_own_classes,
    in_flight_nbytes,
    network_key,
    one_env,
    pass_samples,
    update_nbytes,
    updates,
)
from legroom.errors import Untraceable
from legroom.hollow.cuda_reduce import GpuShape
from legroom.machine import probe
from legroom.machine.cache import cache_folder, digest, read_json, write_json
from legroom.machine.versions import read_versions
from legroom.model.evidence import NetTrace, Scratch, Values
from legroom.model.facts import episode_limit
from legroom.model.run import Run
from legroom.units import format_size


@dataclass(frozen=True)
class Measured:
    """Updates of `batch` samples: bytes at their peak and after them, above an idle process with the libraries."""

    batch: int
    peak: int
    kept: int
    rounds: int
    risen: int = 0  # by how much the peak rose after the `warm` ones, with the same tensors
    # how many it took until all tensors were there: the second, or twice as many as the actor waits for (`policy_delay`
    # of TD3 and CrossQ)
    warm: int = 2


@dataclass(frozen=True)
class Request:
    """One run to trace on a device; with `batches`, its update is also measured at these sizes."""

    run: Run
    device: Literal["cpu", "cuda"]
    batches: list[int] = field(default_factory=list)
    values: Values = "refuse"
    card: GpuShape | None = None


@dataclass(frozen=True)
class Answer:
    """What came of a request; where something could not be done, the reason is there instead."""

    net: NetTrace | None
    not_traced: str = ""
    way: str = ""  # to know all the same
    modelled: bool = False  # by arithmetic, on purpose
    measured: list[Measured] = field(default_factory=list)
    not_measured: str = ""


# Part of the cache's key: what was measured in another way is measured anew.
UPDATES = Path(__file__).parents[1] / "evidence_child.py"
# Tensors of a measured update; what runs in a second or two, and far from anyone's memory.
BUDGET = 160 << 20
# Between two children, and between a child and the run it stands for, malloc's layout differs: blocks of up to 32 MiB
# come from the heap, and one small long-lived block above a freed large one keeps it resident. The same run,
# measured two to four times, spread by 40 to 60 MB in the worst cases, large layers and frame stacks (2026-11-15, torch
# 2.13.0+cpu, glibc 2.36; `bench.accuracy ppo-stack-x2` of eca25f63 shows it).
REPEATABILITY = 12_000_000
LAYOUT_ERROR, LARGEST_LAYOUT_ERROR = 0.12, 32_000_000
# What the heap adds to a large batch's update: its blocks below 32 MiB, which come and go in many sizes. Found between
# 45 and 130 MB in runs of 512 and 1024 pixels samples (2026-11-15, torch 2.13.0+cpu, glibc 2.36).
HEAP, HEAP_ERROR = 70_000_000, 45_000_000
# The heap goes on rising, by about as much with every doubling of the updates made: blocks of many sizes come and go,
# and a new peak comes when the holes of before happen not to suit. QR-DQN with [128, 200, 200] arrays: 627 MB in the
# second update, 709 in the 14th, 750 in the 64th, 750 in the 300th; with [32, 200, 200]: 398, 420 (7th), 430 (28th),
# 441 (219th), 451 (344th) (2026-11-17, torch 2.13.0+cpu, glibc 2.36). It is followed to so many updates.
MOST_UPDATES = 1000
RISE_ERROR = 0.6  # of what is added for it
# A child may grow to this beyond the libraries; a prediction must not be what fills the memory.
CHILD_BUDGET = 240_000_000
# Where a network alone is larger than that, one that takes no more than this share of what is free is tried all the
# same, at its smallest batch: what it takes beyond its tensors is in proportion, and no arithmetic knows it.
SHARE_OF_FREE, LARGEST_CHILD = 1 / 4, 2_000_000_000
# Of a recurrent update: sequences are padded to the longest. It is measured with two of them, a long and a short one,
# which doubles the batch, as happens where episodes are longer than it; where they are known to be shorter, with as
# many as there are.
PADDING_ERROR, SHORT_EPISODES_ERROR = 0.45, 0.25
EXTRAPOLATION_ERROR = 0.03  # of what is added beyond the largest batch that was measured


def plan_scratch(run: Run, tensors: int, parameters: int = 0) -> tuple[list[int], list[Measured]]:
    """Return the batches to measure for the run, and what is already known of them (all or nothing).

    Args:
        tensors: about what an update's tensors take; an estimate will do, it decides how large a batch is tried.
        parameters: bytes of weights, gradients and optimizer state together.

    Raises:
        Untraceable: the policy needs a class that exists in this process only, or a single sample is too large.
    """
    budget = CHILD_BUDGET
    if parameters > CHILD_BUDGET // 2:
        # Measured where there was room, it holds inside a job's limit too, whose size came of that measurement.
        batches = plan_batches(pass_samples(run), tensors, parameters, LARGEST_CHILD)
        if known := _read_cache(_cache_path(run, batches)):
            return batches, known
        budget = max(budget, min(int(SHARE_OF_FREE * probe().available), LARGEST_CHILD))
    batches = plan_batches(pass_samples(run), tensors, parameters, budget)
    needed = parameters + tensors * batches[-1] // pass_samples(run)
    if needed > budget:
        raise Untraceable(f"even a small update needs {format_size(needed)}")
    return batches, _read_cache(_cache_path(run, batches))


def remember(run: Run, batches: list[int], measured: list[Measured]) -> None:
    """Keep what was measured where these batches were to be, for the next prediction of the same update."""
    write_json(_cache_path(run, batches), {"measured": [asdict(each) for each in measured]})


def beyond_tensors(run: Run, net: NetTrace, measured: list[Measured]) -> Scratch:
    """Return what an update needed beyond the traced tensors, extrapolated to the run's batch."""
    batch, last = pass_samples(run), measured[-1]
    peak, grown, noise = _steady_peak(last, net), 0, 0
    why = f"measured: a real update of {batch:,} samples in a child process"
    if last.batch < batch:
        first = measured[0]
        steps = (batch - last.batch) / (last.batch - first.batch)
        grown = int(steps * max(peak - _steady_peak(first, net), 0))
        noise = HEAP_ERROR + int(EXTRAPOLATION_ERROR * grown)
        peak += grown + HEAP
        why = f"measured with real updates of {first.batch:,} and {last.batch:,} samples, extrapolated to {batch:,}"
    else:
        rise = _later_rise(last, updates(run))
        peak, noise = peak + rise, int(RISE_ERROR * rise)
    resident = net.weights + net.gradients + net.optimizer
    tensors = resident + update_nbytes(net) + gather_excess(net)
    # What the child's own environment has in memory is on the run's bill already, as the environments' items.
    surroundings = in_flight_nbytes(one_env(run))
    layout = REPEATABILITY + min(int(LAYOUT_ERROR * last.peak), LARGEST_LAYOUT_ERROR)
    if algorithm_of(run).recurrent:
        short = (episode_limit(run) or batch) < batch
        noise += int((SHORT_EPISODES_ERROR if short else PADDING_ERROR) * max(peak - resident, 0))
    if last.rounds < last.warm:  # whether its peak had all of the optimizer's state already is not known
        layout += net.optimizer // 2
    return Scratch(
        nbytes=max(peak - tensors - surroundings, 0),
        error=layout + noise,
        why=f"operators' workspaces and malloc, {why}",
        retained=max(last.kept - resident - surroundings, 0),
    )


def _later_rise(measured: Measured, updates: float) -> int:
    """Return by how much the heap is likely to rise beyond what the measured updates show, in all of the run's."""
    more = min(updates, MOST_UPDATES) / measured.rounds
    if measured.rounds <= measured.warm or more <= 1:
        return 0
    return int(measured.risen * math.log(more) / math.log(measured.rounds / measured.warm))


def _steady_peak(measured: Measured, net: NetTrace) -> int:
    # The optimizer's state comes with the first step: after that update's peak, or with it. All later ones have it.
    return measured.peak + (net.optimizer // 2 if measured.rounds == 1 else 0)


def plan_batches(batch: int, tensors: int, parameters: int = 0, most: int = CHILD_BUDGET) -> list[int]:
    """Return the batch sizes to measure, given what the full one's tensors take: itself, or two that stay small."""
    budget = min(BUDGET, max(most - parameters, 0))
    if tensors <= budget:
        return [batch]
    largest = max(batch * budget // tensors, 2)
    return [batch] if largest >= batch else [largest // 2, largest]


def _cache_path(run: Run, batches: list[int]) -> Path:
    threads = {key: value for key, value in os.environ.items() if key.startswith(("OMP_", "MKL_", "MALLOC_", "DNNL_"))}
    versions = read_versions((*LIBRARIES, "sb3-contrib"))
    # What a run is called, and where it is stored, does not matter: one that was fitted is the run that it was made of.
    own = str(Path.cwd()) if has_own_classes(run) else ""  # a class of another project may have the same name
    known = (sorted(versions.items()), sorted(threads.items()), os.cpu_count(), own, UPDATES.read_bytes())
    key = digest(network_key(one_env(run)), batches, known)
    return cache_folder() / f"scratch-{key}.json"


def _read_cache(path: Path) -> list[Measured]:
    content = read_json(path)
    try:
        return [Measured(**each) for each in content["measured"]]
    except (TypeError, KeyError):
        return []
