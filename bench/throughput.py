"""Wall time of whole trainings with lean storage beside the same ones with SB3's own arrays.

Both trainings of a case live in one process and take turns, a few seconds each, so that a busy moment hits both; the
ratio of a turn counts, and the median of them. The first turn warms up. Environments run in the process. Where memory
happens to lie makes some processes slower than others by a fifth, so each case has several of them.

    python -m bench.throughput [PROCESSES] [CASE...]
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

PROCESSES, TURNS = 3, 4
_MINE = {
    "id": "legroom_workloads.mine:MineEnv", "kwargs": {"model": "sample", "grid": [30, 30, 15]}, "n_envs": 2,
}  # fmt: skip
_TINY = {
    "name": "CnnPolicy",
    "kwargs": {"net_arch": [64, 64], "normalize_images": False},
    "features_extractor": "legroom_workloads.mine:Cnn3d",
    "features_extractor_kwargs": {"size": "tiny"},
}
_PIXELS = {"id": "bench.envs:Sprites", "frame_stack": 4}
_REPLAY = {"buffer_size": 20_000, "learning_starts": 1000}
# by name: the ratio that is required, steps of a turn, and the run
CASES: dict[str, tuple[float, int, dict[str, Any]]] = {
    "pixels: 84×84, 4 frames, PPO, 4 envs × 128": (1.0, 512, {
        "algo": "PPO", "env": {**_PIXELS, "n_envs": 4}, "policy": {"name": "CnnPolicy"},
        "hyperparams": {"n_steps": 128, "batch_size": 128, "n_epochs": 4},
    }),
    "pixels: 84×84, 4 frames, DQN, batch 32 every 4 steps": (1.0, 400, {
        "algo": "DQN", "env": _PIXELS, "policy": {"name": "CnnPolicy"},
        "hyperparams": {**_REPLAY, "batch_size": 32, "train_freq": 4, "target_update_interval": 1000},
    }),
    "pixels: 84×84, 4 frames, DQN, batch 256 every 16 steps": (1.0, 320, {
        "algo": "DQN", "env": _PIXELS, "policy": {"name": "CnnPolicy"},
        "hyperparams": {**_REPLAY, "batch_size": 256, "train_freq": 16, "target_update_interval": 1000},
    }),
    "mine: 17×30×30×15, MaskablePPO, 2 envs × 128": (1.0, 256, {
        "algo": "MaskablePPO", "env": _MINE, "policy": _TINY,
        "hyperparams": {"n_steps": 128, "batch_size": 64, "n_epochs": 2},
    }),
    "vectors: Pendulum, SAC, batch 256": (1.02, 300, {
        "algo": "SAC", "env": {"id": "Pendulum-v1"}, "policy": {"name": "MlpPolicy"}, "hyperparams": {**_REPLAY},
    }),
    "vectors: 376 numbers, SAC, batch 256": (1.02, 200, {
        "algo": "SAC", "env": {"id": "bench.envs:Numbers"}, "policy": {"name": "MlpPolicy"},
        "hyperparams": {**_REPLAY},
    }),
    "vectors: Acrobot, DQN, batch 128 every 4 steps": (1.02, 4000, {
        "algo": "DQN", "env": {"id": "Acrobot-v1"}, "policy": {"name": "MlpPolicy"},
        "hyperparams": {**_REPLAY, "batch_size": 128, "train_freq": 4},
    }),
    "vectors: CartPole, PPO, 8 envs × 256": (1.02, 4096, {
        "algo": "PPO", "env": {"id": "CartPole-v1", "n_envs": 8}, "policy": {"name": "MlpPolicy"},
        "hyperparams": {"n_steps": 256, "batch_size": 64},
    }),
}  # fmt: skip
KINDS = ("plain", "lean")


def measure(name: str) -> dict[str, list[float]]:
    """Return the seconds of each turn of both trainings."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.throughput", "--train", name],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
        cwd=Path(__file__).parent.parent,
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def train(name: str) -> None:
    from legroom.backends.sb3.making import make_model, make_vec_env  # the parent does without torch
    from legroom.model.run import Run

    _, steps, case = CASES[name]
    models: dict[str, Any] = {}
    for kind in KINDS:
        storage = "rollout" if "n_steps" in case["hyperparams"] else "replay"
        data = {**case, "memory": {storage: kind}, "env": {**case["env"], "workers": "dummy"}, "seed": 1}
        run = Run.model_validate(data)
        models[kind] = make_model(run, make_vec_env(run), "cpu")
        models[kind].learn(steps + case["hyperparams"].get("learning_starts", 0))
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(TURNS):
        for kind in KINDS if turn % 2 else KINDS[::-1]:
            began = time.perf_counter()
            models[kind].learn(steps, reset_num_timesteps=False)
            seconds[kind].append(time.perf_counter() - began)
    print(json.dumps(seconds))


def main(processes: int, chosen: list[str]) -> int:
    rows, failed = [], False
    for name, (required, steps, _) in CASES.items():
        if chosen and not any(part in name for part in chosen):
            continue
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(processes):
            for kind, some in measure(name).items():
                seconds[kind] += some
        ratios = [lean / plain for plain, lean in zip(*(seconds[kind] for kind in KINDS), strict=True)]
        ratio = statistics.median(ratios)
        failed |= ratio > required
        mark = "" if ratio <= required else " FALLS SHORT"
        each = [f"{1000 * statistics.median(seconds[kind]) / steps:.2f} ms" for kind in KINDS]
        low, _, high = statistics.quantiles(ratios, n=4)
        rows.append([name, *each, f"≤ {required:.2f}", f"{ratio:.3f}{mark}", f"{low:.2f} to {high:.2f}"])
        print("  ".join(rows[-1]), flush=True)
    columns = [
        "training",
        "SB3's arrays, a step",
        "lean, a step",
        "required",
        f"median of {processes} × {TURNS} turns",
        "half of them",
    ]
    if processes >= PROCESSES and not chosen:
        write_section("Whole trainings with lean storage beside SB3's", columns, rows, "python -m bench.throughput")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2])
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else PROCESSES, sys.argv[2:]))
