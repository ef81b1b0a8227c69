"""The named runs that ship with legroom: `mine:full`, `robot:gpu_12gb`, ...

A run is a YAML file in `<workload>/runs/`. The order here is the order of tables, and the first column of a
comparison; a file that the table does not name is listed after those that it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# The package is always a directory (setuptools installs it unzipped); importlib.resources would cost 10 ms at start.
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Workload:
    """A reference workload; `default` is the run that its bare name means where a command takes one run."""

    name: str
    default: str
    runs: tuple[str, ...]


WORKLOADS: tuple[Workload, ...] = (
    Workload("mine", "full", ("full", "memory_optimized", "ultra_light", "small")),
    Workload("fire", "original", ("original", "medium", "low", "learn")),
    Workload("ninja", "default", ("default", "parallel", "learn")),
    Workload("gameboy", "default", ("default", "fitted", "learn")),
    Workload(
        "robot", "default", ("quick", "default", "production", "gpu_8gb", "gpu_12gb", "gpu_16gb", "gpu_24gb")
    ),
)  # fmt: skip
# The sizes that extractors of the workloads come in, largest first, as the arguments that make them.
EXTRACTOR_SIZES: dict[str, tuple[dict[str, object], ...]] = {
    "legroom_workloads.mine:Cnn3d": ({"size": "full"}, {"size": "small"}, {"size": "tiny"}),
    "legroom_workloads.fire:FireNet": (
        {"attention": False},
        {"attention": False, "multi_scale": False},
        {"attention": False, "multi_scale": False, "residual": False},
    ),
}
_BY_NAME = {workload.name: workload for workload in WORKLOADS}


def find_workload(name: str) -> Workload | None:
    """Return the workload called `name`, None when there is none."""
    return _BY_NAME.get(name)


def run_files(workload: str) -> dict[str, Path]:
    """Return the run files of `workload` by run name, in the order of the table."""
    files = {path.stem: path for path in sorted((_HERE / workload / "runs").glob("*.yaml"))}
    named = [run for run in _BY_NAME[workload].runs if run in files]
    return {run: files[run] for run in (*named, *(run for run in files if run not in named))}


def run_names() -> list[str]:
    """Return every named run as `workload:run`."""
    return [f"{workload.name}:{run}" for workload in WORKLOADS for run in run_files(workload.name)]
