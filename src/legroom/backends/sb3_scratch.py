"""Measure what a CPU update needs beyond its tensors, by making a small real one in a child process.

oneDNN reorders weights and takes workspaces, BLAS packs its operands, malloc keeps freed blocks and loses some space
between them: none of it is a tensor, so no trace shows it, and it can be half as much as the tensors. So a fresh child
builds the run's own algorithm and policy, makes a few updates, and reports its peak. Where the run's batch is small the
child uses it as it is; otherwise it takes two smaller ones, and the peak is extrapolated along the straight line
through them: activations and workspaces grow with the batch, weights do not. The line is straight only if malloc maps
the blocks of the small batches as it does those of the large one, so it is told to; then it holds within 1 %.

The result is kept under the user's cache directory by everything it depends on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from legroom.errors import Untraceable
from legroom.model.evidence import NetTrace, Scratch
from legroom.model.run import Run
from legroom.model.stored import batch_samples, gather_excess, in_flight_nbytes, update_nbytes
from legroom.probing.base import LIBRARIES
from legroom.probing.cache import cache_folder, digest, read_json, write_json
from legroom.probing.versions import read_versions
from legroom.units import format_size

CHILD = Path(__file__).with_name("sb3_scratch_child.py")
TIMEOUT_S = 60
# Tensors of a measured update; what runs in a second or two, and far from anyone's memory.
BUDGET = 256 << 20
# Between two children, and between a child and the run it stands for, malloc's layout differs: blocks of up to 32 MiB
# come from the heap, and one small long-lived block above a freed large one keeps it resident. The same run,
# measured two to four times, spread by 40 to 60 MB in the worst cases, large layers and frame stacks (2026-11-15, torch
# 2.13.0+cpu, glibc 2.36; `python -m bench.accuracy ppo-stack-x2 --repeat 4` shows it).
REPEATABILITY = 12_000_000
LAYOUT_ERROR, LARGEST_LAYOUT_ERROR = 0.12, 32_000_000
MAP_THRESHOLD = "MALLOC_MMAP_THRESHOLD_"  # glibc's; other allocators ignore it
# What the heap adds to a large batch's update: its blocks below 32 MiB, which come and go in many sizes. Found between
# 45 and 130 MB in runs of 512 and 1024 pixels samples (2026-11-15, torch 2.13.0+cpu, glibc 2.36).
HEAP, HEAP_ERROR = 70_000_000, 45_000_000
# A child may grow to this beyond the libraries; a prediction must not be what fills the memory.
CHILD_BUDGET = 360_000_000
EXTRAPOLATION_ERROR = 0.03  # of what is added beyond the largest batch that was measured


@dataclass(frozen=True)
class Measured:
    """Updates of `batch` samples: bytes at their peak and after them, above an idle process with the libraries."""

    batch: int
    peak: int
    kept: int
    rounds: int


@dataclass
class PendingScratch:
    """A measurement under way, so that tracing can go on beside it."""

    run: Run
    batches: list[int]
    children: list[subprocess.Popen[str]]
    measured: list[Measured]

    def finish(self, net: NetTrace) -> Scratch:
        """Wait for the children and return what an update needed beyond the traced tensors.

        Raises:
            Untraceable: no real update can be made (a constructor that refuses, a custom class that fails).
        """
        if not self.measured:
            self.measured = _finish(self.children)
            plain = [asdict(each) for each in self.measured]
            write_json(_cache_path(self.run, self.batches), {"measured": plain})
        return _beyond_tensors(self.run, net, self.measured)


def start_scratch(run: Run, tensors: int, parameters: int = 0) -> PendingScratch:
    """Start measuring the run's update and return at once.

    Args:
        tensors: about what an update's tensors take; an estimate will do, it decides how large a batch is tried.
        parameters: bytes of weights, gradients and optimizer state together.

    Raises:
        Untraceable: the policy needs a class that exists in this process only, or a single sample is too large.
    """
    batches = plan_batches(batch_samples(run), tensors, parameters)
    needed = parameters + tensors * batches[-1] // batch_samples(run)
    if needed > CHILD_BUDGET:
        raise Untraceable(f"even a small update needs {format_size(needed)}")
    cached = _read_cache(_cache_path(run, batches), batches)
    # Each batch in a process of its own: what one leaves behind in the heap must not be taken for the other's.
    extrapolating = len(batches) > 1
    children = [] if cached else [_start_child(run, batch, mapped=extrapolating) for batch in batches]
    return PendingScratch(run, batches, children, cached)


def measure_scratch(run: Run, net: NetTrace) -> Scratch:
    """Return the scratch memory of the run's update on the CPU.

    Raises:
        Untraceable: no real update can be made.
    """
    parameters = net.weights + net.gradients + net.optimizer
    return start_scratch(run, update_nbytes(net), parameters).finish(net)


def _beyond_tensors(run: Run, net: NetTrace, measured: list[Measured]) -> Scratch:
    batch, last = batch_samples(run), measured[-1]
    peak, grown, noise = _steady_peak(last, net), 0, 0
    why = f"measured: a real update of {batch:,} samples in a child process"
    if last.batch < batch:
        first = measured[0]
        steps = (batch - last.batch) / (last.batch - first.batch)
        grown = int(steps * max(peak - _steady_peak(first, net), 0))
        noise = HEAP_ERROR + int(EXTRAPOLATION_ERROR * grown)
        peak += grown + HEAP
        why = f"measured with real updates of {first.batch:,} and {last.batch:,} samples, extrapolated to {batch:,}"
    resident = net.weights + net.gradients + net.optimizer
    tensors = resident + update_nbytes(net) + gather_excess(net)
    # What the child's own environment has in memory is on the run's bill already, as the environments' items.
    surroundings = in_flight_nbytes(_small(run))
    layout = REPEATABILITY + min(int(LAYOUT_ERROR * last.peak), LARGEST_LAYOUT_ERROR)
    return Scratch(
        nbytes=max(peak - tensors - surroundings, 0),
        error=layout + noise,
        why=f"operators' workspaces and malloc, {why}",
        retained=max(last.kept - resident - surroundings, 0),
    )


def _steady_peak(measured: Measured, net: NetTrace) -> int:
    # The optimizer's state comes with the first step, after that update's peak; all later ones have it.
    return measured.peak + (net.optimizer if measured.rounds == 1 else 0)


def plan_batches(batch: int, tensors: int, parameters: int = 0) -> list[int]:
    """Return the batch sizes to measure, given what the full one's tensors take: itself, or two that stay small."""
    budget = min(BUDGET, max(CHILD_BUDGET - parameters, 0))
    if tensors <= budget:
        return [batch]
    largest = max(batch * budget // tensors, 2)
    return [batch] if largest >= batch else [largest // 2, largest]


def _small(run: Run) -> Run:
    env = run.env.model_copy(update={"n_envs": 1, "workers": "dummy", "envs_per_worker": 1})
    return run.model_copy(update={"env": env})


def _cache_path(run: Run, batches: list[int]) -> Path:
    threads = {key: value for key, value in os.environ.items() if key.startswith(("OMP_", "MKL_", "MALLOC_", "DNNL_"))}
    versions = read_versions((*LIBRARIES, "sb3-contrib"))
    text = json.dumps(_small(run).model_dump(), sort_keys=True, default=str)
    known = (sorted(versions.items()), sorted(threads.items()), os.cpu_count(), CHILD.read_bytes(), MAP_THRESHOLD)
    key = digest(text, batches, known)
    return cache_folder() / f"scratch-{key}.json"


def _read_cache(path: Path, batches: list[int]) -> list[Measured]:
    content = read_json(path)
    try:
        measured = [Measured(**each) for each in content["measured"]]
    except (TypeError, KeyError):
        return []
    return measured if [each.batch for each in measured] == batches else []


def _start_child(run: Run, batch: int, *, mapped: bool) -> subprocess.Popen[str]:
    """Start a child that updates with `batch` samples.

    Args:
        mapped: let malloc map every larger block for itself, as it does with the blocks over 32 MiB of a large batch; a
            small batch's would come from the heap instead, and what the heap loses does not grow with the batch.
    """
    plain = _small(run).model_dump()
    request = json.dumps({"run": plain, "batch": batch, "source": run.source}, default=str)
    if "live:" in request:
        raise Untraceable("the policy uses a class that exists in this process only")
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.{CHILD.stem}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **({MAP_THRESHOLD: "65536"} if mapped else {})},
        )
        assert child.stdin is not None
        child.stdin.write(request)
        child.stdin.close()
        child.stdin = None  # communicate() would flush it again
    except OSError as wrong:
        raise Untraceable(f"a small real update could not be made: {wrong}") from wrong
    return child


def _finish(children: list[subprocess.Popen[str]]) -> list[Measured]:
    try:
        return [_read_child(child) for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()


def _read_child(child: subprocess.Popen[str]) -> Measured:
    try:
        output, errors = child.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as slow:
        raise Untraceable(f"a small real update took more than {TIMEOUT_S} s") from slow
    if child.returncode:
        reason = (errors.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        raise Untraceable(f"a small real update could not be made: {reason}")
    try:
        return Measured(**json.loads(output.strip().splitlines()[-1]))
    except (ValueError, IndexError, TypeError) as wrong:
        raise Untraceable("a small real update gave no figures") from wrong
