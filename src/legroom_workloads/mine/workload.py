"""What legroom knows of the mine workload without importing it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from legroom.extend import Extractor, Workload, WorkloadOption
from legroom_workloads.mine.layers import SIZES, cnn3d

if TYPE_CHECKING:
    from legroom.extend import Run

OBSERVED = 17  # channels of an observation


def with_data(run: Run, given: Mapping[str, str]) -> Run:
    """Return the run with a deposit of the user's own; its grid, unless the run says one, makes the spaces.

    Raises:
        BadInput: there is no such file, or it does not describe a deposit.
    """
    from legroom.extend import BadInput, BoxSpace, DiscreteSpace, Spaces
    from legroom_workloads.mine.models import load_model  # NumPy with it: only where asked for

    file = Path(given["--data"])
    if not file.is_file():
        raise BadInput("no such file", path=file, hint="--data FILE")
    deposit = load_model(file)
    kwargs = {**run.env.kwargs, "data": str(file.absolute())}
    grid = kwargs.get("grid", run.env.grid)
    nx, ny, nz = deposit.shape if grid in (None, "data") else grid
    spaces = Spaces(BoxSpace((OBSERVED, nx, ny, nz)), DiscreteSpace(nx * ny))
    return run.replace(env=run.env.model_copy(update={"kwargs": kwargs, "spaces": spaces}))


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
    rank=1,
    checked=True,
)
