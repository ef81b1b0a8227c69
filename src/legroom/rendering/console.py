"""Where output goes: results to standard output, progress to standard error, colour only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PLAIN_WIDTH = 100  # into a file or a pipe, where there is no terminal to ask


def say(result: Any) -> None:
    """Write a text, or anything rich can draw, to standard output."""
    if isinstance(result, str):
        sys.stdout.write(result if result.endswith("\n") else result + "\n")
    else:
        from rich.console import Console  # JSON output does not pay for it

        console = Console(soft_wrap=False)
        if not console.is_terminal:
            console = Console(width=PLAIN_WIDTH)
        console.print(result)
    sys.stdout.flush()


@contextmanager
def status(text: str, *, show: bool) -> Iterator[None]:
    """Show that something is being worked on, on standard error and only on a terminal."""
    if not (show and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield
