"""The folder in which the processes of one run share arrays: found, kept as long as somebody uses it, removed.

Which processes are one run: the first one that shares, or starts workers, names the folder in `LEGROOM_SHARED`, which
every process inherits that is started after that, however it is started. Processes that `multiprocessing` started
before that, as SB3's SubprocVecEnv and gymnasium's AsyncVectorEnv do, find each other too: they name the folder after
the process that started them.

Where: in the temporary folder, which is a disk on most machines, and not in /dev/shm: pages of a file are the page
cache's, which the kernel drops when memory gets tight (500 MB took 511 MB off MemAvailable in /dev/shm and 60 to 90 MB
as a file; kernel 6.18, 2026-11), and containers often have a /dev/shm of 64 MB.

How it ends: everyone who uses the folder holds a shared flock on it, which the kernel releases however a process ends.
The process that named it removes it at its end; arrays that others have mapped stay theirs. After a crash, whoever uses
it last removes it, or the next run, which finds a folder that nobody holds. A lock and not a process id: it also means
something to a container that sees the same /tmp and other processes.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path

from legroom.machine.temporary_folder import is_ours, lock

VARIABLE = "LEGROOM_SHARED"
OFF = "off"  # as the variable's value: every process builds its own
PREFIX = "legroom-shared-"
ATTEMPTS = 100  # to join a folder that others keep removing; one is enough but for a race


@dataclass(frozen=True)
class Folder:
    """A folder that this process holds."""

    path: Path
    descriptor: int  # of the folder itself, with the lock; forked processes inherit it and so hold the folder too
    pid: int  # who this process is: a forked one must not remove it


def name_folder() -> Path:
    """Return where this run's folder is or would be, and from now on tell it to every process that is started."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    path = Path(tempfile.gettempdir(), _name())
    if path.exists() and not is_ours(path):
        path = path.with_name(f"{path.name}-{os.urandom(8).hex()}")
    os.environ[VARIABLE] = str(path)
    if multiprocessing.parent_process() is None:  # one that others started names it after them, and they may live on
        atexit.register(_end, path, os.getpid())
    return path


def join() -> Folder:
    """Return this run's folder, which is created where there is none."""
    path = name_folder()
    descriptor, made = _hold(path)
    if made:
        for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            _remove_left(left)
    folder = Folder(path, descriptor, os.getpid())
    if multiprocessing.parent_process() is None:
        atexit.register(_leave, folder)
    else:  # such processes end without atexit and with finalizers of multiprocessing's own
        Finalize(None, _leave, args=(folder,), exitpriority=0)
    return folder


def _name() -> str:
    """Return a name with a process id and when it began, in the kernel's ticks: so it is never used twice."""
    parent = multiprocessing.parent_process()
    pid, began = os.getpid() if parent is None or parent.pid is None else parent.pid, "0"
    with suppress(OSError, IndexError):
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{PREFIX}{os.getuid()}-{pid}-{began}"


def _hold(path: Path) -> tuple[int, bool]:
    """Create the folder unless it is there, and lock it; return its descriptor and whether it was made."""
    made = False
    for _ in range(ATTEMPTS):
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
            made = True
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # removed again in between
            continue
        try:
            lock(descriptor, shared=True)  # waits for one who is just removing it
            if path.name.startswith(PREFIX) and not is_ours(path):
                raise PermissionError(f"{path} belongs to another user")
            if _is_there(path, descriptor):
                return descriptor, made
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise FileNotFoundError(f"{path} is being removed again and again")


def _is_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _end(path: Path, pid: int) -> None:
    """Remove the folder at the end of the process that named it."""
    if os.getpid() == pid:
        _remove(path)


def _leave(folder: Folder) -> None:
    """Remove the folder if nobody else uses it; whoever has named it may have been killed."""
    if os.getpid() == folder.pid and folder.path.name.startswith(PREFIX):
        _remove_unused(folder.path, folder.descriptor)


def _remove_left(path: Path) -> None:
    """Remove the folder of a run that could not do it itself."""
    with suppress(OSError):
        if is_ours(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                _remove_unused(path, descriptor)
            finally:
                os.close(descriptor)


def _remove_unused(path: Path, descriptor: int) -> None:
    with suppress(OSError):  # BlockingIOError: somebody uses it
        lock(descriptor)
        if _is_there(path, descriptor):
            _remove(path)


def _remove(path: Path) -> None:
    """Remove the folder with the files that `shared` makes; with anything else in it, it stays."""
    with suppress(OSError):
        for file in path.iterdir():
            if file.suffix in (".arrays", ".lock", ".new"):
                file.unlink(missing_ok=True)
        path.rmdir()
