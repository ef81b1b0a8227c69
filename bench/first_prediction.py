"""Seconds of a first prediction of zoo entries, their environments built and their updates measured; and of the second.

The base figures of the libraries, which are measured once per machine, are there; nothing else is.

    python -m bench.first_prediction

Where other programs run, the clock shows their time too: the processor's is beside it, with the load.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.results import write_section

FIRST_LIMIT_S, AGAIN_LIMIT_S = 15.0, 3.0
ATARI = """
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper
  frame_stack: 4
  policy: 'CnnPolicy'
  n_envs: 8
  n_steps: 128
  n_timesteps: !!float 1e7
  batch_size: 256
"""
ENTRIES = {
    "ppo.yml:ALE/Asteroids-v5": ATARI,
    "sac.yml:Walker2d-v5": "\n  n_timesteps: !!float 1e6\n  policy: 'MlpPolicy'\n  learning_starts: 10000\n",
    "tqc.yml:BipedalWalker-v3": (
        "\n  n_timesteps: !!float 5e5\n  policy: 'MlpPolicy'\n  policy_kwargs: \"dict(net_arch=[400, 300])\"\n"
    ),
    "ppo.yml:Acrobot-v1": "\n  n_envs: 16\n  n_timesteps: !!float 1e6\n  policy: 'MlpPolicy'\n  n_steps: 256\n",
}


def seconds(target: str, folder: Path) -> tuple[float, float]:
    """Return the time of one prediction, by the clock and of the processor.

    Raises:
        RuntimeError: there was none.
    """
    command = [sys.executable, "-m", "legroom.cli.main", "predict", target, "--ram", "64GiB", "--cpu-only", "--json"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not done.stdout:
        raise RuntimeError(f"{target}: {done.stderr.strip()[-300:]}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, spent


def main() -> int:
    rows, good = [], True
    with tempfile.TemporaryDirectory(prefix="first-") as name:
        folder = Path(name)
        (folder / "a2c.yml").write_text("CartPole-v1:\n  n_timesteps: 1000\n  policy: 'MlpPolicy'\n")
        seconds("a2c.yml:CartPole-v1", folder)
        for target, entry in ENTRIES.items():
            file, _, env = target.partition(":")
            (folder / file).write_text(f"{env}:{entry}")
            load = os.getloadavg()[0]
            (first, first_cpu), (again, again_cpu) = seconds(target, folder), seconds(target, folder)
            good &= first <= FIRST_LIMIT_S and again <= AGAIN_LIMIT_S
            rows.append([
                target, f"{first:.1f}", f"{first_cpu:.1f}", f"{again:.1f}", f"{again_cpu:.1f}", f"{load:.1f}",
            ])  # fmt: skip
            print("  ".join(rows[-1]), flush=True)
    columns = ["zoo entry (seconds)", "first, ≤ 15", "processor", "again, ≤ 3", "processor", "load before"]
    write_section("First prediction of a zoo run", columns, rows, "python -m bench.first_prediction")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
