"""What legroom knows of the wildfire workload without importing it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legroom.extend import Extractor, Workload, WorkloadOption
from legroom_workloads.fire.layers import fire_net, sight_net

if TYPE_CHECKING:
    from legroom.extend import KnownSpaces, Run


def with_rasters(run: Run, given: Mapping[str, str]) -> Run:
    """Return the run with so many landscapes, or with those of a folder.

    A folder is looked at here, where a mistake costs a second, and not in a worker process minutes later. Its tiles may
    have another size than the run declares, so the declared spaces no longer count, and the environment is asked.

    Raises:
        BadInput: no number over 0, or no folder with tiles.
    """
    from legroom.extend import BadInput
    from legroom_workloads.fire.rasters import tile_paths  # NumPy with it: only where asked for

    rasters, env = given["--rasters"], run.env
    if rasters.isascii() and rasters.isdecimal():
        if not 0 < int(rasters) <= 100_000:
            raise BadInput(f"--rasters {rasters}", hint="1 to 100,000, or a folder")
        return run.replace(env=env.model_copy(update={"kwargs": {**env.kwargs, "rasters": int(rasters)}}))
    folder = Path(rasters)
    if not folder.exists():
        raise BadInput("no such folder", path=folder, hint="--rasters 500 generates landscapes")
    tile_paths(folder)
    kwargs = {**env.kwargs, "rasters": str(folder.absolute())}
    return run.replace(env=env.model_copy(update={"kwargs": kwargs, "spaces": None, "grid": None}))


def spaces(arguments: Mapping[str, Any]) -> KnownSpaces | None:
    """Return what an environment with these arguments shows and takes; None for tiles of a folder, of any size."""
    from legroom.extend import KnownSpaces

    height, width = arguments.get("grid", (50, 50))
    if not str(arguments.get("rasters", 500)).isdecimal():
        return None
    cells, each = height * width, arguments.get("breaks_per_step", 10)
    action = {"type": "multidiscrete", "nvec": [cells] * each} if each > 1 else {"type": "discrete", "n": cells}
    return KnownSpaces({"type": "box", "shape": [8, height, width]}, action)


WORKLOAD = Workload(
    name="fire",
    package="legroom_workloads.fire",
    runs=Path(__file__).parent / "runs",
    default="original",
    extra="fire",
    packages=("scipy",),
    order=("original", "medium", "low", "learn"),
    apart=("learn",),
    extractors={
        "legroom_workloads.fire:FireNet": Extractor(
            fire_net,
            (
                {"attention": False},
                {"attention": False, "multi_scale": False},
                {"attention": False, "multi_scale": False, "residual": False},
            ),
        ),
        "legroom_workloads.fire:SightNet": Extractor(sight_net),
    },
    headless=("legroom_workloads.fire:CellPolicy", "legroom_workloads.fire:LinePolicy"),
    options=(WorkloadOption("--rasters", "N|DIR", "landscapes to generate, or a folder of tiles"),),
    with_options=with_rasters,
    spaces=spaces,
    rank=2,
    checked=True,
)
