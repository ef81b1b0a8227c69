"""`--rasters N|DIR`: how many landscapes the wildfire workload generates, or a folder of the user's own tiles.

A folder is looked at here, where a mistake costs a second, and not in a worker process minutes later. Its tiles may
have another size than the run declares, so the declared spaces no longer count, and the environment is asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legroom.errors import BadInput
from legroom.model.run import Run

Rasters = Annotated[
    str | None, typer.Option(metavar="N|DIR", help="fire: landscapes to generate, or a folder of tiles.")
]
WORKLOAD = "legroom_workloads.fire"


def with_rasters(run: Run, rasters: str | None) -> Run:
    """Return the run with these landscapes in it, unchanged where none are given.

    Raises:
        BadInput: a run that burns nothing, no number over 0, or no folder with tiles.
    """
    if rasters is None:
        return run
    if not (run.env.id or "").startswith(WORKLOAD):
        raise BadInput(f"--rasters: {run.name} has no landscapes", hint="--set env.kwargs.KEY=VALUE for other envs")
    env = run.env
    if rasters.isascii() and rasters.isdecimal():
        if not 0 < int(rasters) <= 100_000:
            raise BadInput(f"--rasters {rasters}", hint="1 to 100,000, or a folder")
        return run.replace(env=env.model_copy(update={"kwargs": {**env.kwargs, "rasters": int(rasters)}}))
    folder = Path(rasters)
    if not folder.exists():
        raise BadInput("no such folder", path=folder, hint="--rasters 500 generates landscapes")
    from legroom_workloads.fire.rasters import tile_paths  # NumPy with it: only where asked for

    tile_paths(folder)
    kwargs = {**env.kwargs, "rasters": str(folder.absolute())}
    return run.replace(env=env.model_copy(update={"kwargs": kwargs, "spaces": None, "grid": None}))
