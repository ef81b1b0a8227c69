"""Text from a file the user named, or one clear line why there is none.

A run file is a page of text. Whatever is larger, binary, empty or no file at all is refused before it is read, so
that a mistyped path to a checkpoint or a data set costs nothing.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from errno import EAGAIN
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.units import MIB, format_size

LOGS = (".txt", ".log", ".out", ".err")
PERMISSIONS = "check its permissions"
_OUT_OF_MEMORY = re.compile(
    r"(?i)out of (?:\w+ )?memory|unable to allocate|cannot allocate memory|OutOfMemory|RESOURCE_EXHAUSTED|MemoryError|"
    r"bad_alloc|oom[-_ ]?kill|\bKilled\b"
)
LARGEST_FILE = 4 * MIB  # the largest hyperparameter file in public use is under 100 KiB


class Unreadable(BadInput):
    """Something that is named as a file and cannot be read as one."""


def exists(text: str | Path) -> bool:
    """Return whether `text` names anything that can be seen; never raises, unlike `Path.exists` without permission."""
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False


def is_file(text: str | Path) -> bool:
    """Return whether `text` names a regular file; never raises, whatever the text holds."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, embedded NUL
        return False


def is_directory(text: str | Path) -> bool:
    """Return whether `text` names a directory; never raises."""
    try:
        return Path(text).is_dir()
    except (OSError, ValueError):
        return False


def read_text(path: str) -> str:
    """Return the text of the file at `path`.

    Raises:
        BadInput: it is missing, a directory, too large, binary or empty, or may not be read.
    """
    file = Path(path)
    if is_directory(path) and os.access(path, os.R_OK | os.X_OK):
        raise BadInput("is a directory", path=path, hint="name a run file in it")
    if not is_file(path):
        raise _why_not(file)
    try:
        size = file.stat().st_size
        if size > LARGEST_FILE:
            raise BadInput(
                f"is {format_size(size)}, over the {format_size(LARGEST_FILE)} a run file may have",
                path=path,
                hint="name a run file, not data",
            )
        with open(file, "rb", buffering=0, opener=_opened_without_waiting) as stream:
            data = _most_of(stream)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror or error}", path=path, hint=PERMISSIONS) from None
    return decode(data, path)


def _why_not(file: Path) -> BadInput:
    """Return why a path is not one of a file that can be read: a pipe or a device is never opened."""
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        if not file.is_symlink():
            return Unreadable("no such file", path=file, hint=_neighbour(file) or "check the path")
        return Unreadable(f"cannot be read: its link leads nowhere ({file.readlink()})", path=file)
    except (OSError, ValueError) as error:  # ValueError: an embedded NUL
        return Unreadable(f"cannot be read: {getattr(error, 'strerror', None) or error}", path=file, hint=PERMISSIONS)
    if stat.S_ISDIR(mode):
        return Unreadable("cannot be read: Permission denied", path=file, hint=PERMISSIONS)
    return Unreadable("is not a regular file", path=file, hint="name a run file, not a pipe or a device")


def _opened_without_waiting(path: str, flags: int) -> int:
    """Open what may say that it is a file and still wait for ever, as the kernel's log does."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _most_of(stream: Any) -> bytes:
    """Return the content up to the largest that is taken: a file may grow, and some have no size."""
    data = b""
    while len(data) < LARGEST_FILE:
        more = stream.read(LARGEST_FILE - len(data))
        if more is None:  # nothing is there yet, and may never be
            raise OSError(EAGAIN, "it waits for more")
        if not more:
            break
        data += more
    return data


def refuse_log(text: str, path: str) -> None:
    """Refuse the output of a program that ran out of memory, which another command reads.

    Raises:
        BadInput: it is one.
    """
    if path.endswith(LOGS) and _OUT_OF_MEMORY.search(text):
        what = "is the log of a program that ran out of memory, not a run"
        raise BadInput(what, path=path, hint=f"legroom explain {path}")


def decode(data: bytes, path: str | None = None) -> str:
    """Return `data` as text.

    Raises:
        BadInput: it is binary or empty.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise BadInput("is binary data, not a run file", path=path, hint="run files are UTF-8 text: YAML or Python")
    if not text.strip():
        raise BadInput("is empty", path=path, hint="'legroom schema' prints what a run file may hold")
    return text


def _neighbour(file: Path) -> str:
    """Return a hint naming a file beside the missing one that has a similar name."""
    try:
        names = [p.name for p in file.parent.iterdir() if p.is_file()][:2000]
    except (OSError, ValueError):
        return ""
    close = difflib.get_close_matches(file.name, names, n=1)
    return f"did you mean {file.parent / close[0]}?" if close else ""
