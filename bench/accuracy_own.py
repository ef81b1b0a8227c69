"""What `legroom train` has in the process that trains, beside SB3: the same run with it and as a script.

    pip install -e '.[sb3,bench]' -c constraints.txt
    python -m bench.accuracy_own

Its modules, its threads, and what writes checkpoints; `backends/sb3/bill/runtime.py` has the figure. The process that
supervises is another one, which is not counted here.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from bench.accuracy_heldout import LEGROOM, Case, measured
from bench.results import write_section

MB = 1e6
RUNS = (
    ("PPO", "CartPole-v1", {"n_steps": 256}, 1024),
    ("PPO", "Hopper-v5", {"n_steps": 256}, 1024),
    ("DQN", "CartPole-v1", {"learning_starts": 200, "buffer_size": 50_000}, 1000),
    ("SAC", "HalfCheetah-v5", {"learning_starts": 100}, 260),
)
SCRIPT = """
from stable_baselines3 import {algo}
from stable_baselines3.common.env_util import make_vec_env

{algo}("MlpPolicy", make_vec_env("{env}"), device="cpu", **{arguments}).learn({steps})
"""


def main() -> int:
    rows, found = [], []
    for algo, env, arguments, steps in RUNS:
        with tempfile.TemporaryDirectory(prefix="own-") as folder:
            (Path(folder) / "plain.py").write_text(SCRIPT.format(algo=algo, env=env, arguments=arguments, steps=steps))
            run = {"legroom": 1, "algo": algo, "env": {"id": env}, "hyperparams": arguments, "total_timesteps": steps}
            (Path(folder) / "run.json").write_text(json.dumps(run))
            command = [*LEGROOM, "train", "run.json", "--out", "trained", "--plain", "--retries", "0", "--seed", "1"]
            plain = measured(Case({}, ["plain.py"], [sys.executable, "plain.py"]), Path(folder))
            ours = measured(Case({}, ["run.json"], [*command, "--device", "cpu"], supervised=True), Path(folder))
        if plain is None or ours is None:
            return 1
        found.append(ours - plain)
        rows.append([f"{algo}, {env}", *(f"{nbytes / MB:.1f}" for nbytes in (plain, ours, ours - plain))])
        print("  ".join(rows[-1]), flush=True)
    rows.append(["mean", "", "", f"{statistics.mean(found) / MB:.1f}"])
    columns = ["run (MB)", "as a script", "legroom train", "difference"]
    write_section("What legroom train itself takes", columns, rows, "python -m bench.accuracy_own")
    return 0


if __name__ == "__main__":
    sys.exit(main())
