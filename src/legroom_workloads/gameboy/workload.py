"""What legroom knows of the Game Boy workload without importing it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legroom.extend import Workload, WorkloadOption

if TYPE_CHECKING:
    from legroom.extend import KnownSpaces, Run


def with_game(run: Run, given: Mapping[str, str]) -> Run:
    """Return the run with a game of the user's own in it.

    Both files are looked at here, where a mistake costs a second, and not in a worker process minutes later.

    Raises:
        BadInput: a file that is no ROM or no cartridge, or a ROM without a cartridge.
    """
    from legroom.extend import BadInput
    from legroom_workloads.gameboy.game import read_game  # builds the ROM that ships: only where asked for

    files = {name.removeprefix("--"): str(Path(file).absolute()) for name, file in given.items()}
    kept = {name: value for name, value in run.env.kwargs.items() if name != "data" or "rom" not in files}  # older name
    kwargs = {**kept, **files}
    if "rom" in files and kwargs.get("cartridge") is None:
        hint = "--cartridge FILE says where its numbers are"
        raise BadInput("a ROM without a cartridge file", path=given["--rom"], hint=hint)
    read_game(kwargs.get("rom"), kwargs["cartridge"])
    return run.replace(env=run.env.model_copy(update={"kwargs": kwargs, "spaces": None}))


def spaces(arguments: Mapping[str, Any]) -> KnownSpaces:
    """Return what an environment with these arguments shows and takes; no console is started for that.

    Raises:
        BadInput: no such part of the picture, or a file that is no ROM or no cartridge.
    """
    from legroom.extend import KnownSpaces
    from legroom_workloads.gameboy.game import read_game  # builds the ROM that ships: only where asked for
    from legroom_workloads.gameboy.view import View

    view = View.of(arguments.get("grey", False), arguments.get("crop"), arguments.get("downsample", 1))
    game = read_game(arguments.get("rom") or arguments.get("data"), arguments.get("cartridge"))
    observation = {"type": "box", "shape": [*view.shape], "dtype": "uint8"}
    return KnownSpaces(observation, {"type": "discrete", "n": len(game.cartridge.actions)})


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
    spaces=spaces,
    rank=4,
    checked=True,
)
