"""What `legroom COMMAND --help-all` prints, for the end of each command's page, and the table of commands."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from docs.generators.markdown import table

from legroom.cli.help import command_help
from legroom.cli.main import COMMANDS, WITH_PROGRAM

WIDTH = 100


def pages() -> Mapping[str, str]:
    parsers = command_parsers()
    texts = {f"help/{name}.txt": help_of(name, parser) for name, parser in parsers.items()}
    for name, parser in command_parsers(WITH_PROGRAM).items():
        texts[f"help/{name}.txt"] += f"\n{help_of(name, parser)}"
    rows = [(f"[`legroom {name}`]({name}.md)", _first_sentence(parsers[name])) for name in parsers]
    return {**texts, "commands.md": table(["command", "what it says or does"], rows)}


def command_parsers(modules: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the parser of every command, by name; `modules` are others than those that are called by default."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.callback()(lambda: None)
    for name, module in (modules or {name: module for name, (module, _) in COMMANDS.items()}).items():
        app.command(name)(import_module(module).run)
    built: Any = typer.main.get_command(app)
    return dict(built.commands)


def help_of(name: str, parser: Any) -> str:
    """Return what `legroom NAME --help-all` prints on a terminal of a hundred columns, workloads' options apart."""
    return command_help(name, parser, parser.params, everything=True, width=WIDTH).rstrip() + "\n"


def _first_sentence(parser: Any) -> str:
    return str(parser.help).strip().split("\n\n")[0].replace("\n", " ")
