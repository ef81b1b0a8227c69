"""Folders in the system's temporary folder for what a child is told and answers, which no killed process leaves behind.

A process that is killed cannot remove its folder, so the next one of the same kind does. A folder in use is locked
(flock), which the kernel releases however its process ends. A lock and not a process id: it also means something to a
container that sees the same /tmp and other processes.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "legroom-"
YOUNG_S = 60.0  # made, and perhaps not locked yet


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Yield a new folder, which is removed afterwards; those that killed processes left are removed before.

    Args:
        kind: a word for its name, `legroom-KIND-…`.

    Raises:
        OSError: it cannot be made.
    """
    clear_left_folders(kind)
    path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks: it stays if this process is killed
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def clear_left_folders(kind: str) -> None:
    """Remove this user's folders of a kind that nobody has locked."""
    named = re.compile(rf"{PREFIX}{kind}-\w+")
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if named.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_unlocked(Path(entry.path))


def _remove_unlocked(path: Path) -> None:
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or time.time() - about.st_ctime < YOUNG_S:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
