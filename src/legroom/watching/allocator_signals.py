"""Cheap samples of the memory a process has in use, exact to the byte or the block.

Resident memory cannot show 64 bytes per step: it moves in pages, and the allocators keep what was freed. They know
better themselves, and asking costs microseconds:

* `sys.getallocatedblocks()`: Python's objects of up to 512 bytes, which live in arenas that malloc never sees;
* `mallinfo2().uordblks + hblkhd`: everything else that was malloc'ed and not freed, NumPy's arrays among it;
* `/proc/self/statm`: writable mappings that neither of the two knows (mmap, stacks of threads), and resident pages.

A sample comes after a garbage collection, since cycles that wait for one are no leak. `gc.freeze()` before the first
makes that cheap: a collection then looks only at what was made since. Where the program has switched the collector off
its cycles are a leak, and none is run here either.

What the sampler itself allocates must not show: the rows lie in arrays made beforehand, and every object of a sample is
gone before the next.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from importlib import import_module

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
USUAL_BLOCK_NBYTES = 96.0  # mean over an interpreter with numpy and gymnasium (2026-11, Python 3.11)
MAPPED_EVERY = 4  # samples; the kernel's figures are coarse, and cost as much as all others together
_CLASS_ROW = re.compile(rb"^\s*\d+\s+(\d+)\s+\d+\s+(\d+)\s+\d+\s*$", re.MULTILINE)


_MALLINFO_FIELDS = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class _Mallinfo2(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later (malloc.h)."""

    _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO_FIELDS]


class Recorder:
    """Samples of this process, kept in arrays that were made beforehand.

    Args:
        capacity: the most samples there can be; those after it are dropped.

    Attributes:
        steps, blocks, malloc, other, resident: one entry per sample; `malloc` is bytes in use, `other` writable bytes
            mapped by neither malloc nor its kin (but Python's arenas are among them).
        own_ns: processor time that sampling has taken.
        has_mallinfo: False where `malloc` had to be taken from the kernel's count of writable memory.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.count, self.own_ns = capacity, 0, 0
        self.steps, self.blocks, self.malloc, self.other, self.resident = (
            array("q", bytes(8 * capacity)) for _ in range(5)
        )
        self._mallinfo = _find_mallinfo()
        self.has_mallinfo = self._mallinfo is not None
        self._mapped = _mapped_reader()
        self._writable = self._resident = self._known = 0

    def record(self, step: int) -> int:
        """Take a sample and return the nanoseconds of processor time it took."""
        began = time.thread_time_ns()
        place = self.count
        if place < self.capacity:
            if gc.isenabled():
                gc.collect()
            self.steps[place] = step
            self.blocks[place] = sys.getallocatedblocks()
            if place % MAPPED_EVERY == 0 or self._mallinfo is None:
                self._writable, self._resident = self._mapped()
            if self._mallinfo is None:
                self.malloc[place], self.other[place] = self._writable, 0
            else:
                info = self._mallinfo()
                self.malloc[place] = info.uordblks + info.hblkhd
                # Taken together with the kernel's count or not at all: they move by megabytes at a time.
                if place % MAPPED_EVERY == 0:
                    self._known = self._writable - info.arena - info.hblkhd
                self.other[place] = self._known
            self.resident[place] = self._resident
            self.count = place + 1
        took = time.thread_time_ns() - began
        self.own_ns += took
        return took

    def warm_up(self) -> None:
        """Sample a few times and forget it: first calls allocate what stays."""
        for _ in range(3):
            self.record(0)
        self.count = self.own_ns = 0


def block_sizes() -> dict[int, int]:
    """Return how many blocks of each size Python's allocator has in use, empty where it does not tell.

    `sys._debugmallocstats` prints to the C stream stderr and nowhere else, so descriptor 2 is a file meanwhile.
    """
    stats: Callable[[], None] | None = getattr(sys, "_debugmallocstats", None)
    if stats is None:
        return {}
    try:
        with tempfile.TemporaryFile() as file:
            sys.stderr.flush()
            kept = os.dup(2)
            try:
                os.dup2(file.fileno(), 2)
                stats()
            finally:
                os.dup2(kept, 2)
                os.close(kept)
            file.seek(0)
            return {int(size): int(used) for size, used in _CLASS_ROW.findall(file.read())}
    except (OSError, ValueError, AttributeError):  # no descriptor 2, no stderr
        return {}


def mean_block_nbytes(before: dict[int, int], after: dict[int, int], *, least: int = 50) -> float:
    """Return the mean size of the blocks that were added; of all there are, where fewer than `least` were added."""
    added = {size: max(0, after[size] - before.get(size, 0)) for size in after}
    for counts in (added, after):
        total = sum(counts.values())
        if total >= least:
            return sum(size * count for size, count in counts.items()) / total
    return USUAL_BLOCK_NBYTES


def malloc_reader() -> Callable[[], int] | None:
    """Return a function that tells the bytes malloc has handed out, None where nothing does to the byte."""
    mallinfo = _find_mallinfo()
    if mallinfo is None:
        return None

    def read() -> int:
        info = mallinfo()
        return int(info.uordblks + info.hblkhd)

    return read


def _find_mallinfo() -> Callable[[], _Mallinfo2] | None:
    """Return glibc's function, None with another C library or an older one."""
    try:
        function = ctypes.PyDLL(None).mallinfo2  # it is too short to let others run meanwhile
    except (OSError, AttributeError, TypeError):
        return None
    function.restype, function.argtypes = _Mallinfo2, []
    return function


def _mapped_reader() -> Callable[[], tuple[int, int]]:
    """Return a function that tells writable and resident bytes of this process."""
    try:
        # Never closed: it lives as long as the process, and opening it for each sample would cost ten times as much.
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return _ask_psutil()

    def read() -> tuple[int, int]:
        # size resident shared text lib data dt, in pages
        fields = os.pread(descriptor, 256, 0).split()
        return int(fields[5]) * PAGE, int(fields[1]) * PAGE

    return read


def _ask_psutil() -> Callable[[], tuple[int, int]]:
    process = import_module("psutil").Process()

    def read() -> tuple[int, int]:
        resident = process.memory_info().rss
        return resident, resident

    return read
