"""What legroom knows of the mine workload without importing it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legroom.extend import Extractor, Workload, WorkloadOption
from legroom_workloads.mine.layers import SIZES, cnn3d

if TYPE_CHECKING:
    from legroom.extend import KnownSpaces, Run

OBSERVED = 17  # channels of an observation


def with_data(run: Run, given: Mapping[str, str]) -> Run:
    """Return the run with a deposit of the user's own; its grid, unless the run says one, makes the spaces.

    Raises:
        BadInput: there is no such file, or it does not describe a deposit.
    """
    from legroom.extend import BadInput
    from legroom_workloads.mine.models import load_model  # NumPy with it: only where asked for

    file = Path(given["--data"])
    if not file.is_file():
        raise BadInput("no such file", path=file, hint="--data FILE")
    load_model(file)
    kwargs = {**run.env.kwargs, "data": str(file.absolute())}
    return run.replace(env=run.env.model_copy(update={"kwargs": kwargs, "spaces": None}))


def spaces(arguments: Mapping[str, Any]) -> KnownSpaces | None:
    """Return what an environment with these arguments shows and takes; None for a grid that it refuses."""
    from legroom.extend import KnownSpaces
    from legroom_workloads.mine.models import load_model  # NumPy with it: only where asked for

    grid: Any = arguments.get("grid")
    if grid in (None, "data"):
        grid = load_model(arguments.get("data") or arguments.get("model", "sample")).shape
    if isinstance(grid, str) or len(grid) != 3:
        return None
    nx, ny, nz = grid
    return KnownSpaces({"type": "box", "shape": [OBSERVED, nx, ny, nz]}, {"type": "discrete", "n": nx * ny})


WORKLOAD = Workload(
    name="mine",
    package="legroom_workloads.mine",
    runs=Path(__file__).parent / "runs",
    default="full",
    extra="mine",
    packages=("scipy",),
    order=("full", "memory_optimized", "ultra_light", "small"),
    extractors={"legroom_workloads.mine:Cnn3d": Extractor(cnn3d, tuple({"size": size} for size in SIZES))},
    options=(WorkloadOption("--data", "FILE", "your deposit, CSV or a MineLib instance"),),
    with_options=with_data,
    spaces=spaces,
    rank=1,
    checked=True,
)
