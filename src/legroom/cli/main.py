"""`legroom`: builds the command line and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

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

# Here, so that `legroom --help` imports no command.
SUMMARIES = {
    "predict": "Whether a run or program fits, and what it needs, item by item.",
    "fit": "Make a run or program fit, changed as little as possible.",
    "train": "Train with every saving that is free.",
    "sweep": "Train a grid of settings, as many at once as memory allows.",
    "check": "Find mistakes in a configuration or a script.",
    "explain": "Why a log or traceback ran out of memory, and what helps.",
    "watch": "Watch the memory of any command over time.",
    "profile": "Whether an environment leaks, and how much memory it takes.",
    "ui": "The planner page: change settings, see at once what fits.",
    "export": "Write the last checkpoint of a run for use elsewhere.",
    "machine": "Show this machine's memory, GPUs and library versions.",
    "workloads": "List the reference workloads and their named runs.",
    "schema": "The JSON schema of a run file.",
}
UNIX_MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty")
NEEDS_UNIX = ("train", "sweep", "watch", "profile")  # child processes that are supervised by signals, locks and /proc
WORKS = "predict and fit with --mode arithmetic, check, explain and machine work on every system"


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:] if argv is None else argv
    with suppress(OSError):  # a yaml.py in the working directory is not yaml, whatever PYTHONPATH says
        sys.path.sort(key=("", str(Path.cwd())).__contains__)  # it stays in order, these two last
    try:
        with _terminated_at_leisure():
            code = _run(arguments)
    except Unknown as unknown:
        trusting = import_module("legroom.cli.output")
        if "--json" in arguments:
            sys.stdout.write(trusting.unknown_json(unknown, arguments) + "\n")
        _say(f"legroom: {unknown}{f'; {trusting.unseen_line()}' if isinstance(unknown, Unseen) else ''}")
        code = unknown.exit_code
    except LegroomError as error:
        path, line = getattr(error, "path", None), getattr(error, "line", None)
        where = None if path is None else str(path) if line is None else f"{path}:{line}"
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
    if arguments and arguments[0] in ("--complete-words", "--show-completion"):
        return _complete(arguments[0], arguments[1:])
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    everything, called = "--help-all" in own, arguments[0] if arguments and arguments[0] in SUMMARIES else ""
    asked_help = everything or "--help" in own
    if not arguments or (asked_help and not called):
        shown = import_module("legroom.cli.help")
        sys.stdout.write(shown.commands_help(SUMMARIES, everything=everything) if arguments else shown.START)
        return EXIT_GOOD
    parsing = import_module("legroom.cli.parsing")
    try:
        if not called:
            raise parsing.UsageError(_no_command(arguments[0]))
        command = command_called(called, with_program="--" in arguments)
        if asked_help:
            sys.stdout.write(import_module("legroom.cli.help").help_for(own, command, everything=everything))
            return EXIT_GOOD
        import_module("legroom.reading.reading_budget").end_by_timer()
        asked = parsing.parse(command, arguments[1:])
    except parsing.UsageError as error:
        told, way = str(error), " ".join(["legroom", *([called] if called else []), "--help"])
        if not called and Path(arguments[0]).is_file():
            way = f"legroom predict {arguments[0]}"
        _fail(arguments, f"{told} ({way})", told, way)
        return EXIT_BAD_INPUT
    module, _, function = command.module.partition(":")
    outcome = getattr(import_module(module), function or "run")(asked)
    return outcome if isinstance(outcome, int) else EXIT_GOOD


def _no_command(word: str) -> str:
    if word.startswith("-"):
        return f"No such option: {word}"
    near = get_close_matches(word, SUMMARIES)
    return f"No such command {word!r}." + (f" Did you mean {', '.join(map(repr, near))}?" if near else "")


def command_called(name: str, *, with_program: bool = False) -> Any:
    """Return the class of a command, of one with a command line of the user's after `--` where there is such a one."""
    commands = import_module("legroom.cli.commands")
    return commands.WITH_PROGRAM.get(name, commands.COMMANDS[name]) if with_program else commands.COMMANDS[name]


def _complete(what: str, words: list[str]) -> int:
    """Answer a shell that wants to know how a line may go on, or give it the means to ask."""
    completion = import_module("legroom.cli.completion")
    if what == "--complete-words":
        found = completion.candidates(words, SUMMARIES)
        sys.stdout.write("".join(f"{text}\t{about}\n" for text, about in found))
    else:
        sys.stdout.write(completion.script_for(words[0] if words else None))
    return EXIT_GOOD


def _say(line: str) -> None:
    sys.stderr.write(printable(line) + "\n")


if __name__ == "__main__":
    main()
