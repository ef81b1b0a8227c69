"""What Ray's services and RLlib's processes hold on this machine before they do anything: measured once, then cached.

Like `base_figures` of SB3: a child process (`base_child.py`) starts a real Ray with one env runner, makes
a first tiny update, and reports anonymous memory by role and the pages of mapped libraries. It takes half a minute, so
the figures are kept per set of versions. A prediction by arithmetic never measures: it takes the cached figures, or
shipped ones with a wider error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from legroom.machine.cache import cache_folder, digest, read_figures, write_json
from legroom.machine.child_process import measure_base
from legroom.machine.versions import read_versions
from legroom.model.footprint import Known

LIBRARIES = ("ray", "torch", "stable-baselines3", "gymnasium", "numpy")
CHILD = Path(__file__).with_name("base_child.py")

# Measured 2026-11-16, Linux x86-64, Python 3.11, ray 2.60.0, torch 2.13.0+cpu, SB3 2.9.2, gymnasium 1.2.2, by
# `python -m legroom.backends.rllib.base_child`, without the dashboard's pages (include_dashboard=False).
SHIPPED = {
    "head": 130_300_000, "node": 109_600_000, "log_monitor": 44_500_000, "driver": 387_000_000, "runner": 381_900_000,
    "files": 306_800_000,
}  # fmt: skip
CUDA_BUILD_MORE = {"driver": 250_000_000, "runner": 130_000_000, "files": 300_000_000}  # torch 2.14.1 with CUDA 13
MEASURED_ERROR, DEFAULT_ERROR = 0.03, 0.10


@dataclass(frozen=True)
class RayFigures:
    """Bytes by role, measured on this machine or shipped.

    Anonymous memory of each kind of process; the pages of mapped libraries are counted once, whoever maps them.

    Args:
        head: what only the head runs: global control store, autoscaler's monitor, dashboard.
        node: what every node runs: raylet, dashboard agent, runtime environment agent.
        log_monitor: one more on every node.
        driver: the training process after a first tiny update, its learner in it.
        runner: an env runner that has sampled a little.
        files: mapped libraries of all of them.
        errors: ± bytes for each of those names.
    """

    head: int
    node: int
    log_monitor: int
    driver: int
    runner: int
    files: int
    errors: Mapping[str, int]
    known: Known
    versions: Mapping[str, str] = field(default_factory=dict)


def ray_figures(*, measure: bool = False, device: str = "cpu") -> RayFigures:
    """Return the figures of the installed versions: cached ones, and shipped ones where none are.

    Args:
        measure: measure now if they are not in the cache.
    """
    versions = read_versions(LIBRARIES)
    cpu_build = versions.get("torch", "+cpu").endswith("+cpu")
    path = cache_folder() / f"ray-{digest(sorted(versions.items()), CHILD.read_bytes())}.json"
    figures = read_figures(path, SHIPPED)
    if len(figures) < len(SHIPPED) and measure and "ray" in versions and "stable-baselines3" in versions:
        figures = measure_base(CHILD, "ray", set(SHIPPED)) or {}
        if figures:
            write_json(path, {"figures": figures, "versions": versions})
    if len(figures) < len(SHIPPED) or (device == "cuda" and cpu_build):
        more = CUDA_BUILD_MORE if device == "cuda" or not cpu_build else {}
        shipped = {name: nbytes + more.get(name, 0) for name, nbytes in SHIPPED.items()}
        return RayFigures(**shipped, errors=_errors(shipped, DEFAULT_ERROR), known=Known.DEFAULT, versions=versions)
    return RayFigures(**figures, errors=_errors(figures, MEASURED_ERROR), known=Known.MEASURED, versions=versions)


def _errors(figures: dict[str, int], share: float) -> dict[str, int]:
    return {name: int(share * nbytes) for name, nbytes in figures.items()}
