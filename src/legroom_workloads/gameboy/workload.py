"""What legroom knows of the Game Boy workload without importing it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from legroom.extend import Workload, WorkloadOption

if TYPE_CHECKING:
    from legroom.extend import Run


def with_game(run: Run, given: Mapping[str, str]) -> Run:
    """Return the run with a game of the user's own in it.

    Both files are looked at here, where a mistake costs a second, and not in a worker process minutes later. The
    cartridge file says how many actions there are, so the declared spaces follow it and no console is started.

    Raises:
        BadInput: a file that is no ROM or no cartridge, or a ROM without a cartridge.
    """
    from legroom.extend import BadInput, DiscreteSpace
    from legroom_workloads.gameboy.game import read_game  # builds the ROM that ships: only where asked for

    files = {name.removeprefix("--"): str(Path(file).absolute()) for name, file in given.items()}
    kept = {name: value for name, value in run.env.kwargs.items() if name != "data" or "rom" not in files}  # older name
    kwargs = {**kept, **files}
    if "rom" in files and kwargs.get("cartridge") is None:
        hint = "--cartridge FILE says where its numbers are"
        raise BadInput("a ROM without a cartridge file", path=given["--rom"], hint=hint)
    game = read_game(kwargs.get("rom"), kwargs["cartridge"])
    spaces = run.env.spaces
    if spaces is not None:
        spaces = spaces.model_copy(update={"action": DiscreteSpace(n=len(game.cartridge.actions))})
    return run.replace(env=run.env.model_copy(update={"kwargs": kwargs, "spaces": spaces}))


WORKLOAD = Workload(
    name="gameboy",
    package="legroom_workloads.gameboy",
    runs=Path(__file__).parent / "runs",
    default="default",
    extra="gameboy",
    packages=("pyboy",),
    order=("default", "fitted", "learn"),
    apart=("learn",),
    first_shown="default",  # it has a GPU's share, and knobs of every price
    options=(
        WorkloadOption("--rom", "FILE", "a ROM that you own"),
        WorkloadOption("--cartridge", "FILE", "where its numbers are in RAM"),
    ),
    with_options=with_game,
    rank=4,
    checked=True,
)
