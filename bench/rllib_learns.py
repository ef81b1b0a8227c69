"""Whether what is trained on RLlib learns: the same run files trained by SB3 and by RLlib, for the same steps.

CartPole-v1 by PPO must earn at least 450 in the mean of its last 100 episodes on RLlib. A small mine by MaskablePPO,
its masks honoured, is judged by the net present value of its schedule: it must be worth more than the mean of random
schedules. What SB3 makes of the same file stands beside it; the two draw different random numbers.

    python -m bench.rllib_learns [--only cartpole|mine] [--seed 1] [--to FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from bench.results import RESULTS, write_section

LEAST_CARTPOLE = 450.0
RUNS: dict[str, dict[str, Any]] = {
    # rl-baselines3-zoo's settings for PPO on CartPole-v1, but for the clip range, which RLlib has no schedule for
    "cartpole": {
        "legroom": 1,
        "algo": "PPO",
        "env": {"id": "CartPole-v1", "n_envs": 8, "workers": "subproc", "envs_per_worker": 4},
        "hyperparams": {
            "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
            "learning_rate": "lin_0.001", "clip_range": 0.2,
        },
        "total_timesteps": 100_000,
    },
    # mine:ultra_light on a smaller grid, with shorter rollouts of two environments
    "mine": {
        "legroom": 1,
        "algo": "MaskablePPO",
        "env": {
            "id": "legroom_workloads.mine:MineEnv", "kwargs": {"model": "sample"}, "grid": [10, 10, 5],
            "n_envs": 2, "workers": "subproc",
        },
        "policy": {
            "name": "CnnPolicy",
            "kwargs": {"net_arch": [64, 64], "normalize_images": False},
            "features_extractor": "legroom_workloads.mine:Cnn3d",
            "features_extractor_kwargs": {"size": "tiny"},
        },
        "hyperparams": {
            "n_steps": 128, "batch_size": 32, "n_epochs": 10, "learning_rate": 3.0e-4, "ent_coef": 0.01,
            "target_kl": 0.01,
        },
        "total_timesteps": 20_480,
    },
}  # fmt: skip
COLUMNS = ("run", "backend", "steps", "required", "measured", "beside it", "steps/s", "minutes", "verdict")


def main() -> int:
    parser = argparse.ArgumentParser(description="Whether runs learn on RLlib as they do with SB3.")
    parser.add_argument("--only", choices=tuple(RUNS), help="one of them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--to", type=Path, default=RESULTS, help="the folder of results")
    options = parser.parse_args()
    rows: list[list[Any]] = []
    failed = False
    for name in [options.only] if options.only else RUNS:
        for backend in ("rllib", "sb3"):
            outcome = _train(name, backend, options.seed)
            required, measured, beside, good = _judge(name, outcome)
            failed |= backend == "rllib" and not good
            steps, seconds = outcome["timesteps"], outcome["seconds"]
            verdict = ("yes" if good else "NO") if backend == "rllib" else "beside it"
            required = required if backend == "rllib" else "–"
            figures = [f"{steps:,}", required, measured, beside, f"{steps / seconds:.0f}", f"{seconds / 60:.1f}"]
            rows.append([name, backend, *figures, verdict])
            print(*rows[-1], sep="  ", flush=True)
    title, command = "RLlib: the same runs learn", "python -m bench.rllib_learns"
    if options.only:
        title, command = f"{title} ({options.only})", f"{command} --only {options.only}"
    write_section(title, COLUMNS, rows, command, folder=options.to)
    return 1 if failed else 0


def _judge(name: str, outcome: dict[str, Any]) -> tuple[str, str, str, bool]:
    score = outcome["score"]
    if name == "cartpole":
        reward = score["reward_mean"]
        return f">= {LEAST_CARTPOLE:.0f}", f"{reward:.1f}", f"{score['episodes']:,} episodes", reward >= LEAST_CARTPOLE
    agent, random, greedy = (score[f"{who}_npv_usd"] / 1e6 for who in ("agent", "random", "greedy"))
    return f"> {random:,.0f} M$", f"{agent:,.0f} M$", f"random {random:,.0f}, greedy {greedy:,.0f}", agent > random


def _train(name: str, backend: str, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
        file, out = Path(folder) / f"{name}.yaml", Path(folder) / "run"
        file.write_text(yaml.safe_dump(RUNS[name]))
        command = [sys.executable, "-m", "legroom.cli.main", "train", str(file), "--backend", backend]
        subprocess.run([*command, "--seed", str(seed), "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
        return json.loads((out / "outcome.json").read_text())


if __name__ == "__main__":
    sys.exit(main())
