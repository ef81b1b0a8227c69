"""Where output goes: results to standard output, progress to standard error, colour only on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from json import dumps
from shutil import get_terminal_size
from typing import Any

from legroom.rendering.document import Document, Part
from legroom.rendering.layout import draw
from legroom.rendering.printable import printable

JSON_VERSION = 1  # of every document that a command prints or writes
PLAIN_WIDTH = 100  # into a file or a pipe, where there is no terminal to ask


def say(result: str | Document | Iterable[Part], *, aside: bool = False) -> None:
    """Write a text as it is, or a document fitted to the terminal, to standard output.

    Args:
        aside: to standard error, since standard output is for something else.
    """
    stream = sys.stderr if aside else sys.stdout
    if isinstance(result, str):
        result = printable(result)
    else:
        terminal = stream.isatty()
        width = get_terminal_size().columns if terminal else int(os.environ.get("COLUMNS", PLAIN_WIDTH))
        result = draw(result, width=max(width, 40), colour=terminal and "NO_COLOR" not in os.environ)
    stream.write(result if result.endswith("\n") else result + "\n")
    stream.flush()


def document(data: Mapping[str, Any]) -> str:
    """Return the JSON that a command prints: the version of its contract first, then the data."""
    return dumps({"legroom": JSON_VERSION, **data}, indent=2)


def complain(line: str) -> None:
    """Write a line for the user to standard error."""
    sys.stderr.write(f"legroom: {printable(line)}\n")
    sys.stderr.flush()


@contextmanager
def status(text: str, *, show: bool) -> Iterator[Callable[[str], None]]:
    """Show that something is being worked on, on standard error and only on a terminal.

    Yields a function that says what is being worked on from then on.
    """
    if not (show and sys.stderr.isatty()):
        yield lambda text: None
        return
    from rich.console import Console  # only here: see rendering.layout

    with Console(stderr=True).status(printable(text)) as shown:
        yield lambda text: shown.update(printable(text))


def told(shown: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that tells of long work: in the status where there is one, else as lines, once each."""
    if sys.stderr.isatty():
        return shown
    said: set[str] = set()

    def tell(text: str) -> None:
        if text not in said:
            said.add(text)
            complain(text)

    return tell
