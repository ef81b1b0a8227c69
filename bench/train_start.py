"""How much longer `legroom train` takes than a script that does the same with SB3: CartPole, eight environments.

The script makes its environments with `make_vec_env` (DummyVecEnv) and learns; `legroom train` reads the run, predicts,
trains, writes checkpoints and draws. Both are started in turns; medians count. The first prediction of a run traces its
network in a child; it is apart, as it comes once on a machine.

    python -m bench.train_start [REPEATS]
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.results import write_section

SHORT, LONG = 1024, 102_400
MOST_LONGER_S, MOST_RATIO = 2.0, 1.0
SCRIPT = """
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
model = PPO("MlpPolicy", make_vec_env("CartPole-v1", n_envs=8, seed=1), n_steps=128, seed=1, device="cpu")
model.learn({steps})
from hashlib import sha256
arrays = {{name: tensor.numpy() for name, tensor in model.policy.state_dict().items()}}
print(sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest())
"""
RUN = """
algo: PPO
env: {{id: CartPole-v1, n_envs: 8, workers: {workers}}}
hyperparams: {{n_steps: 128}}
total_timesteps: {steps}
seed: 1
device: cpu
"""


def timed(command: list[str], folder: Path) -> tuple[float, str]:
    """Return the seconds that a command takes, and what it prints."""
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - began, done.stdout


def trained(folder: Path) -> tuple[float, str]:
    """Return the seconds of `legroom train`, and the hash of what it learnt."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    took, _ = timed([sys.executable, "-m", "legroom", "train", "run.yaml", "--out", "out"], folder)
    return took, json.loads((folder / "out" / "outcome.json").read_text())["parameters_sha256"]


def main() -> int:
    repeats, table, good = int(sys.argv[1]) if len(sys.argv) > 1 else 5, [], True
    for steps, workers in ((SHORT, "dummy"), (LONG, "dummy"), (LONG, "subproc")):
        with tempfile.TemporaryDirectory(prefix="legroom-start-") as name:
            folder = Path(name)
            (folder / "script.py").write_text(SCRIPT.format(steps=steps))
            (folder / "run.yaml").write_text(RUN.format(steps=steps, workers=workers))
            first = trained(folder)[0] if steps == SHORT else None
            pairs = [(timed([sys.executable, "script.py"], folder), trained(folder)) for _ in range(repeats)]
        plain, ours = (statistics.median(pair[side][0] for pair in pairs) for side in (0, 1))
        ratio = statistics.median(pair[1][0] / pair[0][0] for pair in pairs)
        same = all(pair[0][1].strip() == pair[1][1] for pair in pairs)
        fine = (ours - plain <= MOST_LONGER_S if steps == SHORT else ratio <= MOST_RATIO) and same
        good &= fine
        table.append([
            f"{steps:,} steps, workers: {workers}", f"{plain:.1f} s", f"{ours:.1f} s", f"{ours - plain:+.1f} s",
            f"{ratio:.2f}", "–" if first is None else f"{first:.1f} s", "same" if same else "DIFFERENT",
            "ok" if fine else "FALLS SHORT",
        ])  # fmt: skip
        print(*table[-1], sep=" | ", flush=True)
    columns = [
        "PPO, CartPole × 8",
        "script",
        "train",
        "longer (≤ 2 s)",
        "ratio (≤ 1.0)",
        "first time",
        "hash",
        "verdict",
    ]
    write_section(f"legroom train beside a script (median of {repeats})", columns, table, "python -m bench.train_start")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
