"""`legroom train` against its own prediction, and the same runs as scripts: what it has in the process beside SB3.

    pip install -e '.[bench]' -c constraints.txt
    python -m bench.accuracy_own

Beside SB3 are its modules, its threads, and what writes checkpoints; `backends/sb3/bill/runtime.py` has the figure. The
process that supervises is another one, which is not counted here.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.accuracy_heldout import LEGROOM, Case, measured, predicted
from bench.results import write_section

MB = 1e6
# algorithm, package, environment, how many and where, hyperparameters, policy_kwargs, steps
CONTRIB, SB3 = "sb3_contrib", "stable_baselines3"
RUNS: tuple[tuple[str, str, str, int, str, dict[str, Any], dict[str, Any], int], ...] = (
    ("PPO", SB3, "CartPole-v1", 1, "dummy", {"n_steps": 256}, {}, 1024),
    ("PPO", SB3, "Hopper-v5", 1, "dummy", {"n_steps": 256}, {}, 1024),
    ("DQN", SB3, "CartPole-v1", 1, "dummy", {"learning_starts": 200, "buffer_size": 50_000}, {}, 1000),
    ("SAC", SB3, "HalfCheetah-v5", 1, "dummy", {"learning_starts": 100}, {}, 260),
    ("A2C", SB3, "LunarLander-v3", 4, "dummy", {"n_steps": 32}, {}, 2048),
    ("TD3", SB3, "Pendulum-v1", 1, "dummy", {"learning_starts": 100, "buffer_size": 20_000}, {}, 400),
    ("TQC", CONTRIB, "BipedalWalker-v3", 1, "dummy", {"learning_starts": 100, "buffer_size": 50_000},
     {"net_arch": [400, 300]}, 220),
    ("QRDQN", CONTRIB, "LunarLander-v3", 1, "dummy", {"learning_starts": 200, "buffer_size": 50_000}, {}, 800),
    ("PPO", SB3, "Walker2d-v5", 2, "subproc", {"n_steps": 256, "batch_size": 128, "n_epochs": 2}, {}, 1024),
    ("PPO", SB3, "LunarLander-v3", 4, "light", {"n_steps": 256, "batch_size": 128, "n_epochs": 2}, {}, 2048),
)  # fmt: skip
SECTION = "legroom train against its own prediction"
COLUMNS = ["run (MB)", "predicted", "between", "legroom train", "error", "in band", "as a script", "difference"]
SCRIPT = """
from {package} import {algo}
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

if __name__ == "__main__":
    env = make_vec_env("{env}", n_envs={n_envs}{workers})
    {algo}("MlpPolicy", env, device="cpu", policy_kwargs={policy}, **{arguments}).learn({steps})
"""


def main() -> int:
    rows, taken, errors, inside = [], [], [], 0
    for algo, package, env, n_envs, workers, arguments, policy, steps in RUNS:
        with tempfile.TemporaryDirectory(prefix="own-") as name:
            folder = Path(name)
            vec_env = ", vec_env_cls=SubprocVecEnv" if workers == "subproc" else ""
            (folder / "plain.py").write_text(
                SCRIPT.format(
                    algo=algo, package=package, env=env, n_envs=n_envs, workers=vec_env, policy=policy or None,
                    arguments=arguments, steps=steps,
                )
            )  # fmt: skip
            run = {
                "legroom": 1, "algo": algo, "env": {"id": env, "n_envs": n_envs, "workers": workers},
                "policy": {"kwargs": policy}, "hyperparams": arguments, "total_timesteps": steps, "device": "cpu",
            }  # fmt: skip
            (folder / "run.json").write_text(json.dumps(run))
            command = [*LEGROOM, "train", "run.json", "--out", "trained", "--plain", "--retries", "0", "--seed", "1"]
            case = Case({}, ["run.json"], command, supervised=True)
            said = predicted(case, folder)
            ours = measured(case, folder)
            # SB3 has no torch-free workers, so that no script is like it
            script = Case({}, ["plain.py"], [sys.executable, "plain.py"])
            plain = measured(script, folder) if workers != "light" else None
        if said is None or ours is None:
            return 1
        errors.append(said.nbytes / ours - 1)
        inside += said.holds(ours)
        taken += [ours - plain] if plain is not None else []
        rows.append([
            f"{algo}, {env}, {n_envs} {workers}", f"{said.nbytes / MB:,.0f}",
            f"{said.low / MB:,.0f}-{said.high / MB:,.0f}", f"{ours / MB:,.0f}", f"{errors[-1]:+.1%}",
            "yes" if said.holds(ours) else "NO",
            *(("", "") if plain is None else (f"{plain / MB:,.0f}", f"{(ours - plain) / MB:.1f}")),
        ])  # fmt: skip
        print("  ".join(rows[-1]), flush=True)
        sizes = [abs(error) for error in errors]
        said_of_all = f"{len(rows)} of {len(RUNS)} runs: median {statistics.median(sizes):.1%}, worst {max(sizes):.1%}"
        last = [f"{said_of_all}, {inside} inside", *[""] * 6, f"mean {statistics.mean(taken) / MB:.1f}"]
        write_section(SECTION, COLUMNS, [*rows, last], "python -m bench.accuracy_own")  # nothing is lost if cut short
    return 0


if __name__ == "__main__":
    sys.exit(main())
