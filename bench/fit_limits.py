"""Twelve random runs, fitted to random budgets and trained under a limit equal to the budget: do all of them end well?

Each run is made by chance (algorithm, observations, buffers, workers), its budget too: below its need where `fit` has
to turn knobs, above it where `--grow` has to use what is free. `legroom fit` plans, as a user would call it, and the
plan is trained, workers and all, in a cgroup (or under a watchdog) of exactly the budget.

    python -m bench.fit_limits [CASE...] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.limits import Limited, run_limited
from bench.results import write_section
from legroom.backends.base import algorithm_of
from legroom.backends.sb3.stored import rollout_samples
from legroom.machine.probing import probe
from legroom.model.learner import TrainTask
from legroom.model.run import Run
from legroom.predicting.predict import predict
from legroom.reading import run_from_dict
from legroom.rendering.run_file import run_file
from legroom.units import MIB, format_size

CASES = 12
LONGEST_S = 900
USED = 0.85
LEGROOM = str(Path(sys.executable).with_name("legroom"))
ROOT = Path(__file__).parent.parent


def random_case(number: int, seed: int) -> tuple[Run, int, bool]:
    """Return a run, its budget in bytes, and whether it is to grow; odd cases grow."""
    rng = random.Random(seed * 1000 + number)
    grow = number % 2 == 1
    run = _run(rng, number)
    need = predict(run, probe(), mode="arithmetic", device="cpu").host.nbytes
    factor = rng.uniform(1.3, 2.2) if grow else rng.uniform(0.4, 0.8)
    least = 520 * MIB  # the libraries alone take 350
    return run, max(int(need * factor), least), grow


def _run(rng: random.Random, number: int) -> Run:
    algo = rng.choice(("PPO", "PPO", "A2C", "MaskablePPO", "DQN", "SAC", "TD3"))
    noise = rng.choice((0.02, 0.2, 1.0))
    action = {"type": "box", "shape": [4]} if algo in ("SAC", "TD3") else {"type": "discrete", "n": 6}
    kind = rng.choice(("pixels", "vector", "dict") if algo not in ("SAC", "TD3") else ("vector", "dict"))
    side = rng.choice((48, 64, 84))
    image = {"type": "box", "shape": [side, side, rng.choice((1, 3))], "dtype": "uint8"}
    observation: dict[str, Any] = {
        "pixels": image,
        "vector": {"type": "box", "shape": [rng.choice((2_000, 8_000))]},
        "dict": {"type": "dict", "spaces": {"image": image, "state": {"type": "box", "shape": [30]}}},
    }[kind]
    policy = {"pixels": "CnnPolicy", "vector": "MlpPolicy", "dict": "MultiInputPolicy"}[kind]
    each = sum(_nbytes(leaf) for leaf in observation.get("spaces", {"": observation}).values())
    envs, stored = rng.choice((1, 2, 4)), rng.uniform(150e6, 500e6)
    hyperparams: dict[str, Any] = {}
    if algo in ("PPO", "MaskablePPO"):
        steps = max(int(stored / each / envs) // 64 * 64, 64)
        hyperparams = {"n_steps": steps, "batch_size": rng.choice((64, 256)), "n_epochs": 1}
        hyperparams["batch_size"] = min(hyperparams["batch_size"], steps)
        total = 100 * steps * envs
    elif algo == "A2C":
        hyperparams = {"n_steps": rng.choice((200, 400))}
        total = 10_000 * hyperparams["n_steps"] * envs
    else:
        size = int(stored / each / 2)
        hyperparams = {"buffer_size": size, "batch_size": 64, "train_freq": 100, "gradient_steps": 1}
        hyperparams["learning_starts"] = 500
        total = size * 10
    return run_from_dict({
        "name": f"case{number}-{algo.lower()}-{kind}",
        "algo": algo,
        "env": {
            "id": "bench.envs:FrameEnv",
            "kwargs": {"observation": observation, "action": action, "noise": noise},
            "n_envs": envs,
            "workers": rng.choice(("dummy", "subproc")) if envs > 1 else "dummy",
            "spaces": {"observation": observation, "action": action},
        },
        "policy": {"name": policy},
        "hyperparams": hyperparams,
        "total_timesteps": total,
        "seed": 0,
        "device": "cpu",
    })  # fmt: skip


def _short(run: Run) -> Run:
    """Return the run with a total that shows its peak: a few rollouts, or a replay buffer that is full."""
    if algorithm_of(run).family == "on-policy":
        return run.replace(total_timesteps=(2 if "batch_size" in run.hyperparams else 8) * rollout_samples(run))
    return run.replace(total_timesteps=min(int(run.hyperparams["buffer_size"] * 1.1), run.total_timesteps or 0))


def _nbytes(leaf: dict[str, Any]) -> int:
    size = 1
    for n in leaf["shape"]:
        size *= n
    return size * (1 if leaf.get("dtype") == "uint8" else 4)


def trained(run: Run, budget: int, folder: Path) -> Limited:
    """Train the run's child, as `legroom train` starts it, inside the limit."""
    out = folder / "out"
    out.mkdir()
    assert run.total_timesteps is not None
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        TrainTask(run, str(out), "cpu", run.total_timesteps, nowhere).write(folder / "task.json")
        with (folder / "log").open("wb") as log:
            return run_limited(
                [sys.executable, "-m", "legroom.training.child", str(folder / "task.json")],
                budget,
                longest_s=LONGEST_S,
                pass_fds=(nowhere,),
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            )
    finally:
        os.close(nowhere)


def measure(number: int, seed: int) -> tuple[list[str], bool]:
    """Return the row of one case, and whether it is as required."""
    run, budget, grow = random_case(number, seed)
    with tempfile.TemporaryDirectory(prefix="legroom-fit-") as name:
        folder = Path(name)
        (folder / "run.yaml").write_text(run_file(run))
        command = [LEGROOM, "fit", str(folder / "run.yaml"), "--ram", str(budget), "--json", "--cpu-only"]
        told = subprocess.run(
            [*command, *(["--grow"] if grow else [])],
            capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
        )  # fmt: skip
        if told.returncode:
            return [run.name, format_size(budget), "-", f"fit: {(told.stderr or told.stdout)[-80:]}"], False
        plan = json.loads(told.stdout)
        fitted = Run.model_validate({**plan["run"], "name": run.name})
        ended = trained(_short(fitted), budget, folder)
        log = (folder / "log").read_text(errors="replace").strip().splitlines()
    before, after = plan["before"]["host"], plan["after"]["host"]
    used = ended.pss_peak / budget
    good = ended.exit_code == 0 and used <= 1 and (not grow or used >= USED)
    knobs = ", ".join(f"{knob['name'].partition('.')[2]}={knob['to']}" for knob in plan["knobs"]) or "none"
    how = "ended well" if ended.exit_code == 0 else f"exit {ended.exit_code}: {log[-1] if log else ''}"
    cgroup = "-" if ended.cgroup_peak is None else format_size(ended.cgroup_peak)
    return [
        run.name, format_size(budget), format_size(before["peak"]), knobs, "yes" if grow else "no",
        format_size(after["peak"]), format_size(after["band"][1]), format_size(ended.pss_peak), f"{used:.0%}", cgroup,
        f"{how}, {ended.seconds:.0f} s",
    ], good  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", type=int)
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    numbers = arguments.cases or list(range(CASES))
    rows, good = [], 0
    for number in numbers:
        row, well = measure(number, arguments.seed)
        print(" | ".join(row), "" if well else "  <-- NOT AS REQUIRED", flush=True)
        rows.append(row)
        good += well
    columns = ["run", "budget = limit", "as written", "knobs", "--grow", "predicted", "at most", "PSS peak", "used",
               "cgroup peak", "end"]  # fmt: skip
    print(f"required: {len(numbers)} of {len(numbers)} end well, inside, and --grow uses {USED:.0%}; measured: {good}")
    if len(numbers) == CASES:
        rows.append([f"{good} of {CASES} as required", *[""] * (len(columns) - 1)])
        rows = [[*row, *[""] * (len(columns) - len(row))] for row in rows]
        write_section("Fitted runs under a limit equal to the budget", columns, rows, "make bench-fit-limits")
    return 0 if good == len(numbers) else 1


if __name__ == "__main__":
    sys.exit(main())
