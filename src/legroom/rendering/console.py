"""Where output goes: results to standard output, progress to standard error, colour only on a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from json import dumps
from shutil import get_terminal_size
from typing import Any, TextIO

from legroom.rendering.document import Document, Part
from legroom.rendering.layout import draw, wrap
from legroom.rendering.printable import printable

JSON_VERSION = 1  # of every document that a command prints or writes
PLAIN_WIDTH = 100  # into a file or a pipe, where there is no terminal to ask
DRAW_EVERY_S = 0.25


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


class LiveLines:
    """Lines that stay in their place at the bottom of a terminal; what is said goes above them.

    Showing is never worth the work that is shown: a reader that went away or a character that cannot be written is
    ignored.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream, self._lock = stream, threading.RLock()  # memory is sampled in a thread of its own
        self._drawn = ""

    @property
    def stream(self) -> TextIO:
        return self._stream or sys.stderr

    @property
    def width(self) -> int:
        """Letters of a line that is drawn: one less than there are, so that the cursor stays on it."""
        return max(get_terminal_size().columns - 1, 20)

    def draw(self, lines: Sequence[str]) -> None:
        """Draw these in place of the last ones; without any, those are wiped."""
        with self._lock:
            wipe, self._drawn = self._wipe(), "\n".join(lines)
            self._write(wipe + self._drawn)

    def say(self, text: str) -> None:
        """Write a line that stays."""
        with self._lock:
            self._write(f"{self._wipe()}{printable(text)}\n{self._drawn}")

    def keep(self) -> None:
        """Leave what is drawn where it is."""
        with self._lock:
            self._write("\n" if self._drawn else "")
            self._drawn = ""

    def _wipe(self) -> str:
        up = "\x1b[1A" * self._drawn.count("\n")
        return f"\r{up}\x1b[J" if self._drawn else ""

    def _write(self, text: str) -> None:
        encoding = self.stream.encoding or "utf-8"
        with suppress(OSError, ValueError):
            self.stream.write(text.encode(encoding, "replace").decode(encoding))
            self.stream.flush()


LINES = LiveLines()


def is_drawn_on(stream: TextIO) -> bool:
    """Whether a line can stay in its place there."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def complain(line: str) -> None:
    """Write a line for the user to standard error."""
    LINES.say(f"legroom: {line}")


@contextmanager
def status(text: str, *, show: bool) -> Iterator[Callable[[str], None]]:
    """Show that something is being worked on and for how long, on standard error and only on a terminal.

    Yields a function that says what is being worked on from then on.
    """
    if not (show and sys.stderr.isatty()):
        yield lambda text: None
        return
    now, began, over = [text], time.monotonic(), threading.Event()

    def draw_again() -> None:
        while True:
            LINES.draw(wrap(f"{printable(now[-1])} ({time.monotonic() - began:.0f} s)", LINES.width))
            if over.wait(DRAW_EVERY_S):
                return

    drawing = threading.Thread(target=draw_again, daemon=True)
    drawing.start()
    try:
        yield now.append
    finally:
        over.set()
        drawing.join()
        LINES.draw(())


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
