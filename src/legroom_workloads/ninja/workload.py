"""What legroom knows of the platformer workload without importing it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legroom.extend import Workload, WorkloadOption

if TYPE_CHECKING:
    from legroom.extend import KnownSpaces, Run


def with_data(run: Run, given: Mapping[str, str]) -> Run:
    """Return the run with a level of the user's own; what is seen of a level does not depend on it.

    Raises:
        BadInput: there is no such file, or it is no map.
    """
    from legroom_workloads.ninja.map_file import read_map  # NumPy with it: only where asked for

    file = Path(given["--data"]).absolute()
    read_map(file)
    return run.replace(env=run.env.model_copy(update={"kwargs": {**run.env.kwargs, "data": str(file)}}))


def spaces(arguments: Mapping[str, Any]) -> KnownSpaces:
    """Return what an environment with these arguments shows and takes.

    Raises:
        BadInput: arguments that no environment takes.
    """
    from legroom.extend import KnownSpaces
    from legroom_workloads.ninja.config import EnvironmentConfig
    from legroom_workloads.ninja.game import ACTIONS
    from legroom_workloads.ninja.observation import Observer  # gymnasium with it: only where asked for

    return KnownSpaces(Observer(EnvironmentConfig.of(arguments)).declared(), {"type": "discrete", "n": len(ACTIONS)})


WORKLOAD = Workload(
    name="ninja",
    package="legroom_workloads.ninja",
    runs=Path(__file__).parent / "runs",
    default="default",
    order=("default", "parallel", "learn"),
    apart=("learn",),
    options=(WorkloadOption("--data", "FILE", "your level, a map file"),),
    with_options=with_data,
    spaces=spaces,
    rank=3,
    checked=True,
)
