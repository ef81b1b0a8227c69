"""`legroom watch -- CMD...`: any training script, its memory over time, and what happened to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from legroom.cli.commands import TrainProgramCommand, WatchCommand
from legroom.cli.output import check_writable
from legroom.errors import EXIT_GOOD, BadInput
from legroom.model.files import write_whole
from legroom.model.trace import Watched
from legroom.rendering.document import Document
from legroom.rendering.printable import printable
from legroom.rendering.watch_text import WATCH, WatchDisplay, watched_document, watched_json
from legroom.units import parse_size
from legroom.watching.command import Signals, write_all
from legroom.watching.watch import attach, watch

JSON_FILE, PAGE_FILE = "watch.json", "watch.html"


def run(asked: WatchCommand) -> int:
    if bool(asked.command) == (asked.pid is not None):
        problem = "give a command or --pid, not both" if asked.command else "no command given"
        raise BadInput(f"watch: {problem}", hint="legroom watch -- python train.py")
    if not 0.01 <= asked.interval <= 3600:
        raise BadInput(f"--interval {asked.interval:g} is out of range", hint="0.01 to 3600 seconds")
    nbytes = parse_size(asked.limit, what="--limit") if asked.limit is not None else None
    check_writable("--html", asked.html, force=asked.force)
    display = display_for(asked.out, force=asked.force)
    with Signals() as signals:  # held until the result is written
        how: Any = {"interval_s": asked.interval, "limit": nbytes, "display": display, "signals": signals}
        if asked.command:
            found = watch(asked.command, **how, output_to_stderr=asked.json)
        else:
            found = attach(asked.pid or 0, **how)
        report(asked, found, display, watched_document(found), watched_json(found))
    return EXIT_GOOD if found.exit_code is None else found.exit_code


def display_for(out: Path | None, command: str = WATCH, *, force: bool = False) -> WatchDisplay:
    """Return what the watching shows itself on, which also logs to a folder.

    Raises:
        BadInput: the folder cannot be made or written to.
    """
    if out is not None:
        _make_folder(out)
        for name in (JSON_FILE, PAGE_FILE):
            check_writable("--out", out / name, force=force)
    may_draw = _may_draw()
    colour = may_draw and "NO_COLOR" not in os.environ
    return WatchDisplay(_to_stderr, live=may_draw, colour=colour, command=command).logging(out)


def report(
    asked: WatchCommand | TrainProgramCommand, found: Watched, display: WatchDisplay, text: Document, document: str
) -> None:
    """Write what came of a watching everywhere it was asked for; the command's own exit code is not touched by it."""
    display.end(text)
    pages = [asked.html] if asked.html is not None else []
    if asked.out is not None:
        _write({asked.out / JSON_FILE: document})
        pages.append(asked.out / PAGE_FILE)
    if pages:
        # not before: the time of the import would count as the watching's
        from legroom.rendering.page import whole_page

        _write(dict.fromkeys(pages, whole_page(watched_document(found, everything=True))))
    if asked.json:
        with suppress(OSError):  # the command's exit code is ours, whoever reads
            write_all(1, f"{document}\n".encode())


def _may_draw() -> bool:
    """Say whether a line at the bottom of the terminal disturbs nobody: what else is written there has to go by
    us."""
    if not os.isatty(2) or os.environ.get("TERM") == "dumb":
        return False
    return not os.isatty(1) or os.path.samestat(os.fstat(1), os.fstat(2))


def _to_stderr(data: bytes) -> None:
    write_all(2, data)


def _tell(text: str) -> None:
    with suppress(OSError):
        _to_stderr(printable(text).encode())


def _make_folder(out: Path) -> None:
    """Make the folder before hours are spent on what is to be written there.

    Raises:
        BadInput: it cannot be made or written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(error.strerror or str(error), path=out, hint="--out names a folder") from None
    if not os.access(out, os.W_OK):
        raise BadInput("cannot be written to", path=out)


def _write(files: Mapping[Path, str]) -> None:
    for file, text in files.items():
        try:
            write_whole(file, text.encode())
            _tell(f"written: {file}\n")
        except OSError as error:  # the command's own exit code is what counts
            _tell(f"legroom watch: {file}: {error.strerror}\n")
