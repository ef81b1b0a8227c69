"""Measured process of `backends.rllib.ray_base`: a real Ray with one env runner that reports the memory of every role.

    python src/legroom/backends/rllib/base_child.py ray

Trains CartPole with the smallest networks for two iterations, as `legroom train --backend rllib` would; what is left is
the libraries. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
if __name__ == "__main__":  # run by its path: the folder of this file has modules named like the standard library's
    sys.path[0] = str(Path(__file__).parents[3])

from legroom.backends.rllib.config import building, make_config
from legroom.backends.rllib.translation import rllib_plan
from legroom.cluster.node_memory import anonymous_nbytes, node_memory
from legroom.cluster.session import ray_session
from legroom.machine.temporary_folder import temporary_folder
from legroom.machine.tree import descendants
from legroom.model.run import EnvSpec, Run

STORE_NBYTES = 80_000_000
RUN = Run(
    algo="PPO",
    env=EnvSpec(id="CartPole-v1"),
    backend="rllib",
    hyperparams={"n_steps": 64, "batch_size": 32, "n_epochs": 1},
)
ROLES = {  # what a process's command line has in it -> its role; Ray's workers set their titles
    "EnvRunner": "runner", "gcs_server": "head", "autoscaler": "head", "dashboard/dashboard.py": "head",
    "raylet/raylet": "node", "DashboardAgent": "node", "RuntimeEnvAgent": "node", "log_monitor": "log_monitor",
}  # fmt: skip


def measure() -> dict[str, int]:
    """Return bytes by role, and of mapped libraries."""
    plan = rllib_plan(RUN)
    with (
        temporary_folder("base") as folder,
        ray_session(num_cpus=2, object_store_nbytes=STORE_NBYTES),
        building(folder, None),
    ):
        algorithm = make_config(RUN, plan, "cpu").build_algo()
        for _ in range(2):
            algorithm.train()
        figures = by_role()
        algorithm.stop()
    return figures


def by_role() -> dict[str, int]:
    """Return the figures of this process and everything it has started."""
    figures = {"head": 0, "node": 0, "log_monitor": 0, "runner": 0}
    everything = []
    for pid in descendants(os.getpid()):
        role = "driver" if pid == os.getpid() else _role(pid)
        if role is None:
            continue
        everything.append(pid)
        figures[role] = figures.get(role, 0) + anonymous_nbytes(pid)
    return figures | {"files": node_memory(everything).files}


def _role(pid: int) -> str | None:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return None
    program = " ".join(command.split(" --")[0].split()[:4])  # arguments name other programs' files
    return next((role for text, role in ROLES.items() if text in program), None)


if __name__ == "__main__":
    print(json.dumps(measure()))  # noqa: T201
