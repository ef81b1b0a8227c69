"""`legroom`: builds the command line and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import typer

from legroom import __version__
from legroom.errors import (
    EXIT_BAD_INPUT,
    EXIT_GOOD,
    EXIT_INTERRUPTED,
    EXIT_MISSING_EXTRA,
    LegroomError,
    Unknown,
    Unseen,
)
from legroom.machine.limits import limit_reached  # here: with no descriptor left, nothing can be imported
from legroom.rendering.printable import printable

SCIENTIFIC = re.compile(r"\d+(\.\d+)?[eE]\+?\d{1,2}")

# Each module defines `run`, the command's function. Only the module of the command that is called is imported: the
# summaries are here so that neither `legroom --help` nor a press of TAB needs the others.
COMMANDS = {
    "predict": ("legroom.cli.predict", "Whether a run or program fits, and what it needs, item by item."),
    "fit": ("legroom.cli.fit", "Make a run or program fit, changed as little as possible."),
    "train": ("legroom.cli.train", "Train with every saving that is free."),
    "sweep": ("legroom.cli.sweep", "Train a grid of settings, as many at once as memory allows."),
    "check": ("legroom.cli.check", "Find mistakes in a configuration or a script."),
    "explain": ("legroom.cli.explain", "Why a log or traceback ran out of memory, and what helps."),
    "watch": ("legroom.cli.watch", "Watch the memory of any command over time."),
    "profile": ("legroom.cli.profile", "Whether an environment leaks, and how much memory it takes."),
    "ui": ("legroom.cli.ui", "The planner page: change settings, see at once what fits."),
    "export": ("legroom.cli.export", "Write the last checkpoint of a run for use elsewhere."),
    "machine": ("legroom.cli.machine", "Show this machine's memory, GPUs and library versions."),
    "workloads": ("legroom.cli.workloads", "List the reference workloads and their named runs."),
    "schema": ("legroom.cli.schema", "The JSON schema of a run file."),
}
UNIX_MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty")
NEEDS_UNIX = ("train", "sweep", "watch", "profile")  # child processes that are supervised by signals, locks and /proc
WORKS = "predict and fit with --mode arithmetic, check, explain and machine work on every system"
# Options that may stand without a value, and the value they then have.
ALONE = {"--tiers": "RTX 4060,T4,RTX 3090,RTX 4090,RTX 5090,A100,H100"}
# What a command is with a command line of the user's after `--`.
WITH_PROGRAM = {"predict": "legroom.cli.rehearse", "fit": "legroom.cli.fit_program", "train": "legroom.cli.attach"}


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:] if argv is None else argv
    with suppress(OSError):  # a yaml.py in the working directory is not yaml, whatever PYTHONPATH says
        sys.path.sort(key=("", str(Path.cwd())).__contains__)  # it stays in order, these two last
    try:
        with _terminated_at_leisure():
            code = _run(arguments)
    except Unknown as unknown:
        trusting = import_module("legroom.cli.trusting")
        if "--json" in arguments:
            sys.stdout.write(trusting.unknown_json(unknown, arguments) + "\n")
        _say(f"legroom: {unknown}{f'; {trusting.unseen_line()}' if isinstance(unknown, Unseen) else ''}")
        code = unknown.exit_code
    except LegroomError as error:
        where = None if (path := getattr(error, "path", None)) is None else _place(path, getattr(error, "line", None))
        _fail(arguments, str(error), getattr(error, "message", ""), getattr(error, "hint", ""), where)
        code = error.exit_code
    except KeyboardInterrupt:
        _say("legroom: interrupted")
        code = EXIT_INTERRUPTED
    except BrokenPipeError:  # `legroom ... | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_GOOD
    except ModuleNotFoundError as error:
        if error.name not in UNIX_MODULES:
            raise
        code = _refuse_system(arguments, f"Python has no module {error.name} here")
    except (OSError, RuntimeError) as error:
        told = limit_reached(error)
        if told is None and isinstance(error, OSError) and error.filename is not None:  # a name that is too long, EIO
            told = f"{os.fsdecode(error.filename)}: {error.strerror}"
        if told is None:
            raise
        _fail(arguments, told)
        code = EXIT_BAD_INPUT
    if argv is None:
        gc.freeze()  # Python would look through all objects again and again as it takes modules apart
    sys.exit(code)


def _fail(arguments: list[str], line: str, message: str = "", hint: str = "", where: str | None = None) -> None:
    """Say what went wrong, in a line on standard error; where --json was given, also as the document asked for."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in own:
        told = {"message": message or line, "hint": hint or None, "where": where}
        sys.stdout.write(import_module("legroom.rendering.console").document({"error": told}) + "\n")
        sys.stdout.flush()
    _say(f"legroom: {line}")


def _refuse_system(arguments: list[str], why: str) -> int:
    """Say that a command does not work on this system, and what does."""
    _fail(arguments, f"{arguments[0]} needs Linux or macOS: {why} ({WORKS})", f"{arguments[0]}: {why}", WORKS)
    return EXIT_MISSING_EXTRA


def _place(path: object, line: int | None) -> str:
    return str(path) if line is None else f"{path}:{line}"


class _Terminated(SystemExit):
    """SIGTERM: what a command has started ends with it."""


@contextmanager
def _terminated_at_leisure() -> Iterator[None]:
    """Let a SIGTERM end the command as an exception does, so that its children and files are cleared away."""

    def end(*_: Any) -> None:
        raise _Terminated(128 + signal.SIGTERM)

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)  # and the parent process sees which signal it was
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        sys.stdout.write(f"legroom {__version__}\n")
        return EXIT_GOOD
    if not hasattr(os, "fork") and arguments and (arguments[0] in NEEDS_UNIX or "--" in arguments):
        return _refuse_system(arguments, "this system lacks what legroom supervises processes with")
    if arguments and arguments[0] in ("--complete-words", "--show-completion", "--install-completion"):
        return _complete(arguments[0], arguments[1:])
    called = [name for name in COMMANDS if name == arguments[0]] if arguments else []
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    asked_help = {"--help", "--help-all"} & set(own)
    if not arguments or (asked_help and not called):
        return _show_help(own, asked_help)
    command: Any = typer.main.get_command(_build(called[0] if called else None, with_program="--" in arguments))
    if called:
        params = command.commands[called[0]].params
        if asked_help:
            return _show_help(own, asked_help, command.commands[called[0]])
        import_module("legroom.reading.reading_budget").end_by_timer()
        arguments = with_values([*with_whole_numbers(own, params), *arguments[len(own) :]])
        if _takes_runs(params):  # only then: it brings the readers along
            rewrite = import_module("legroom.cli.overrides").rewrite_overrides
            others = lambda: _params(called[0], _build(called[0], with_program=True))  # noqa: E731
            arguments = [called[0], *rewrite(arguments[1:], params, others)]
    try:
        outcome = command(arguments, standalone_mode=False, prog_name="legroom")
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):  # a usage error of the option parser, whichever one typer carries
            raise
        told, way = " ".join(error.format_message().split()), " ".join(["legroom", *called, "--help"])
        if not called and Path(arguments[0]).is_file():
            way = f"legroom predict {arguments[0]}"
        told = told.replace("valid integer range", "valid integer")
        _fail(arguments, f"{told} ({way})", told, way)
        return EXIT_BAD_INPUT
    return outcome if isinstance(outcome, int) else EXIT_GOOD


def with_values(arguments: list[str]) -> list[str]:
    """Return the arguments with a value for options that stand without one."""
    following = [*arguments[1:], "--"]
    pairs = (
        (word, ALONE.get(word) if after.startswith("-") else None)
        for word, after in zip(arguments, following, strict=True)
    )
    return [each for pair in pairs for each in pair if each is not None]


def with_whole_numbers(arguments: list[str], params: Iterable[Any]) -> list[str]:
    """The arguments with 1e6 as 1000000 where an option takes a whole number."""
    whole = {name for param in params if "integer" in param.type.name for name in param.opts}
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=") if word.startswith("--") else (arguments[at - 1], "", word)
        if name in whole and SCIENTIFIC.fullmatch(value) and float(value).is_integer():
            arguments[at] = f"{name}{equals}{float(value):.0f}" if equals else f"{float(value):.0f}"
    return arguments


def _show_help(words: list[str], asked: set[str], command: Any = None) -> int:
    """Print the help of a command, or of all of them; without any words, what people come for."""
    shown, everything = import_module("legroom.cli.help"), "--help-all" in asked
    if command is None:
        summaries = {name: summary for name, (_, summary) in COMMANDS.items()}
        sys.stdout.write(shown.commands_help(summaries, everything=everything) if words else shown.START)
        return EXIT_GOOD
    params, width = command.params, min(get_terminal_size().columns, shown.WIDTH)
    named = [word for word in words[1:] if not word.startswith("-")]
    if _takes_runs(params) and (named or everything):  # only then: it brings the readers along
        params = params + _of_workloads(named, everything=everything)
    sys.stdout.write(shown.command_help(words[0], command, params, everything=everything, width=width))
    return EXIT_GOOD


def _complete(what: str, words: list[str]) -> int:
    """Answer a shell that wants to know how a line may go on, or give it the means to ask."""
    completion = import_module("legroom.cli.completion")
    if what == "--complete-words":
        summaries = {name: summary for name, (_, summary) in COMMANDS.items()}
        found = completion.candidates(words, summaries, lambda name: _all_params(name, words))
        sys.stdout.write("".join(f"{text}\t{about}\n" for text, about in found))
    elif what == "--show-completion":
        sys.stdout.write(completion.script_for(words[0] if words else None)[1])
    else:
        sys.stdout.write(completion.install(words[0] if words else None) + "\n")
    return EXIT_GOOD


def _params(name: str, app: typer.Typer) -> list[Any]:
    """Return the parameters of the one command that the app was built with."""
    params: list[Any] = typer.main.get_command(app).commands[name].params  # type: ignore[attr-defined]
    return params


def _all_params(name: str, words: list[str]) -> list[Any]:
    """Return the parameters of a command, and the options of the workloads whose runs it takes."""
    params = _params(name, _build(name))
    return params + _of_workloads(words[1:], everything=True) if _takes_runs(params) else params


def _takes_runs(params: list[Any]) -> bool:
    return any("--set" in parameter.opts for parameter in params)


def _of_workloads(words: list[str], *, everything: bool) -> list[Any]:
    shown: list[Any] = import_module("legroom.cli.overrides").shown_options(words, everything=everything)
    return shown


def _build(called: str | None, *, with_program: bool = False) -> typer.Typer:
    """Return the command line: with the command that is called, or with all of them as no more than their summaries.

    Args:
        with_program: something follows `--`.
    """
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.callback()
    def legroom(
        version: bool = typer.Option(False, "--version"),
        install: str = typer.Option("", "--install-completion"),
        show: str = typer.Option("", "--show-completion"),
    ) -> None:
        """Stand for options that are answered before anything is parsed, so that a misspelt one is known."""

    if called is not None:
        module = WITH_PROGRAM.get(called, COMMANDS[called][0]) if with_program else COMMANDS[called][0]
        app.command(called, no_args_is_help=False)(import_module(module).run)
        return app
    for name in COMMANDS:
        app.command(name)(lambda: None)
    return app


def _say(line: str) -> None:
    sys.stderr.write(printable(line) + "\n")


if __name__ == "__main__":
    main()
