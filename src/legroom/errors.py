"""What goes wrong, as exceptions that know their exit code and fit on one line.

Only `cli.main` turns them into text and an exit code. Programmatic users catch `LegroomError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

EXIT_GOOD = 0
EXIT_FINDINGS = 1  # findings, does not fit, leak, unknown where a verdict was asked
EXIT_BAD_INPUT = 2
EXIT_MISSING_EXTRA = 3
EXIT_TRAINING_FAILED = 4
EXIT_INTERRUPTED = 130


# options of the command line, and what stands for them in Python
_IN_PYTHON = (
    (re.compile(r"--(trust)\b"), r"\1=True"),
    (re.compile(r"--(mode|device|ram|vram|gpu) (trace|arithmetic|cpu|cuda|\d\w+)\b"), r'\1="\2"'),
    (re.compile(r"--like ([\w:.-]+)"), r'legroom.read(..., like="\1")'),
    (re.compile(r"--set ([\w.]+)=(?:'([^']*)'|([^\s,;)]+))"), r'legroom.read(..., overrides=[("\1", "\2\3")])'),
    (re.compile(r"--(ram|vram|gpu)\b"), r"\1="),
)


class LegroomError(Exception):
    """Base of everything legroom raises on purpose."""

    exit_code = EXIT_FINDINGS


@contextmanager
def in_python() -> Iterator[None]:
    """Have errors name arguments of Python functions where they recommend options; also as a decorator."""
    try:
        yield
    except LegroomError as error:
        for option, argument in _IN_PYTHON:
            error.args = tuple(option.sub(argument, text) for text in error.args)
        raise


class BadInput(LegroomError):
    """Something the user gave cannot be used: says where, what, and the way out, in one line.

    Args:
        message: what is wrong, with the numbers.
        hint: the way out.
        path, line: the file and the 1-based line it stands in, where there is one.
    """

    exit_code = EXIT_BAD_INPUT

    def __init__(self, message: str, *, hint: str = "", path: object = None, line: int | None = None) -> None:
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        text = f"{where}{message}" + (f" ({hint})" if hint else "")
        super().__init__(" ".join(text.split()))  # one line, whatever a library put into its own message
        self.message, self.hint, self.path, self.line = message, hint, path, line


class NotKnownYet(BadInput):
    """Nothing is wrong with a script, and only running it could tell what decides whether it fits."""

    exit_code = EXIT_FINDINGS


class NotARun(BadInput):
    """The file is sound, and no run of any library that is known here; a check says so and goes on."""


class Unknown(LegroomError):
    """Nobody knows whether the run fits, and a verdict was asked for.

    Args:
        name: of the run.
        reasons: why not, each with the way to know.
    """

    def __init__(self, name: str, reasons: Sequence[str], *, path: object = None) -> None:
        where = "" if path is None else f"{path}: "
        super().__init__(" ".join(f"{where}unknown whether it fits: {'; '.join(reasons)}".split()))
        self.name, self.reasons = name, tuple(reasons)


class Unseen(Unknown):
    """What decides is code that the run file names and that was not imported.

    Args:
        code: what was not imported, each with what it is.
    """

    def __init__(self, name: str, code: Sequence[str], *, path: object = None) -> None:
        super().__init__(name, [unseen_text(code)], path=path)
        self.code = tuple(code)


def unseen_text(code: Sequence[str]) -> str:
    """Return what was not imported, and what would import it."""
    return f"{', '.join(code)} is your own code; it is imported only with --trust"


class MissingExtra(LegroomError):
    """A package that this command cannot work without is not installed."""

    exit_code = EXIT_MISSING_EXTRA

    def __init__(self, extra: str, package: str, *, what: str) -> None:
        from legroom.installing import install_command  # only here: it reads what installers have left

        self.extra, self.package = extra, package
        self.message, self.hint = f"{what} needs {package}, which is not installed", install_command(extra, package)
        super().__init__(f"{self.message} ({self.hint})")


class Untraceable(LegroomError):
    """A policy or update that cannot be followed on fake tensors; callers fall back to arithmetic and say why.

    Args:
        way: how the user would get to know all the same, where there is a better way than to run it.
        modelled: arithmetic models it on purpose, so that what it says is no guess.
    """

    def __init__(self, reason: str, *, way: str = "", modelled: bool = False) -> None:
        super().__init__(" ".join(reason.split()))
        self.way, self.modelled = way, modelled
