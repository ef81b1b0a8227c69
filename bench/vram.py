"""Predicted GPU memory against the real caching allocator, run by run.

The truth rows say what the allocator of a CUDA build of torch reported for a real SB3 run on a device that executes no
kernels: everything but the context and cuDNN's workspace. Each row becomes a Run and goes the way `legroom predict`
goes. Argument checks of torch.distributions are on, as in users' runs, though they were off when the rows were
recorded: the temporaries they add are small and gone before the peak. That device runs PyTorch with
TORCH_CUDNN_V8_API_DISABLED=1, without which bfloat16 would be convolved by cuDNN; the same is predicted here. Rows in
which that matters are predicted once more without the variable: then the printed band has to hold the row.

The held-out rows (networks of bench/more_nets.py) are run only when it is asked for, so that nobody tunes to them, and
are reported apart.

    python -m bench.vram [FILE... | --held-out]
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.results import write_section
from legroom.model.footprint import AllocatorPeaks
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.predicting.predict import add_up, gather_all
from legroom.units import MIB

HERE = Path(__file__).parent
NAMES = ("vram_sb3.json", "vram_truth.json", "vram_more.json")
FILES = tuple(HERE / "data" / name for name in NAMES)
HELD_OUT = (HERE / "data" / "vram_own2_heldout.json",)
V8_OFF = "TORCH_CUDNN_V8_API_DISABLED"
REQUIRED_EXACT = 0.8
NO_MACHINE = Machine(ram=0, limit=None, available=0, swap=0, shm=0)


def run_of(row: dict[str, Any]) -> Run:
    """Return the run a truth row describes, as its run file would say it."""
    hyperparams = dict(row.get("kwargs", {}))
    if row.get("her"):
        hyperparams |= {"replay_buffer_class": "HerReplayBuffer", "replay_buffer_kwargs": {"n_sampled_goal": 4}}
    n_envs = row.get("n_envs", 1)
    policy: dict[str, Any] = {"name": row["policy"], "kwargs": row.get("policy_kwargs", {})}
    if "cnn3d" in row:
        policy |= {"features_extractor": "bench.truth_nets:Cnn3d", "features_extractor_kwargs": row["cnn3d"]}
        policy["kwargs"] = {**policy["kwargs"], "normalize_images": False}
    if "features_extractor" in row:
        policy |= {key: row[key] for key in ("features_extractor", "features_extractor_kwargs")}
    if isinstance(activation := policy["kwargs"].get("activation_fn"), str):
        policy["kwargs"] = {**policy["kwargs"], "activation_fn": activation.removeprefix("nn.")}
    return Run.model_validate({
        "name": row["name"],
        "algo": row.get("base", row["algo"]),
        "algo_class": row["algo"] if "base" in row else None,
        "env": {"n_envs": n_envs, "spaces": {"observation": row["obs"], "action": row["action"]}},
        "policy": policy,
        "hyperparams": hyperparams,
        "total_timesteps": row.get("total_timesteps") or 2 * hyperparams.get("n_steps", 2048) * n_envs,
        "device": "cuda",
        "eval": row.get("eval"),
        "memory": {"expandable_segments": row.get("expandable")},
    })  # fmt: skip


def predicted(rows: list[dict[str, Any]], *, v8_off: bool) -> list[AllocatorPeaks]:
    """Return what the allocator is said to report for each row."""
    os.environ[V8_OFF] = "1" if v8_off else "0"
    runs = [run_of(row) for row in rows]
    gathered = gather_all(runs, NO_MACHINE, mode="trace", device="cuda", trust=True, values="assume")
    peaks = [add_up(run, evidence).allocator for run, evidence in gathered]
    return [each for each in peaks if each is not None]


def cells(name: str, row: dict[str, Any], peaks: AllocatorPeaks) -> tuple[list[str], bool, bool, bool]:
    """Return a line of the table, and whether it is exact, within the limits, and inside the printed band."""
    reserved, allocated = row["truth"]["peak_reserved"], row["truth"]["peak_allocated"]
    off = peaks.peak_reserved - reserved
    close = (
        abs(off) <= max(0.03 * reserved, 24 * MIB)
        and abs(peaks.peak_allocated - allocated) <= max(0.01 * allocated, 2 * MIB)
    )  # fmt: skip
    held = abs(off) <= peaks.error
    line = [
        name, f"{peaks.peak_reserved:,}", f"{reserved:,}", "yes" if off == 0 else f"no, {off / reserved:+.1%}",
        f"{peaks.peak_allocated - allocated:+,}", "yes" if close else "NO", "yes" if held else "NO",
    ]  # fmt: skip
    return line, off == 0, close, held


def main(files: list[str]) -> int:
    failed = False
    held_out = files[:1] == ["--held-out"]
    if held_out:
        files = files[1:] or [str(path) for path in HELD_OUT]
    for path in [Path(f) for f in files] or [path for path in FILES if path.exists()]:
        rows = json.loads(path.read_text())
        start = time.perf_counter()
        found = [cells(row["name"], row, peaks) for row, peaks in zip(rows, predicted(rows, v8_off=True), strict=True)]
        seconds = time.perf_counter() - start
        exact, inside, held = (sum(each[index] for each in found) for index in (1, 2, 3))
        needed = 11 if path.name == "vram_sb3.json" else round(REQUIRED_EXACT * len(rows))
        failed |= exact < needed or inside < len(rows) or held < len(rows)
        half = [row for row in rows if "bfloat16" in json.dumps(row) or "bf16" in row["name"]]
        again = [
            cells(f"{row['name']}, by cuDNN", row, peaks)
            for row, peaks in zip(half, predicted(half, v8_off=False), strict=True)
        ]
        failed |= not all(each[3] for each in again)
        table = [each[0] for each in (*found, *again)]
        table.append([
            f"{len(rows)} runs", "", "", f"{exact} exact (≥ {needed})", "", f"{inside} inside (all), {seconds:.0f} s",
            f"{held} (all)",
        ])  # fmt: skip
        columns = [
            "run", "predicted reserved", "real reserved", "exact", "allocated, off by", "within limits", "in its band",
        ]  # fmt: skip
        command = "make bench-vram ARGS=--held-out" if path in HELD_OUT else "make bench-vram"
        write_section(f"GPU memory: {path.name}", columns, table, command)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
