"""What Ray's services and RLlib's processes hold on this machine before they do anything: measured once, then cached.

A child process (`main`) starts a real Ray with one env runner and trains CartPole with the smallest networks for two
iterations, as `legroom train --backend rllib` would; what is left is the libraries. That takes half a minute, so the
figures are kept per set of versions. A prediction by arithmetic never measures: it takes the cached figures, or shipped
ones with a wider error.

Of each kind of process its anonymous memory is counted, and the pages of mapped files once for all of them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from legroom.machine.cache import cache_folder, digest, read_figures, write_json
from legroom.machine.child_process import answer_task, ask_child
from legroom.machine.tree import tree_memory
from legroom.machine.versions import read_versions
from legroom.model.footprint import Known
from legroom.model.run import EnvSpec, Run

LIBRARIES = ("ray", "torch", "stable-baselines3", "gymnasium", "numpy")
TIMEOUT_S = 120.0

# Measured 2026-11-16, Linux x86-64, Python 3.11, ray 2.60.0, torch 2.13.0+cpu, SB3 2.9.2, gymnasium 1.2.2, by
# `ray_figures(measure=True)`, without the dashboard's pages (include_dashboard=False).
SHIPPED = {
    "head": 130_300_000,  # what only the head runs: global control store, autoscaler's monitor, dashboard
    "node": 109_600_000,  # raylet, dashboard agent, runtime environment agent
    "log_monitor": 44_500_000,
    "driver": 387_000_000,  # the training process after a first tiny update, its learner in it
    "runner": 381_900_000,  # an env runner that has sampled a little
    "files": 306_800_000,  # mapped libraries of all of them
}
CUDA_BUILD_MORE = {"driver": 250_000_000, "runner": 130_000_000, "files": 300_000_000}  # torch 2.14.1 with CUDA 13
MEASURED_ERROR, DEFAULT_ERROR = 0.03, 0.10


@dataclass(frozen=True)
class RayFigures:
    """Bytes by role, as in `SHIPPED`, measured on this machine or shipped; and their error, as a share."""

    nbytes: Mapping[str, int]
    known: Known
    error: float


def ray_figures(*, measure: bool = False, device: str = "cpu") -> RayFigures:
    """Return the figures of the installed versions: cached ones, and shipped ones where none are.

    Args:
        measure: measure now if they are not in the cache.
    """
    versions = read_versions(LIBRARIES)
    cpu_build = versions.get("torch", "+cpu").endswith("+cpu")
    path = cache_folder() / f"ray-{digest(sorted(versions.items()), Path(__file__).read_bytes())}.json"
    figures = read_figures(path, SHIPPED)
    if len(figures) < len(SHIPPED) and measure and "ray" in versions and "stable-baselines3" in versions:
        # the GPU's context is an item of its own; no process imports anything from the working directory
        variables = {"CUDA_VISIBLE_DEVICES": "", "PYTHONSAFEPATH": "1"}
        variables["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
        figures = ask_child(__name__, {}, kind="base", timeout_s=TIMEOUT_S, environment=variables).data or {}
        if set(figures) == set(SHIPPED):
            write_json(path, {"figures": figures, "versions": versions})
    if len(figures) == len(SHIPPED) and not (device == "cuda" and cpu_build):
        return RayFigures(figures, Known.MEASURED, MEASURED_ERROR)
    more = CUDA_BUILD_MORE if device == "cuda" or not cpu_build else {}
    shipped = {name: nbytes + more.get(name, 0) for name, nbytes in SHIPPED.items()}
    return RayFigures(shipped, Known.DEFAULT, DEFAULT_ERROR)


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


def main() -> None:
    """Measure, and answer with bytes by role and of mapped libraries."""
    answer_task(lambda task, _: measured(Path(task["folder"])))


def measured(folder: Path) -> dict[str, int]:
    """Return the bytes of this process and everything it has started while RLlib trains."""
    from legroom.backends.rllib.config import building, make_config
    from legroom.backends.rllib.translation import rllib_plan
    from legroom.cluster.session import ray_session

    plan = rllib_plan(RUN)
    with ray_session(num_cpus=2, object_store_nbytes=STORE_NBYTES), building(folder, None):
        algorithm = make_config(RUN, plan, "cpu").build_algo()
        for _ in range(2):
            algorithm.train()
        figures = by_role()
        algorithm.stop()
    return figures


def by_role() -> dict[str, int]:
    """Return the figures of this process and everything it has started."""
    figures = dict.fromkeys(("head", "node", "log_monitor", "runner", "driver"), 0)
    files: dict[str, int] = {}  # by program, whose processes map the same ones
    for pid, memory in tree_memory(os.getpid()).processes.items():
        if (role := _role(pid)) is not None:
            figures[role] += memory.pss - memory.pss_file
            program = str(Path(f"/proc/{pid}/exe").resolve())
            files[program] = max(files.get(program, 0), memory.rss_file)
    return figures | {"files": sum(files.values())}


def _role(pid: int) -> str | None:
    if pid == os.getpid():
        return "driver"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return None
    program = " ".join(command.split(" --")[0].split()[:4])  # arguments name other programs' files
    return next((role for text, role in ROLES.items() if text in program), None)
