"""The run that died at "Unable to allocate 105. GiB": real environment, real grid, whole rollout, in a few gigabytes.

`mine:full` as it is shipped (49×71×58 blocks, 2048 steps × 4 envs, batch 64), with the savings that change nothing of
what is learned: lean storage, light workers, micro-batches of 8.

1. The tiny extractor, so that it ends in minutes on a CPU: the whole rollout collected and one epoch of updates, by
   `legroom train`'s own machinery.
2. The full extractor: a whole rollout from the same environments (random valid actions: acting with the full network
   would take hours here and no more memory), then three minibatches of 64 learned from it.

    python -m bench.mine_full [tiny|full]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.peak_sampler import PeakSampler
from bench.results import write_section
from legroom.backends.base import backend_of
from legroom.backends.sb3.ladders import lean_storage
from legroom.machine import probe
from legroom.model.footprint import Footprint
from legroom.model.outcome import MemorySample, Progress
from legroom.model.run import Run
from legroom.predicting.predict import add_up, gather
from legroom.reading import read
from legroom.training.request import Training
from legroom.training.run_folder import Predicted
from legroom.training.train import train
from legroom.units import format_size

GIB = 1 << 30
REQUIRED = {"tiny": 2.5 * GIB, "full": 4.0 * GIB}
MICRO_BATCH = 8
MINIBATCHES = 3


class Lines:
    """A display that prints a line every half minute."""

    def __init__(self) -> None:
        self._said, self._host = 0.0, 0

    def progress(self, progress: Progress) -> None:
        if time.monotonic() - self._said > 30:
            self._said = time.monotonic()
            print(f"  {progress.timesteps:,} steps, {progress.phase}, host {format_size(self._host)}", flush=True)

    def memory(self, sample: MemorySample) -> None:
        self._host = sample.host_nbytes

    def say(self, line: str) -> None:
        print(f"  {line}", flush=True)


def the_run(size: str) -> Run:
    """Return mine:full with one epoch and micro-batches; `size` is the extractor's."""
    overrides = [
        ("policy.features_extractor_kwargs.size", size),
        ("hyperparams.n_epochs", "1"),
        ("memory.micro_batch", str(MICRO_BATCH)),
        ("total_timesteps", "8192"),
        ("seed", "1"),
        ("device", "cpu"),
    ]
    return read("mine:full", overrides=overrides)


def predicted(run: Run) -> tuple[Run, Footprint, Footprint]:
    """Return the run with its savings, its footprint, and that of the run as plain SB3 would do it."""
    known, evidence = gather(run, probe(), device="cpu")
    free = backend_of(known).fitter.with_free_savings(known, evidence)
    lean = next(lean_storage(free, evidence), free)
    plain = replace(known, memory=replace(known.memory, micro_batch=None))
    return lean, add_up(lean, evidence), add_up(plain, evidence)


def measure_tiny(run: Run, footprint: Footprint) -> tuple[int, str]:
    """Train one iteration and return the peak and what was done."""
    with tempfile.TemporaryDirectory(prefix="legroom-mine-") as folder:
        out = Path(folder, "out")
        began = time.monotonic()
        outcome, record = train(Training(run, str(out), asked=run, predicted=Predicted.of(footprint)), Lines())
        seconds = time.monotonic() - began
        if outcome.status != "finished":
            raise SystemExit(f"the training failed: {outcome.error}\n{record.end.get('traceback', '')}")
        stored = next(item.measured for item in outcome.items if item.name == "rollout.observations")
    done = f"{outcome.timesteps:,} steps and one epoch in {seconds / 60:.1f} min; rollout {format_size(stored or 0)}"
    return record.host_peak_nbytes, done


def measure_full(run: Run) -> tuple[int, str]:
    """Learn from three minibatches with the full extractor, in a child, and return the peak and what was done."""
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.mine_full_child", json.dumps(run.model_dump()), str(MINIBATCHES)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with PeakSampler(child.pid, interval_s=0.1) as sampler:
        output, _ = child.communicate()
    if child.returncode:
        raise SystemExit(f"the child ended with {child.returncode}: {output}")
    return sampler.peak.pss, output.strip().splitlines()[-1]


def main(sizes: list[str]) -> int:
    rows, failed = [], False
    for size in sizes:
        run = the_run(size)
        lean, footprint, plain = predicted(run)
        print(f"{size}: predicted {format_size(footprint.host.nbytes)}, plain SB3 {format_size(plain.host.nbytes)}")
        measured, done = measure_tiny(lean, footprint) if size == "tiny" else measure_full(lean)
        good = measured <= REQUIRED[size]
        failed |= not good
        row = [
            f"mine:full, {size} extractor, micro-batch {MICRO_BATCH}",
            format_size(plain.host.nbytes),
            format_size(footprint.host.nbytes),
            f"≤ {format_size(int(REQUIRED[size]))}",
            f"{format_size(measured)}{'' if good else ' FALLS SHORT'}",
            done,
        ]
        print("  ".join(row), flush=True)
        rows.append(row)
    columns = [
        "run",
        "plain SB3 would need",
        "predicted",
        "required",
        "measured (PSS of the tree)",
        "what was done",
    ]
    title = "mine:full in the machine we have" + ("" if len(sizes) > 1 else f" ({sizes[0]})")
    write_section(title, columns, rows, "python -m bench.mine_full" + ("" if len(sizes) > 1 else f" {sizes[0]}"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["tiny", "full"]))
