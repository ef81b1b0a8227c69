"""Measure what a CPU update needs beyond its tensors, by making a small real one in a child process.

oneDNN reorders weights and takes workspaces, BLAS packs its operands, malloc keeps freed blocks and loses some space
between them: none of it is a tensor, so no trace shows it, and it can be half as much as the tensors. So a fresh child
builds the run's own algorithm and policy, makes a few updates, and reports its peak. Where the run's batch is small the
child uses it as it is; otherwise it takes two smaller ones, and the peak is extrapolated along the straight line
through them: activations and workspaces grow with the batch, weights do not.

The result is kept under the user's cache directory by everything it depends on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from legroom.errors import Untraceable
from legroom.model.evidence import NetTrace, Scratch
from legroom.model.facts import algorithm_of
from legroom.model.footprint import Phase
from legroom.model.run import Run
from legroom.predicting.envs import in_flight_nbytes
from legroom.predicting.network import gather_excess
from legroom.predicting.stored import batch_samples
from legroom.probing.base import LIBRARIES, cache_folder, digest, read_json, write_json
from legroom.probing.versions import read_versions
from legroom.units import MIB

CHILD = "legroom.backends.sb3_scratch_child"
TIMEOUT_S = 60
# Tensors of a measured update; what runs in a second or two, and far from anyone's memory.
BUDGET = 256 * MIB
# Between two children, and between a child and the run it stands for: malloc's layout differs (2026-11, torch 2.13.0).
REPEATABILITY = 12_000_000
EXTRAPOLATION_ERROR = 0.06  # of what is added beyond the largest batch that was measured


@dataclass(frozen=True)
class Measured:
    """One update of `batch` samples: bytes at its peak and after it, above an idle process with the libraries."""

    batch: int
    peak: int
    kept: int


def measure_scratch(run: Run, net: NetTrace) -> Scratch:
    """Return the scratch memory of the run's update on the CPU.

    Raises:
        Untraceable: no real update can be made (a class that only lives in this process, a constructor that refuses).
    """
    batch = batch_samples(run)
    batches = plan_batches(batch, sum(net.transient.get(Phase.UPDATE, {}).values()))
    measured = _measure(run, batches)
    last = measured[-1]
    peak, grown, why = last.peak, 0, f"measured: a real update of {batch:,} samples in a child process"
    if last.batch < batch:
        first = measured[0]
        slope = max(last.peak - first.peak, 0) / (last.batch - first.batch)
        grown = int(slope * (batch - last.batch))
        peak += grown
        why = f"measured with real updates of {first.batch:,} and {last.batch:,} samples, extrapolated to {batch:,}"
    resident = net.weights + net.gradients + net.optimizer
    # What the child's own environment has in memory is on the run's bill already, as the environments' items.
    tensors = resident + sum(net.transient.get(Phase.UPDATE, {}).values()) + gather_excess(run, net)
    surroundings = in_flight_nbytes(_small(run))
    return Scratch(
        nbytes=max(peak - tensors - surroundings, 0),
        error=REPEATABILITY + int(EXTRAPOLATION_ERROR * grown),
        why=f"operators' workspaces and malloc, {why}",
        retained=max(last.kept - resident - surroundings, 0),
    )


def plan_batches(batch: int, tensors: int) -> list[int]:
    """Return the batch sizes to measure, given what the full one's tensors take: itself, or two that stay small."""
    if tensors <= BUDGET:
        return [batch]
    largest = max(batch * BUDGET // tensors, 2)
    return [batch] if largest >= batch else [max(largest // 2, 1), largest]


def _small(run: Run) -> Run:
    env = run.env.model_copy(update={"n_envs": 1, "workers": "dummy", "envs_per_worker": 1})
    return run.model_copy(update={"env": env})


def _measure(run: Run, batches: list[int]) -> list[Measured]:
    plain = _small(run).model_dump()
    text = json.dumps(plain, sort_keys=True, default=str)
    if "live:" in text:
        raise Untraceable("the policy uses a class that exists in this process only")
    threads = {key: value for key, value in os.environ.items() if key.startswith(("OMP_", "MKL_", "MALLOC_", "DNNL_"))}
    key = digest(text, batches, sorted(read_versions((*LIBRARIES, "sb3-contrib")).items()), sorted(threads.items()),
                 os.cpu_count(), algorithm_of(run).name)  # fmt: skip
    path = cache_folder() / f"scratch-{key}.json"
    report = _valid(read_json(path), batches)
    if report is None:
        source = (run.source or "").partition(":")[0]
        report = _valid(_run_child({"run": plain, "batches": batches, "source": source}), batches)
        if report is None:
            raise Untraceable("the child process gave no figures")
        write_json(path, {"measured": report})
    return [Measured(**each) for each in report]


def _valid(report: Any, batches: list[int]) -> list[dict[str, int]] | None:
    measured = report.get("measured") if isinstance(report, dict) else None
    if not isinstance(measured, list) or len(measured) != len(batches):
        return None
    good = all(isinstance(each, dict) and set(each) == {"batch", "peak", "kept"} for each in measured)
    return measured if good and [each["batch"] for each in measured] == batches else None


def _run_child(request: dict[str, Any]) -> Any:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            [sys.executable, "-m", CHILD],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as wrong:
        raise Untraceable(f"a small real update could not be made: {wrong}") from wrong
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Untraceable(f"a small real update could not be made: {reason}")
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None
