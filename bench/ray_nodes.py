"""RLlib runs on one machine: predicted against measured memory of Ray's services, the driver and the env runners.

    python -m bench.ray_nodes [--only NAME]

Measured is anonymous memory of all processes, plus each mapped file's pages once, plus the pages that exist of the
object store (`bench.ray_measure`); the prediction, made before Ray starts, counts the same three. PSS itself divides a
library's page with whatever else runs here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from bench.ray_measure import measure
from bench.results import write_section
from legroom.machine import probe
from legroom.model.run import Run
from legroom.predicting.predict import add_up, gather

COMMAND = "python -m bench.ray_nodes"
MOST_ERROR = 0.10
CPUS, RAM, STORE = 8, 6 << 30, 400_000_000

_PIXELS = "bench.pixel_env:Sprites"
SETTINGS: dict[str, tuple[dict[str, Any], int]] = {  # name -> (run, env steps)
    "PPO, numbers, 6 runners x 4": (
        {
            "algo": "PPO",
            "env": {"id": "CartPole-v1", "n_envs": 24, "workers": "subproc", "envs_per_worker": 4},
            "hyperparams": {"n_steps": 128, "batch_size": 256, "n_epochs": 2},
        },
        9_000,
    ),
    "PPO, pictures, 3 runners x 4": (
        {
            "algo": "PPO",
            "env": {"id": _PIXELS, "n_envs": 12, "workers": "subproc", "envs_per_worker": 4},
            "policy": {"name": "CnnPolicy"},
            "hyperparams": {"n_steps": 96, "batch_size": 64, "n_epochs": 1},
        },
        3_456,
    ),
    "DQN, numbers, 4 runners x 8": (
        {
            "algo": "DQN",
            "env": {"id": "CartPole-v1", "n_envs": 32, "workers": "subproc", "envs_per_worker": 8},
            "hyperparams": {"buffer_size": 20_000, "batch_size": 128, "learning_starts": 500, "train_freq": 16},
        },
        22_000,
    ),
    "DQN, pictures, 2 runners x 2": (
        {
            "algo": "DQN",
            "env": {"id": _PIXELS, "n_envs": 4, "workers": "subproc", "envs_per_worker": 2},
            "policy": {"name": "CnnPolicy"},
            "hyperparams": {"buffer_size": 6_000, "batch_size": 32, "learning_starts": 200, "train_freq": 32},
        },
        7_000,
    ),
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Predicted against measured memory of RLlib runs.")
    parser.add_argument("--only", help="settings whose name has this in it; writes no results")
    options = parser.parse_args(arguments)
    rows = []
    for name, (data, steps) in SETTINGS.items():
        if options.only is None or options.only in name:
            rows.append(_row(name, Run.model_validate({"backend": "rllib", "name": name, **data}), steps))
            print(rows[-1], flush=True)
    if options.only is None:
        columns = ["setting", "predicted", "band", "measured", "error", "required", "verdict"]
        write_section("RLlib runs on one machine", columns, rows, COMMAND)
    return 0 if all(row[-1] == "ok" for row in rows) else 1


def _row(name: str, run: Run, steps: int) -> list[str]:
    seen, evidence = gather(run, probe(), device="cpu", trust=True)
    peak = add_up(seen, evidence).host
    (found,) = measure(seen, [{"cpus": CPUS, "memory": RAM, "object_store": STORE}], steps)
    error = peak.nbytes / found.peak - 1
    split = f"{found.peak / 1e6:.0f} MB ({found.anon / 1e6:.0f} own, {found.files / 1e6:.0f} files, "
    split += f"{found.shm / 1e6:.0f} store)"
    parts = ", ".join(f"{role} {nbytes / 1e6:.0f}" for role, nbytes in found.roles.items())
    sys.stderr.write(f"{name}: {parts}\n")
    band = f"{peak.low / 1e6:.0f}–{peak.high / 1e6:.0f} MB"
    return [name, f"{peak.nbytes / 1e6:.0f} MB", band, split, f"{error:+.1%}", f"within {MOST_ERROR:.0%}",
            "ok" if abs(error) <= MOST_ERROR else "MISSED"]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
