"""Folders in the system's temporary folder for what a child is told and answers, which no killed process leaves behind.

A process that is killed cannot remove its folder, so the next one does, of whatever kind. A folder in use is locked
(flock), which the kernel releases however its process ends; it gets its name only once it is locked. A lock and not a
process id: it also means something to a container that sees the same /tmp and other processes.
"""

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
SHORT = "lrr-"  # for Ray, which has sockets below it: their paths have 107 characters at most
KINDS = ("base", "compile", "env", "patched", "profile", "rehearsal", "test")
YOUNG_S = 60.0  # what has no name yet may be about to be locked
_NAMED = re.compile(rf"(?:{PREFIX}(?:{'|'.join(KINDS)})-|{SHORT})\w+")


@contextmanager
def temporary_folder(kind: str, base: str | None = None) -> Iterator[Path]:
    """Yield a new folder, which is removed afterwards; those that killed processes left are removed before.

    Args:
        kind: one of `KINDS`, and its name is `legroom-KIND-...`; or `SHORT`, with which it begins.
        base: the folder that it is in; None: the system's for temporary files.

    Raises:
        OSError: it cannot be made.
    """
    assert kind in (*KINDS, SHORT), kind
    clear_left_folders(base)
    made = Path(tempfile.mkdtemp(prefix=UNNAMED, dir=base))
    path = made.with_name((kind if kind == SHORT else f"{PREFIX}{kind}-") + made.name.removeprefix(UNNAMED))
    descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks: it stays if this process is killed
            lock(descriptor)
        made.rename(path)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def clear_left_folders(base: str | None = None) -> None:
    """Remove this user's folders that no process has locked."""
    with suppress(OSError), os.scandir(base or tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith((PREFIX, SHORT)):
                with suppress(OSError):
                    _remove_unlocked(Path(entry.path))


def _remove_unlocked(path: Path) -> None:
    young = time.time() - path.lstat().st_ctime < YOUNG_S
    if not is_ours(path) or not (_NAMED.fullmatch(path.name) or (path.name.startswith(UNNAMED) and not young)):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        lock(descriptor)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


def is_ours(path: Path) -> bool:
    """Say whether a path is a folder, and this user's."""
    about = path.lstat()
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()


def lock(descriptor: int, *, shared: bool = False) -> None:
    """Lock a folder for this process, alone and without waiting, or together with others.

    Raises:
        OSError: another process has it.
    """
    import fcntl  # which Windows has not got: nothing that needs such a folder runs there

    fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX | fcntl.LOCK_NB)
