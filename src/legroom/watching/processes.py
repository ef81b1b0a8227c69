"""Processes as /proc shows them in a few microseconds each, and which of a tree is the trainer and which are workers.

The rule of roles, by what a process was started as, since nobody tells us:

- *Workers* are the children of Python's multiprocessing (its spawn and forkserver command lines; a child that was
  forked and has the command line of its Python parent), of joblib and of Ray, and legroom's own light ones.
- *Others* are helpers known by name: multiprocessing's resource tracker and the forkserver itself, Ray's servers.
- Of the rest, the Python process with the most memory, else the root, is the *trainer*, and so is what has at least
  half of that (a launcher may start several). The rest are others: shells, launchers, compilers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from legroom.model.trace import Role

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_HELPERS = (b"multiprocessing.resource_tracker", b"multiprocessing.semaphore_tracker", b"/raylet", b"/gcs_server",
            b"ray/dashboard", b"ray/_private", b"compile_worker")  # fmt: skip
_WORKERS = (b"multiprocessing.spawn", b"--multiprocessing-fork", b"joblib.externals.loky", b"ray::",
            b"legroom.sharing.worker")  # fmt: skip
_FORKSERVER = b"multiprocessing.forkserver"
YOUNG_S = 3.0  # it may have been seen between fork and exec


@dataclass(frozen=True)
class Resident:
    """Bytes of a process: in RAM written by itself, in RAM of files or shared memory, and asked for in private."""

    anon: int
    shared: int
    asked: int = 0

    @property
    def nbytes(self) -> int:
        """All that is in RAM."""
        return self.anon + self.shared


@dataclass(frozen=True)
class ProcessStatus:
    """Who a process is: its parent, when it began (a process id may be given again), its processor time and faults."""

    parent: int
    began: int
    cpu_s: float
    zombie: bool
    faults: int = 0  # pages that it got without reading a file: new ones, and copies of those that it shared


def resident(pid: int) -> Resident | None:
    """Return the memory that the kernel has counted for a process, None when it is gone."""
    fields = _read(f"{pid}/statm").split()
    if not fields:
        return None
    shared = int(fields[2]) * PAGE
    return Resident(int(fields[1]) * PAGE - shared, shared, int(fields[5]) * PAGE)


def status(pid: int) -> ProcessStatus | None:
    """Return who a process is, None when it is gone."""
    fields = _read(f"{pid}/stat").rpartition(b")")[2].split()  # its name, before that, may hold spaces and brackets
    if not fields:
        return None
    cpu_s = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return ProcessStatus(int(fields[1]), int(fields[19]), cpu_s, fields[0] in b"ZX", int(fields[7]))


def peak_and_files(pid: int) -> tuple[int, int]:
    """Return the most that a process ever had in RAM, and what it has of files there now; 0 when it is gone."""
    text = _read(f"{pid}/status")
    return _kib_after(text, b"VmHWM:") or 0, _kib_after(text, b"RssFile:") or 0


def memory_available() -> int | None:
    """Return what the kernel says could be had without swapping."""
    return _kib_after(_read("meminfo"), b"MemAvailable:")


def _kib_after(text: bytes, name: bytes) -> int | None:
    _, found, rest = text.partition(name)
    return int(rest.split(None, 1)[0]) * 1024 if found else None


def command_line(pid: int) -> bytes:
    """Return the arguments of a process separated by zero bytes, empty when it is gone."""
    return _read(f"{pid}/cmdline")


def _read(name: str, most: int = 4096) -> bytes:
    """Return the beginning of a file of /proc, empty when it is gone; opening a Python file takes three times as
    long."""
    try:
        descriptor = os.open(f"/proc/{name}", os.O_RDONLY)
    except OSError:
        return b""
    try:
        text = os.read(descriptor, most)
        while len(text) < most and (more := os.read(descriptor, most - len(text))):
            text += more
        return text
    except OSError:
        return b""
    finally:
        os.close(descriptor)


@dataclass
class KnownProcess:
    """What is known of a process so far."""

    parent: int
    command: bytes
    seen_s: float

    @property
    def is_python(self) -> bool:
        return b"python" in self.command.partition(b"\0")[0].rpartition(b"/")[2]


class Roles:
    """Remembers who is who, and looks again while a process may still turn into something else."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._known: dict[int, KnownProcess] = {}

    def add(self, pid: int, parent: int, now_s: float) -> bool:
        """Meet a process; return whether it is a fork that has its parent's memory."""
        known = self._known[pid] = KnownProcess(parent, command_line(pid), now_s)
        return self._is_fork(known)

    def forget(self, pid: int) -> None:
        self._known.pop(pid, None)

    def of(self, nbytes: Mapping[int, int], now_s: float) -> dict[int, Role]:
        """Return each process' role; `nbytes` decides between equals."""
        for pid in nbytes:
            known = self._known[pid]
            if now_s - known.seen_s < YOUNG_S:
                known.command = command_line(pid) or known.command
        fixed = {pid: self._fixed(pid) for pid in nbytes}
        free = [pid for pid, role in fixed.items() if role is None]
        python = [pid for pid in free if self._known[pid].is_python]
        candidates = python or [self._root if self._root in free else pid for pid in free[:1]]
        least = max((nbytes[pid] for pid in candidates), default=0) / 2
        trainers = {pid for pid in candidates if nbytes[pid] >= least}
        return {pid: role or ("trainer" if pid in trainers else "others") for pid, role in fixed.items()}

    def _fixed(self, pid: int) -> Role | None:
        known = self._known[pid]
        if any(name in known.command for name in _HELPERS):
            return "others"
        if any(name in known.command for name in _WORKERS):
            return "workers"
        if pid == self._root:
            return None
        if _FORKSERVER in known.command:
            return "workers" if self._is_fork(known) else "others"
        return "workers" if known.is_python and self._is_fork(known) else None

    def _is_fork(self, known: KnownProcess) -> bool:
        parent = self._known.get(known.parent)
        return parent is not None and bool(known.command) and parent.command == known.command
