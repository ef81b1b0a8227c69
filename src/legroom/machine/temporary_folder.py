"""Folders in the system's temporary folder for what a child is told and answers, which no killed process leaves behind.

A process that is killed cannot remove its folder, so the next one does, of whatever kind. A folder in use is locked
(flock), which the kernel releases however its process ends; it gets its name only once it is locked. A lock and not a
process id: it also means something to a container that sees the same /tmp and other processes.
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

PREFIX, UNNAMED = "legroom-", "legroom-new-"
KINDS = ("base", "compile", "env", "patched", "profile", "rehearsal", "test")
YOUNG_S = 60.0  # what has no name yet may be about to be locked
_NAMED = re.compile(rf"{PREFIX}(?:{'|'.join(KINDS)})-\w+")


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Yield a new folder, which is removed afterwards; those that killed processes left are removed before.

    Args:
        kind: one of `KINDS`; its name is `legroom-KIND-...`.

    Raises:
        OSError: it cannot be made.
    """
    assert kind in KINDS, kind
    clear_left_folders()
    made = Path(tempfile.mkdtemp(prefix=UNNAMED))
    path = made.with_name(f"{PREFIX}{kind}-{made.name.removeprefix(UNNAMED)}")
    descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks: it stays if this process is killed
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        made.rename(path)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def clear_left_folders() -> None:
    """Remove this user's folders that no process has locked."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(OSError):
                    _remove_unlocked(Path(entry.path))


def _remove_unlocked(path: Path) -> None:
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        return
    young = time.time() - about.st_ctime < YOUNG_S
    if not (_NAMED.fullmatch(path.name) or (path.name.startswith(UNNAMED) and not young)):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)
