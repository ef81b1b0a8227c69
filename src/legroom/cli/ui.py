"""`legroom ui`: the planner page, on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legroom.errors import BadInput
from legroom.extras import needs
from legroom.reading import read_all
from legroom.reading.user_files import is_file
from legroom.rendering.console import say
from legroom.serving.guard import DEFAULT_PORT, Settings, Started


def run(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help="train.py, run.yaml, ppo.yml:atari, mine:full")
    ] = None,
    port: Annotated[int, typer.Option(metavar="PORT", help="Port to listen on; 0: any free one.")] = DEFAULT_PORT,
    folder: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Folder with trainings or watches to follow."),
    ] = None,
) -> None:
    """The planner page: change a run's settings and see at once what it needs; follow trainings live.

    It is served on this machine only and sends nothing elsewhere. Named runs can be picked and run files dropped on the
    page; a run named here can also be traced there, which builds its networks. A pasted command, or the own code of a
    run named here, is executed there only after a click. Ctrl-C ends it.

    \b
    legroom ui
    legroom ui mine:full run.yaml
    legroom ui train.py --folder runs
    legroom ui --port 0
    """
    found = [started for target in runs or [] for started in _read(target)]
    folders = tuple(_followed(each) for each in folder or [])
    if not 0 <= port <= 65_535:
        raise BadInput(f"--port {port} is out of range", hint="0 to 65535; 0 takes any that is free")
    with needs("ui", what="the planner page"):
        from legroom.serving.server import serve
    serve(Settings(port, tuple(found), folders), lambda address: say(f"legroom ui: {address}"))


def _read(target: str) -> list[Started]:
    """Return the runs that `target` names, each with what names it alone."""
    found = read_all(target)
    if len(found) == 1:
        return [Started(target, found[0])]
    alone = (lambda one: f"{target}:{one.name}") if is_file(target) else (lambda one: one.name)
    return [Started(alone(one), one) for one in found]


def _followed(folder: Path) -> Path:
    if not folder.is_dir():
        raise BadInput("is not a folder", path=folder, hint="give the folder that a training or watch writes to")
    return folder.resolve()
