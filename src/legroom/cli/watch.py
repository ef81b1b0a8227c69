"""`legroom watch -- CMD...`: any training script, its memory over time, and what happened to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from legroom.cli.help import BUDGET, OUTPUT, rarely
from legroom.cli.writing import Force, Html, check_writable
from legroom.errors import EXIT_GOOD, BadInput
from legroom.machine.history import VARIABLE
from legroom.model.files import write_whole
from legroom.model.trace import Watched
from legroom.rendering.document import Document
from legroom.rendering.printable import printable
from legroom.rendering.watch_text import WATCH, WatchDisplay, watched_document, watched_json
from legroom.units import parse_size
from legroom.watching.command import Signals, write_all
from legroom.watching.watch import Display, LoggedDisplay, attach, watch

JSON_FILE, PAGE_FILE = "watch.json", "watch.html"


def run(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD...", help="Your command, as you would type it.")
    ] = None,
    pid: Annotated[int | None, typer.Option(metavar="PID", help="Watch a running process instead.")] = None,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", rich_help_panel=rarely(OUTPUT), help="Time between samples.")
    ] = 0.25,
    limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", rich_help_panel=BUDGET, help="Host memory to forecast against; nothing is killed."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", rich_help_panel=OUTPUT, help="Write watch.json and watch.html there.")
    ] = None,
    html: Html = None,
    force: Force = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", rich_help_panel=OUTPUT, help="Print JSON; the command's own output goes to standard error."
        ),
    ] = False,
) -> int:
    """Watch the memory of any command: by role, over time, with a verdict, a forecast and, if it dies, the reason.
    Its output, signals and exit code pass through.

    The exit code is 128 + signal where a signal ended it; what watch prints goes to standard error. Verdicts: leak
    (still growing steadily), growing (not settled yet), ok. Roles: trainer (the process that has loaded torch or jax,
    else the largest Python), env workers (children of multiprocessing, Ray, joblib), others.

    \b
    legroom watch -- python train.py
    legroom watch --html memory.html -- python train.py
    legroom watch --limit 8GiB --out watched -- python train.py --seed 1
    legroom watch --pid 12345
    """
    if bool(command) == (pid is not None):
        problem = "give a command or --pid, not both" if command else "no command given"
        raise BadInput(f"watch: {problem}", hint="legroom watch -- python train.py")
    if not 0.01 <= interval <= 3600:
        raise BadInput(f"--interval {interval:g} is out of range", hint="0.01 to 3600 seconds")
    nbytes = parse_size(limit, what="--limit") if limit is not None else None
    check_writable("--html", html, force=force)
    display, shown = displays(out, force=force)
    with Signals() as signals:  # held until the result is written
        if command:
            found = watch(
                command, interval_s=interval, limit=nbytes, display=shown, signals=signals, output_to_stderr=json
            )
        else:
            found = attach(pid or 0, interval_s=interval, limit=nbytes, display=shown, signals=signals)
        report(found, display, watched_document(found), watched_json(found), out=out, html=html, json=json)
    if os.environ.get(VARIABLE) != "off":
        from legroom.cli.watch_history import remember_watched  # its imports would count as the watching's

        remember_watched(found)
    return EXIT_GOOD if found.exit_code is None else found.exit_code


def displays(out: Path | None, command: str = WATCH, *, force: bool = False) -> tuple[WatchDisplay, Display]:
    """Return what writes to the terminal, and what the watching shows itself on, which also logs to a folder.

    Raises:
        BadInput: the folder cannot be made or written to.
    """
    if out is not None:
        _make_folder(out)
        for name in (JSON_FILE, PAGE_FILE):
            check_writable("--out", out / name, force=force)
    may_draw = _may_draw()
    colour = may_draw and "NO_COLOR" not in os.environ
    display = WatchDisplay(_to_stderr, live=may_draw, colour=colour, command=command)
    return display, display if out is None else LoggedDisplay(display, out)


def report(
    found: Watched, display: WatchDisplay, text: Document, document: str,
    *, out: Path | None, html: Path | None, json: bool,
) -> None:  # fmt: skip
    """Write what came of a watching everywhere it was asked for; the command's own exit code is not touched by it."""
    display.end(text)
    pages = [html] if html is not None else []
    if out is not None:
        _write({out / JSON_FILE: document})
        pages.append(out / PAGE_FILE)
    if pages:
        # not before: the time of the import would count as the watching's
        from legroom.rendering.page import whole_page

        _write(dict.fromkeys(pages, whole_page(watched_document(found, everything=True))))
    if json:
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
