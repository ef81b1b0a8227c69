"""The named runs of all installed workloads: `mine:full`, or `tunnel:deep` of a package of the user's own.

Workloads are found through the entry point group `legroom.workloads`; those of this distribution are registered in the
same way as anybody's. One that cannot be loaded is left out with a line on stderr, so that others go on working.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from legroom.errors import BadInput
from legroom.extras import entry_points
from legroom.model.workload import Workload

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from legroom.model.run import Run

GROUP = "legroom.workloads"


@cache
def _registered() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in reversed(list(entry_points(GROUP)))}


@cache
def workload_packages(*, own: bool = False) -> frozenset[str]:
    """Return the top-level packages that registered workloads (`own`: legroom's) are in; nothing is imported."""
    points = [point for point in _registered().values() if not own or getattr(point.dist, "name", "") == "legroom"]
    return frozenset(point.module.partition(".")[0] for point in points)


@cache
def find_workload(name: str) -> Workload | None:
    """Return the workload called `name`, None when there is none."""
    point = _registered().get(name)
    if point is None:
        return None
    try:
        loaded = point.load()
    except Exception as error:  # whatever somebody's package raises
        why = " ".join(f"{type(error).__name__}: {error}".split())
    else:
        if isinstance(loaded, Workload) and loaded.name == name:
            return loaded
        why = f"{point.value} is not a Workload of that name"
    package = "" if point.dist is None else f" of {point.dist.name}"
    sys.stderr.write(f"legroom: workload {name!r}{package} cannot be used: {why}\n")
    return None


@cache
def workloads() -> tuple[Workload, ...]:
    """Return all installed workloads in the order of tables."""
    found = (find_workload(name) for name in _registered())
    return tuple(sorted((each for each in found if each is not None), key=lambda each: (each.rank, each.name)))


def workload_of(run: Run) -> Workload | None:
    """Return the workload of the run's environment, or that whose run file it is."""
    module, folder = (run.env.id or "").partition(":")[0], Path(run.source or "").parent
    owners = (each for each in workloads() if f"{module}.".startswith(f"{each.package}.") or each.runs == folder)
    return next(owners, None)


def with_own_spaces(run: Run) -> Run:
    """Return the run with the spaces that its environment's workload knows it to have; as it is where it says them."""
    env = run.env
    if env.spaces is not None or env.wrappers or (env.id or "").partition(".")[0] not in workload_packages():
        return run
    from legroom.model.run import Spaces  # most runs declare theirs

    workload, known = workload_of(run), None
    with suppress(BadInput):  # of arguments that the environment refuses, which says so when it is made
        known = workload.spaces(env.arguments) if workload is not None and workload.spaces is not None else None
    if known is None:
        return run
    spaces = Spaces.model_validate({"observation": known.observation, "action": known.action})
    return run.replace(env=env.model_copy(update={"spaces": spaces}))


def run_files(workload: str) -> dict[str, Path]:
    """Return the run files of a workload by the name of the run, none where there is no such workload."""
    found = find_workload(workload)
    return {} if found is None else found.run_files()


def run_names() -> list[str]:
    """Return every named run as `workload:run`."""
    return [f"{workload.name}:{run}" for workload in workloads() for run in workload.run_files()]
