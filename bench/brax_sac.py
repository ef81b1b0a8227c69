"""Whether brax's SAC learns by `legroom train`, and ends with the same bits where it was killed on the way.

Two small tasks on a CPU: a point that has to be held in the middle (compiled in seconds), and
the pendulum on a cart of brax's own. It learns if the return of brax's evaluation at the end is well above the one
before the first update; then the same training, killed by SIGKILL once and resumed, must end with the same parameters.

    python -m bench.brax_sac [--tasks point,pendulum] [--seeds 1,2]     # minutes for each
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from brax.envs.base import Env, State

from bench.results import write_section

GROWTH = 3.0
RUN = """
legroom: 1
backend: brax
algo: SAC
env: {id: "%(env)s", n_envs: 64}
eval: {n_envs: 32}
policy: {kwargs: {hidden_layer_sizes: [%(width)d, %(width)d]}}
hyperparams:
  {episode_length: %(length)d, batch_size: 128, grad_updates_per_step: %(updates)d, learning_rate: 0.001,
   discounting: 0.97, reward_scaling: 30, min_replay_size: 1024, max_replay_size: 32768, normalize_observations: true}
checkpoint: {every: 4096}
total_timesteps: 41000
"""
TASKS = {
    "point": {"env": "bench.brax_sac:Point", "width": 32, "length": 200, "updates": 8},
    "pendulum": {"env": "inverted_pendulum", "width": 64, "length": 500, "updates": 16},
}


class Point(Env):
    """Each step moves it 5 % further from the middle; an episode ends when it is lost, after 20 steps or so."""

    def reset(self, rng: jax.Array) -> State:
        at, zero = jax.random.uniform(rng, (2,), minval=-1.0, maxval=1.0), jnp.zeros(())
        return State({"at": at}, at, zero, zero, {}, {})

    def step(self, state: State, action: jax.Array) -> State:
        at = 1.05 * state.pipeline_state["at"] + 0.1 * jnp.tanh(action)
        distance = jnp.linalg.norm(at)
        lost = (distance > 2).astype(jnp.float32)
        return state.replace(pipeline_state={"at": at}, obs=at, reward=1 - distance / 2, done=lost)

    @property
    def observation_size(self) -> int:
        return 2

    @property
    def action_size(self) -> int:
        return 2

    @property
    def backend(self) -> str:
        return "none"


def wait_for_step(out: Path, training: subprocess.Popen[bytes], step: int) -> int:
    """Return the step that was reached, which is this one or a later one.

    Raises:
        RuntimeError: the training ended before.
    """
    while training.poll() is None:
        time.sleep(0.5)
        rows = (out / "progress.csv").read_text().splitlines() if (out / "progress.csv").exists() else []
        names = rows[0].split(",") if rows else []
        reached = [row.split(",")[names.index("time/total_timesteps")] for row in rows[1:]] if names else []
        numbers = [int(float(each)) for each in reached if each]
        if numbers and numbers[-1] >= step:
            return numbers[-1]
    raise RuntimeError(f"ended with {training.returncode} before step {step:,}")


def begin(file: Path, out: Path, seed: int, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "legroom.cli.main", "train", str(file), "--seed", str(seed), "--out", str(out)]
    with (out.parent / f"{out.name}.log").open("ab") as log:
        return subprocess.Popen([*command, *more], stdout=log, stderr=log)


def outcome_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "outcome.json").read_text())
    return found


def asked(task: str, seed: int, folder: Path) -> tuple[list[str], bool]:
    """Return the cells of a task and seed, and whether it learned and ended with the same bits."""
    whole, killed, file = (folder / f"{task}-{seed}-{name}" for name in ("whole", "killed", "run.yaml"))
    file.write_text(RUN % TASKS[task])
    began = time.monotonic()
    begin(file, whole, seed).wait()
    minutes = (time.monotonic() - began) / 60
    expected = outcome_of(whole)
    training = begin(file, killed, seed)
    at = wait_for_step(killed, training, random.Random(seed).randint(10_000, 30_000))
    training.send_signal(signal.SIGKILL)
    training.wait()
    time.sleep(5)  # the child of a killed command ends by itself
    code = begin(file, killed, seed, "--resume").wait()
    log = (folder / f"{killed.name}.log").read_text()
    resumed = [line for line in log.splitlines() if line.startswith("resuming from step")]
    found, score = outcome_of(killed), expected["score"]
    before, after = score["first_eval_reward"], score["eval_reward"]
    same = found["parameters_sha256"] == expected["parameters_sha256"]
    good = code == 0 and same and after >= GROWTH * before and len(resumed) == 1
    return [
        f"{expected['timesteps']:,}", f"{before:.0f}", f"{after:.0f}", f"{after / before:.1f}×", f"{at:,}",
        "; ".join(each.removeprefix("resuming from ") for each in resumed),
        f"{expected['parameters_sha256'][:12]} / {found['parameters_sha256'][:12]}", f"{minutes:.1f}",
    ], good  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Whether brax's SAC learns and resumes.")
    parser.add_argument("--tasks", default=",".join(TASKS), help="separated by commas")
    parser.add_argument("--seeds", default="1,2", help="separated by commas")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    rows: list[list[str]] = [["required", "", "", "", "", f">= {GROWTH:g}×", "", "(exact)", "the same", "", ""]]
    failed = False
    with tempfile.TemporaryDirectory(prefix="legroom-sac-") as folder:
        for task in options.tasks.split(","):
            for seed in map(int, options.seeds.split(",")):
                cells, good = asked(task, seed, Path(folder))
                failed |= not good
                rows.append([task, str(seed), *cells, "yes" if good else "NO"])
                print(*rows[-1], sep="  ", flush=True)
    columns = [
        "task", "seed", "steps", "return at first", "at last", "growth", "killed at", "resumed from",
        "parameters_sha256", "minutes", "verdict",
    ]  # fmt: skip
    write_section("brax SAC: learns and resumes", columns, rows, "python -m bench.brax_sac")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
