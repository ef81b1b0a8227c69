"""A study of 200 random trials under 4 GiB: what does not fit is pruned, and does the limit kill any of the others?

Values are suggested by chance over ranges of which most do not fit. What is not pruned would take hours to run in full,
so a sample trains for real in a cgroup of 4 GiB, until its buffer is full and has been learned from: those that come
nearest to the limit, and others by chance. Run it where optuna is installed.

    python -m bench.tuner_trials [--real N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from bench.limits import run_limited
from bench.results import write_section
from legroom.units import GIB, format_size

TRIALS, LIMIT, SEED = 200, 4 * GIB, 28
ROOT = Path(__file__).parent.parent
SPACE = {"observation": {"type": "box", "shape": [8_000]}}


def make_env(algo: str) -> Any:
    from bench.fit_envs import FrameEnv

    action = {"type": "box", "shape": [4]} if algo == "SAC" else {"type": "discrete", "n": 6}
    return FrameEnv(observation=SPACE["observation"], action=action, noise=0.2)


def suggested(trial: Any) -> tuple[str, int, dict[str, Any]]:
    """Return an algorithm, a number of environments, and its constructor's arguments."""
    algo = trial.suggest_categorical("algo", ["PPO", "DQN", "SAC"])
    width = trial.suggest_int("width", 32, 1024, log=True)
    values: dict[str, Any] = {"policy_kwargs": {"net_arch": [width, width]}, "device": "cpu"}
    values["batch_size"] = trial.suggest_int("batch_size", 16, 4096, log=True)
    if algo == "PPO":
        values["n_steps"] = trial.suggest_int("n_steps", 64, 65_536, log=True)
        return algo, trial.suggest_int("n_envs", 1, 16, log=True), values | {"n_epochs": 1}
    values["buffer_size"] = trial.suggest_int("buffer_size", 1_000, 1_000_000, log=True)
    return algo, 1, values | {"train_freq": 200, "learning_starts": 100}


def study() -> tuple[list[dict[str, Any]], int, float]:
    """Return the trials that were not pruned, how many were, and the seconds a question took."""
    import optuna
    import stable_baselines3
    from stable_baselines3.common.vec_env import DummyVecEnv

    from legroom.optuna import HOST, PruneUnfit

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    unfit, asked, left = PruneUnfit(LIMIT), [], []

    def objective(trial: Any) -> float:
        algo, n_envs, values = suggested(trial)
        env = DummyVecEnv([lambda: make_env(algo)] * n_envs)
        began = time.perf_counter()
        try:
            unfit(trial, getattr(stable_baselines3, algo), "MlpPolicy", env, **values)
        finally:
            asked.append(time.perf_counter() - began)
        left.append({"algo": algo, "n_envs": n_envs, "values": values, "need": trial.user_attrs[HOST]})
        return 0.0

    optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=SEED)).optimize(objective, n_trials=TRIALS)
    return left, TRIALS - len(left), sorted(asked)[len(asked) // 2]


def train(trial: dict[str, Any]) -> None:
    """Train one trial until its buffer is full, in this process."""
    import stable_baselines3
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = DummyVecEnv([lambda: make_env(trial["algo"])] * trial["n_envs"])
    values = trial["values"]
    total = values["n_steps"] * trial["n_envs"] + 1 if "n_steps" in values else int(values["buffer_size"] * 1.05)
    getattr(stable_baselines3, trial["algo"])("MlpPolicy", env, **values).learn(max(total, 300))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=int, default=10)
    parser.add_argument("--trial")
    arguments = parser.parse_args()
    if arguments.trial:
        train(json.loads(arguments.trial))
        return 0
    left, pruned, seconds = study()
    nearest = sorted(left, key=lambda trial: -trial["need"])[: arguments.real // 2]
    others = random.Random(SEED).sample([t for t in left if t not in nearest], arguments.real - len(nearest))
    rows, killed = [], 0
    for trial in [*nearest, *others]:
        ended = run_limited(
            [sys.executable, "-m", "bench.tuner_trials", "--trial", json.dumps(trial)], LIMIT, longest_s=900, cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )  # fmt: skip
        killed += ended.killed_by_limit
        values = {key: value for key, value in trial["values"].items() if key not in ("device", "n_epochs")}
        end = "killed" if ended.killed_by_limit else f"exit {ended.exit_code}, {ended.seconds:.0f} s"
        row = [trial["algo"], trial["n_envs"], values, format_size(trial["need"]), format_size(ended.pss_peak), end]
        print(" | ".join(map(str, row)), flush=True)
        rows.append(row)
    told = f"{TRIALS} trials: {pruned} pruned, {seconds * 1000:.0f} ms each (median); {len(rows)} run, {killed} killed"
    rows.append([told, "", "", "", "", ""])
    columns = ["algorithm", "envs", "values", "at most", "PSS peak", f"under {format_size(LIMIT)}"]
    write_section("Tuning: a study under a limit", columns, rows, "make bench-tuner-trials")
    return 1 if killed else 0


if __name__ == "__main__":
    sys.exit(main())
