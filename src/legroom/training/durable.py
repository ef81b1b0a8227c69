"""Directories that appear whole or not at all, and what is left of processes that were killed while making one.

A directory is filled under a temporary name elsewhere on the same file system, forced to the disk, and renamed; it is
deleted in the reverse order, renamed out first. The temporary name says which process it belongs to (its id, and when
it started, since ids are used again), so that another can clear away what a dead one left.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from legroom.model.files import sync_directory

PREFIX = ".tmp-"
_TEMPORARY = re.compile(r"\.tmp-(\d+)-(\d+)-\d+")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_numbers = count()


def new_temporary(parent: Path) -> Path:
    """Make and return a directory that only this process writes to."""
    while True:
        path = parent / f"{PREFIX}{os.getpid()}-{_started(os.getpid())}-{next(_numbers)}"
        try:
            path.mkdir()
        except FileExistsError:  # of a forked child with our numbers, or of a system that does not say when it started
            continue
        return path


def clear_left_over(parent: Path) -> list[Path]:
    """Delete the temporary directories of processes that are gone; return them."""
    gone = []
    for path in sorted(parent.glob(f"{PREFIX}*")):
        match = _TEMPORARY.fullmatch(path.name)
        if match and not _is_alive(int(match[1]), match[2]):
            shutil.rmtree(path, ignore_errors=True)
            gone.append(path)
    return gone


def put_in_place(made: Path, path: Path) -> None:
    """Give the finished directory its name, in one step; what had the name before is deleted afterwards."""
    try:
        made.rename(path)
    except OSError:
        if not path.is_dir():
            raise
        if not _exchange(made, path):  # not everywhere can two names be exchanged in one step
            old = new_temporary(made.parent)
            path.rename(old / "old")
            made.rename(path)
            made = old
        sync_directory(path.parent)
        shutil.rmtree(made, ignore_errors=True)
        return
    sync_directory(path.parent)


def delete(path: Path, parent: Path) -> None:
    """Delete a directory such that nobody ever sees a part of it under its name.

    Args:
        parent: where temporary directories go.
    """
    temporary = new_temporary(parent)
    path.rename(temporary / path.name)
    shutil.rmtree(temporary, ignore_errors=True)


def sync_all(paths: Sequence[Path]) -> None:
    """Force files to the disk, at the same time: a journal commits once for all that wait (24 ms to 11 ms for six)."""
    with ThreadPoolExecutor(max_workers=min(8, max(1, len(paths)))) as threads:
        for _ in threads.map(_sync_file, paths):
            pass


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; return whether the system could."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    failed: int = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return failed == 0


def _started(pid: int) -> str:
    """Return when the process started, in the kernel's ticks; "0" where the system does not say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "0"
    return text.rpartition(")")[2].split()[19]  # the name in parentheses may hold anything


def _is_alive(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return started in ("0", _started(pid))
