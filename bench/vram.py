"""Predicted GPU memory against the real caching allocator, run by run.

The truth rows say what the allocator of a CUDA build of torch reported for a real SB3 run on a device that executes no
kernels: everything but the context and cuDNN's workspace. Each row becomes a Run and goes the way `legroom predict`
goes. Argument checks of torch.distributions are on, as in users' runs, though they were off when the rows were
recorded: the temporaries they add are small and gone before the peak. That device runs PyTorch with
TORCH_CUDNN_V8_API_DISABLED=1, without which bfloat16 would be convolved by cuDNN; the same is predicted here.

The rows of our own (bench/make_truth.py) are in two halves. The one set aside is run only when it is asked for, so that
nobody tunes to it, and is reported apart.

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
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.predicting.predict import add_up, gather_all
from legroom.units import MIB

HERE = Path(__file__).parent
NAMES = ("vram_sb3.json", "vram_truth.json", "vram_more.json", "vram_own.json")
FILES = tuple(HERE / "data" / name for name in NAMES)
HELD_OUT = HERE / "data" / "vram_own_heldout.json"
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


def main(files: list[str]) -> int:
    os.environ["TORCH_CUDNN_V8_API_DISABLED"] = "1"
    failed = False
    if files == ["--held-out"]:
        files = [str(HELD_OUT)]
    for path in [Path(f) for f in files] or [path for path in FILES if path.exists()]:
        table, exact, inside = [], 0, 0
        rows = json.loads(path.read_text())
        start = time.perf_counter()
        runs = [run_of(row) for row in rows]
        gathered = gather_all(runs, NO_MACHINE, mode="trace", device="cuda", trust=True, values="assume")
        seconds = time.perf_counter() - start
        for row, (run, evidence) in zip(rows, gathered, strict=True):
            peaks = add_up(run, evidence).allocator
            assert peaks is not None
            truth = row["truth"]
            reserved, allocated = truth["peak_reserved"], truth["peak_allocated"]
            hit = peaks.peak_reserved == reserved
            close = (
                abs(peaks.peak_reserved - reserved) <= max(0.03 * reserved, 24 * MIB)
                and abs(peaks.peak_allocated - allocated) <= max(0.01 * allocated, 2 * MIB)
            )  # fmt: skip
            exact, inside = exact + hit, inside + close
            table.append([
                row["name"], f"{peaks.peak_reserved:,}", f"{reserved:,}", "yes" if hit else "no",
                f"{peaks.peak_allocated - allocated:+,}", "yes" if close else "NO",
            ])  # fmt: skip
        needed = 11 if path.name == "vram_sb3.json" else round(REQUIRED_EXACT * len(rows))
        failed |= exact < needed or inside < len(rows)
        table.append([
            f"{len(rows)} runs", "", "", f"{exact} exact (≥ {needed})", "", f"{inside} inside (all), {seconds:.0f} s",
        ])  # fmt: skip
        columns = ["run", "predicted reserved", "real reserved", "exact", "allocated, off by", "within limits"]
        command = "make bench-vram-held-out" if path == HELD_OUT else "make bench-vram"
        write_section(f"GPU memory: {path.name}", columns, table, command)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
