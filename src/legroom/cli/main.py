"""`legroom`: builds the command line and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import typer

from legroom import __version__
from legroom.errors import EXIT_BAD_INPUT, EXIT_GOOD, EXIT_INTERRUPTED, LegroomError

# Each module defines `run`, the command's function. Only the module of the command that is called is imported.
COMMANDS = {
    "predict": "legroom.cli.predict",
    "fit": "legroom.cli.fit",
    "train": "legroom.cli.train",
    "sweep": "legroom.cli.sweep",
    "check": "legroom.cli.check",
    "explain": "legroom.cli.explain",
    "watch": "legroom.cli.watch",
    "profile": "legroom.cli.profile",
    "export": "legroom.cli.export",
    "import": "legroom.cli.import_",
    "machine": "legroom.cli.machine",
    "workloads": "legroom.cli.workloads",
    "schema": "legroom.cli.schema",
}


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        code = _run(arguments)
    except LegroomError as error:
        _say(f"legroom: {error}")
        code = error.exit_code
    except KeyboardInterrupt:
        _say("legroom: interrupted")
        code = EXIT_INTERRUPTED
    except BrokenPipeError:  # `legroom ... | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_GOOD
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        sys.stdout.write(f"legroom {__version__}\n")
        return EXIT_GOOD
    called = [name for name in COMMANDS if name == arguments[0]] if arguments else []
    app = _build(called or list(COMMANDS))
    if called:
        command = typer.main.get_command(app).commands[called[0]]  # type: ignore[attr-defined]
        if any("--set" in parameter.opts for parameter in command.params):  # only then: it brings the readers along
            rewrite = import_module("legroom.cli.overrides").rewrite_overrides
            arguments = [called[0], *rewrite(arguments[1:], command.params)]
    try:
        outcome = app(arguments or ["--help"], standalone_mode=False, prog_name="legroom")
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):  # a usage error of the option parser, whichever one typer carries
            raise
        _say(f"legroom: {' '.join(error.format_message().split())} (legroom {called[0] if called else ''} --help)")
        return EXIT_BAD_INPUT
    return outcome if isinstance(outcome, int) else EXIT_GOOD


def _build(names: list[str]) -> typer.Typer:
    app = typer.Typer(
        help="Makes reinforcement-learning training fit the machine you have.",
        epilog="Start with: legroom predict mine:full",
        no_args_is_help=True,
        add_completion=len(names) > 1,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def legroom(version: bool = typer.Option(False, "--version", help="Show the version and exit.")) -> None:
        """Makes reinforcement-learning training fit the machine you have."""

    for name in names:
        app.command(name, no_args_is_help=False)(import_module(COMMANDS[name]).run)
    return app


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
