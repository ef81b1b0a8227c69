"""The cheap files of a process under /proc: a few microseconds each, where the exact memory takes a millisecond."""

from __future__ import annotations

import os
from dataclasses import dataclass

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_HEAVY_LIBRARIES = (b"libtorch", b"jaxlib", b"libtensorflow", b"libjax")


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
class Status:
    """Who a process is: its parent, when it began (a process id may be given again), its processor time and faults.

    Args:
        faults: pages that it got without reading a file: new ones, and copies of those that it shared.
    """

    parent: int
    began: int
    cpu_s: float
    zombie: bool
    faults: int = 0


def resident(pid: int) -> Resident | None:
    """Return the memory that the kernel has counted for a process, None when it is gone."""
    text = _read(pid, "statm")
    if text is None:
        return None
    fields = text.split()
    shared = int(fields[2]) * PAGE
    return Resident(int(fields[1]) * PAGE - shared, shared, int(fields[5]) * PAGE)


def status(pid: int) -> Status | None:
    """Return who a process is, None when it is gone."""
    text = _read(pid, "stat")
    if text is None:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name may hold spaces and brackets
    return Status(
        int(fields[1]), int(fields[19]), (int(fields[11]) + int(fields[12])) / TICKS_PER_S, fields[0] in b"ZX",
        int(fields[7]),
    )  # fmt: skip


def peak_and_files(pid: int) -> tuple[int, int]:
    """Return the most that a process ever had in RAM, and what it has of files there now; 0 when it is gone."""
    text = _read(pid, "status") or b""
    return _kib_after(text, b"VmHWM:"), _kib_after(text, b"RssFile:")


def _kib_after(text: bytes, name: bytes) -> int:
    _, found, rest = text.partition(name)
    return int(rest.split(None, 1)[0]) * 1024 if found else 0


def command_line(pid: int) -> bytes:
    """Return the arguments of a process separated by zero bytes, empty when it is gone."""
    return _read(pid, "cmdline", 4096) or b""


def maps_heavy_library(pid: int) -> bool:
    """Say whether a process has loaded torch, jax or the like; a millisecond or two."""
    text = _read(pid, "maps", 1 << 23) or b""
    return any(name in text for name in _HEAVY_LIBRARIES)


def memory_available() -> int | None:
    """Return what the kernel says could be had without swapping."""
    text = _read("meminfo", "") or b""
    for line in text.splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _read(pid: int | str, name: str, most: int = 4096) -> bytes | None:
    """Return a file's beginning; plain system calls, since opening a Python file takes three times as long."""
    try:
        descriptor = os.open(f"/proc/{pid}/{name}" if name else f"/proc/{pid}", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(descriptor, most)
        while len(text) < most and (more := os.read(descriptor, most - len(text))):
            text += more
        return text or None
    except OSError:
        return None
    finally:
        os.close(descriptor)
