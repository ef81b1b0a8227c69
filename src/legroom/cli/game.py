"""`--rom FILE --cartridge FILE`: a Game Boy game of the user's own in the place of the one that ships with legroom.

Both files are looked at here, where a mistake costs a second, and not in a worker process minutes later. The cartridge
file says how many actions there are, so the run's declared spaces can follow it and no console needs to be started.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legroom.errors import BadInput
from legroom.model.run import Run
from legroom.model.spaces import DiscreteSpace

Rom = Annotated[Path | None, typer.Option(metavar="FILE", help="gameboy: a ROM that you own (env.kwargs.rom).")]
CartridgeFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="gameboy: where its numbers are in RAM (env.kwargs.cartridge).")
]
WORKLOAD = "legroom_workloads.gameboy"


def with_game(run: Run, rom: Path | None, cartridge: Path | None) -> Run:
    """Return the run with the user's game in it, unchanged where none is given.

    Raises:
        BadInput: a run that plays no Game Boy, a file that is no ROM or no cartridge, or one without the other.
    """
    if rom is None and cartridge is None:
        return run
    if not (run.env.id or "").startswith(WORKLOAD):
        option = "--cartridge" if rom is None else "--rom"
        raise BadInput(f"{option}: {run.name} plays no Game Boy", hint="--set env.kwargs.KEY=VALUE for other envs")
    files = {"rom": rom, "cartridge": cartridge}
    given = {name: str(file.absolute()) for name, file in files.items() if file is not None}
    kept = {name: value for name, value in run.env.kwargs.items() if name != "data" or rom is None}  # an older name
    kwargs = {**kept, **given}
    if rom is not None and kwargs.get("cartridge") is None:
        raise BadInput("a ROM without a cartridge file", path=rom, hint="--cartridge FILE says where its numbers are")
    from legroom_workloads.gameboy.game import read_game  # builds the ROM that ships: only where asked for

    game = read_game(kwargs.get("rom"), kwargs["cartridge"])
    spaces = run.env.spaces
    if spaces is not None:
        spaces = spaces.model_copy(update={"action": DiscreteSpace(n=len(game.cartridge.actions))})
    return run.replace(env=run.env.model_copy(update={"kwargs": kwargs, "spaces": spaces}))
