"""Steps per second of whole PPO trainings: with lean storage and light workers, against SB3's own, side by side.

Each training runs in a process of its own, collects and learns; the first iteration warms up and does not count. The
two kinds take turns, so that a busy moment hits both; the ratio of a turn counts, and the median of them.

    python -m bench.throughput [TURNS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.results import write_section

TURNS = 5
ITERATIONS = 3  # that count, after the first
_MINE = {
    "id": "legroom_workloads.mine:MineEnv", "kwargs": {"model": "sample", "grid": [30, 30, 15]}, "n_envs": 2,
}  # fmt: skip
_TINY = {
    "name": "CnnPolicy",
    "kwargs": {"net_arch": [64, 64], "normalize_images": False},
    "features_extractor": "legroom_workloads.mine:Cnn3d",
    "features_extractor_kwargs": {"size": "tiny"},
}
CASES: dict[str, tuple[float, dict[str, Any]]] = {
    "pixels: 84×84, 4 frames, PPO, 4 envs × 128": (0.95, {
        "algo": "PPO", "env": {"id": "bench.pixel_env:Sprites", "n_envs": 4, "frame_stack": 4},
        "policy": {"name": "CnnPolicy"}, "hyperparams": {"n_steps": 128, "batch_size": 128, "n_epochs": 4},
    }),
    "mine: 17×30×30×15, MaskablePPO, 2 envs × 256": (1.0, {
        "algo": "MaskablePPO", "env": _MINE, "policy": _TINY,
        "hyperparams": {"n_steps": 256, "batch_size": 64, "n_epochs": 2},
    }),
}  # fmt: skip
KINDS = {
    "SB3": {"memory": {"rollout": "plain"}, "workers": "subproc"},
    "legroom": {"memory": {"rollout": "lean"}, "workers": "light"},
}


def measure(case: dict[str, Any], kind: str) -> float:
    """Return steps per second of one training."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.throughput", "--train", json.dumps([case, kind])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
        cwd=Path(__file__).parent.parent,
    )
    if done.returncode:
        raise SystemExit(f"{kind} failed:\n{done.stderr[-3000:]}")
    return float(done.stdout.split()[-1])


def train(case: dict[str, Any], kind: str) -> None:
    from legroom.backends.sb3.making import make_model, make_vec_env  # the parent does without torch
    from legroom.model.run import Run

    how = KINDS[kind]
    data = {**case, "memory": how["memory"], "env": {**case["env"], "workers": how["workers"]}, "seed": 1}
    run = Run.model_validate(data)
    env = make_vec_env(run)
    model = make_model(run, env, "cpu")
    steps = run.env.n_envs * run.hyperparams["n_steps"]
    model.learn(steps)
    began = time.perf_counter()
    model.learn(ITERATIONS * steps, reset_num_timesteps=False)
    print(ITERATIONS * steps / (time.perf_counter() - began))
    env.close()


def main(turns: int) -> int:
    rows, failed = [], False
    for name, (required, case) in CASES.items():
        ratios, speeds = [], {kind: [] for kind in KINDS}
        for turn in range(turns):
            order = list(KINDS) if turn % 2 else list(KINDS)[::-1]
            now = {kind: measure(case, kind) for kind in order}
            for kind, speed in now.items():
                speeds[kind].append(speed)
            ratios.append(now["legroom"] / now["SB3"])
            print(f"  {name}: {now['SB3']:.1f} and {now['legroom']:.1f} steps/s, {ratios[-1]:.2f}×", flush=True)
        ratio = statistics.median(ratios)
        failed |= ratio < required
        mark = "" if ratio >= required else " FALLS SHORT"
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        medians = [f"{statistics.median(speeds[kind]):.1f}" for kind in KINDS]
        rows.append([name, *medians, f"≥ {required}×", f"{ratio:.2f}×{mark}", spread])
    columns = ["training", "SB3, steps/s", "legroom, steps/s", "required", f"median of {turns}", "spread"]
    if turns >= TURNS:
        write_section(
            "Throughput of PPO with lean storage and light workers", columns, rows, "python -m bench.throughput"
        )
    for row in rows:
        print("  ".join(row))
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(*json.loads(sys.argv[2]))
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS))
