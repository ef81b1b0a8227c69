"""Memory of a process tree, as Linux accounts for it.

The memory of a tree is the sum of PSS (proportional set size): a page that several processes share is divided among
them, so pages shared inside the tree are counted once. RSS counts them once per process, which overstates forked
workers many times over; USS leaves shared pages out, which makes it the right figure for what one more worker costs.

`/proc/<pid>/smaps_rollup` costs 0.6-2 ms per process, so a sampler at 15 ms is affordable beside a training run.
A sampler misses what lives shorter than its interval; `ProcessMemory.rss_peak` (VmHWM) is kept by the kernel and
misses nothing, but knows only one process at a time.

What is read several times a second is named by text: pathlib interns every part of a path, and the table of interned
strings grows by a megabyte after some minutes of that.
"""

import ctypes
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
KIB = 1024


@dataclass(frozen=True)
class ProcessMemory:
    """One process in bytes. `pss_file` is its share of mapped files (libraries), `anon` what it wrote itself."""

    pid: int
    pss: int
    uss: int
    rss: int
    anon: int
    pss_file: int
    rss_file: int
    rss_peak: int = 0


@dataclass(frozen=True)
class TreeMemory:
    """All processes of a tree at one moment."""

    processes: Mapping[int, ProcessMemory]

    @property
    def pss(self) -> int:
        return sum(process.pss for process in self.processes.values())

    @property
    def alone(self) -> int:
        """PSS as it would be if no process outside mapped the same libraries: pages of files count once, in full."""
        everyone = self.processes.values()
        shared = sum(process.pss_file for process in everyone)
        return self.pss + max(max((process.rss_file for process in everyone), default=0) - shared, 0)

    @property
    def uss(self) -> int:
        return sum(process.uss for process in self.processes.values())


def process_memory(pid: int | str, *, proc: Path = PROC) -> ProcessMemory | None:
    """Return the memory of one process (`"self"` for this one), None when it is gone or has no memory of its own."""
    try:
        rollup, status = (_kib_fields(_read(f"{proc}/{pid}/{name}")) for name in ("smaps_rollup", "status"))
    except OSError:  # it ended between listing and reading; a zombie raises too
        return None
    if "Pss" not in rollup:
        return None
    anon = rollup.get("Anonymous", 0)
    return ProcessMemory(
        pid=status.get("Pid", 0) // KIB if pid == "self" else int(pid),
        pss=rollup["Pss"],
        uss=rollup.get("Private_Clean", 0) + rollup.get("Private_Dirty", 0),
        rss=rollup.get("Rss", 0),
        anon=anon,
        # Kernels before 5.10 have no Pss_Anon; anonymous memory that is not shared by a fork has Pss == Rss.
        pss_file=rollup["Pss"] - rollup.get("Pss_Anon", min(anon, rollup["Pss"])),
        rss_file=rollup.get("Rss", 0) - anon,
        rss_peak=status.get("VmHWM", 0),
    )


def descendants(pid: int, *, proc: Path = PROC) -> list[int]:
    """Return `pid` and all its living descendants, parents before children."""
    found, queue = [], [pid]
    while queue:
        found.append(current := queue.pop())
        queue.extend(_children(current, proc))
    return found


def session_members(leader: int, *, proc: Path = PROC) -> list[int]:
    """Return the living processes of a session, also those whose parents are gone."""
    found = []
    for entry in proc.iterdir() if proc.is_dir() else ():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == leader and state not in "ZX":
                    found.append(int(entry.name))
    return found


def tree_memory(pid: int, *, proc: Path = PROC) -> TreeMemory:
    """Return the memory of `pid` and its descendants now; empty when it is gone."""
    measured = ((each, process_memory(each, proc=proc)) for each in descendants(pid, proc=proc))
    return TreeMemory({each: memory for each, memory in measured if memory is not None})


def _children(pid: int, proc: Path) -> list[int]:
    children: list[int] = []
    try:
        for task in os.listdir(f"{proc}/{pid}/task"):  # noqa: PTH208
            children += map(int, _read(f"{proc}/{pid}/task/{task}/children").split())
    except OSError:
        pass
    return children


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read()


def _kib_fields(text: bytes) -> dict[str, int]:
    """Return the `Name:  123 kB` lines in bytes (plain numbers, such as Pid, come out times 1024 too)."""
    fields: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(b":")
        value = rest.split()
        if value and value[0].isdigit():
            fields[name.decode()] = int(value[0]) * KIB
    return fields


def give_back() -> None:
    """Give all pages of the C library's heap without content back to the system (0.1 to 1 ms); glibc alone can.

    glibc keeps freed memory for later. That is right while the same sizes come again; after work that is done once,
    such as building what all processes share, or before a process is forked a hundred times, nobody will use it.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def give_back_from(nbytes: int) -> None:
    """From now on, give blocks of this size and more back as soon as they are freed.

    glibc does so at first, but raises the size with every such block: in a process that has large texts now and then,
    they soon lie between small ones that stay, and the heap grows step by step.
    """
    m_mmap_threshold = -3
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(m_mmap_threshold, nbytes)
