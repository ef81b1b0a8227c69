"""What `legroom COMMAND --help-all` prints, for the end of each command's page, and the table of commands."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from docs.generators.markdown import table

from legroom.cli.commands import COMMANDS, WITH_PROGRAM
from legroom.cli.help import command_help, parts_of
from legroom.cli.parsing import Command, options_of

WIDTH = 100


def pages() -> Mapping[str, str]:
    texts = {f"help/{name}.txt": help_of(name, command) for name, command in COMMANDS.items()}
    for name, command in WITH_PROGRAM.items():
        texts[f"help/{name}.txt"] += f"\n{help_of(name, command)}"
    rows = [
        (f"[`legroom {name}`]({name}.md)", parts_of(inspect.getdoc(command) or "")[0])
        for name, command in COMMANDS.items()
    ]
    return {**texts, "commands.md": table(["command", "what it says or does"], rows)}


def help_of(name: str, command: type[Command]) -> str:
    """Return what `legroom NAME --help-all` prints on a terminal of a hundred columns, workloads' options apart."""
    return command_help(name, command, options_of(command), everything=True, width=WIDTH).rstrip() + "\n"
