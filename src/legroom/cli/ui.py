"""`legroom ui`: the planner page, on this machine."""

from __future__ import annotations

from pathlib import Path

from legroom.cli.commands import UiCommand
from legroom.errors import BadInput
from legroom.extras import needs
from legroom.reading import read_all
from legroom.reading.user_files import is_file
from legroom.rendering.console import say
from legroom.serving.guard import ServerSettings, Started


def run(asked: UiCommand) -> None:
    found = [started for target in asked.runs for started in _read(target)]
    folders = tuple(_followed(each) for each in asked.folder)
    if not 0 <= asked.port <= 65_535:
        raise BadInput(f"--port {asked.port} is out of range", hint="0 to 65535; 0 takes any that is free")
    with needs("ui", what="the planner page"):
        from legroom.serving.server import serve
    serve(ServerSettings(asked.port, tuple(found), folders), lambda address: say(f"legroom ui: {address}"))


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
