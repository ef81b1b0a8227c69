"""Rehearsals of JAX programs, kept: tracing and compiling take minutes, and the same program comes out the same.

A rehearsal is known by its command, folder, variables, card and limits, and by every file that the program read: its
modules, those of the libraries (a new version has new files) and its data. One that has changed, and the program is run
again. What a program read before it imported jax is known only where Python loaded it, so the settings files beside the
program and in the working directory count as read. What it asks a network or a clock is not seen; `--again` runs it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import legroom
from legroom.backends.program.launching import here
from legroom.machine.cache import cache_folder, read_json, write_json
from legroom.model.rehearsal import Rehearsal

if TYPE_CHECKING:
    from legroom.backends.program.rehearsing import RehearsalPlan

VERSION = 2  # 2: memory that arrays share counts once
SETTINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
MOST_FILES = 20_000
# what a program fails with again as long as its files are the same
OWN_FAILURES = ("AssertionError", "AttributeError", "IndexError", "KeyError", "TypeError", "ValueError", "ZeroDivision")
# variables of a terminal or a session, which no training reads
PASSING = ("_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES", "WINDOWID", "DISPLAY")
PASSING_PREFIXES = ("TERM", "SSH_", "XDG_SESSION", "VSCODE_", "DBUS_", "LEGROOM_", "TMUX", "STY", "PYTEST_")


def find_kept(command: Sequence[str], plan: RehearsalPlan, variables: Mapping[str, str]) -> Rehearsal | None:
    """Return what came of the same rehearsal before; None where there was none, or a file has changed."""
    kept = read_json(_file(command, plan, variables))
    if not isinstance(kept, dict) or not all(_state(path) == state for path, state in kept.get("files", {}).items()):
        return None
    if set(_settings(command)) - set(kept["files"]):
        return None
    from pydantic import TypeAdapter, ValidationError

    try:
        found = TypeAdapter(Rehearsal).validate_python(kept["rehearsal"])
    except ValidationError:  # of another version of ours
        return None
    note = f"known from a rehearsal of {kept['when']}; the program was not run (--again runs it)"
    return replace(found, notes=(*found.notes, note))


def keep(
    found: Rehearsal, read: Iterable[str], command: Sequence[str], plan: RehearsalPlan, variables: Mapping[str, str]
) -> None:
    """Keep a rehearsal that is of JAX alone and came to its end; others are run again."""
    whole = found.stopped in ("repeats", "finished", "out-of-memory") and found.card is not None
    if not whole or not found.jax or found.torch or found.unmodelled:
        return
    if found.exit_code and not found.failure.startswith(OWN_FAILURES):  # a missing package or file may come
        return
    paths = {*read, *_settings(command)}
    if len(paths) > MOST_FILES:
        return
    states = {path: _state(path) for path in sorted(paths)}  # None: one that was not there
    when = datetime.now().strftime("%Y-%m-%d %H:%M")
    write_json(_file(command, plan, variables), {"when": when, "files": states, "rehearsal": asdict(found)})


def _file(command: Sequence[str], plan: RehearsalPlan, variables: Mapping[str, str]) -> Path:
    """Return where the rehearsal is kept: its name says all that it depends on but files."""
    lasting = sorted(
        (name, value)
        for name, value in variables.items()
        if name not in PASSING and not name.startswith(PASSING_PREFIXES)
    )
    interpreter = shutil.which(command[0]) or command[0]
    asked = {**plan.for_guest(), "real_limit": None, "seconds": plan.seconds, "updates": plan.updates}
    parts = VERSION, legroom.__version__, os.path.realpath(interpreter), tuple(command), here(), asked, lasting
    return cache_folder() / "rehearsals" / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.json"


def _settings(command: Sequence[str]) -> Iterator[str]:
    """Yield files that a program may read before it imports jax: those it is given, and settings beside it."""
    given = [Path(word.rpartition("=")[2]) for word in command]
    folders = {Path(here()), *(path.absolute().parent for path in given if path.suffix == ".py" and path.is_file())}
    yield from (str(path.absolute()) for path in given if path.is_file())
    for folder in folders:
        with suppress(OSError):  # a folder that is gone, or may not be listed
            yield from (str(path) for path in folder.iterdir() if path.suffix in SETTINGS and path.is_file())


def _state(path: str) -> list[Any] | None:
    """Return what changes when a file does; None where it is gone."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]
