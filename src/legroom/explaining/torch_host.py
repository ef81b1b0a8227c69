"""Memory that native code asked the system for: PyTorch on the CPU, C++ and the libraries in it.

    2019 on, Linux    [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried
                      to allocate N bytes. Error code 12 (…)
    2019 on, Windows  … DefaultCPUAllocator: not enough memory: you tried to allocate N bytes.
    2018–2019         [enforce fail at CPUAllocator.cpp:56] posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0
    before            $ Torch: not enough memory: you tried to allocate 2GB. Buy new RAM!

The text after the numbers comes from the system in its language, so only the English of the library itself is read.
"""

from __future__ import annotations

import re

from legroom.explaining.log import Log
from legroom.explaining.reading import Rank, Read, Reading, Recogniser, reading, says
from legroom.explaining.sizes import SIZE, first_size, parse_shape
from legroom.units import format_size

_NOT_MEMORY = ("static tls block", "out of memory: kill")


def _tried(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=400)
    size = first_size(rf"you tried to (?:re)?allocate {SIZE}", message) or None  # "0GB" is a size rounded down
    return _refused(place, size, "PyTorch's CPU allocator")


def _sized(log: Log, place: int) -> Reading | None:
    """Read C and Rust libraries that say how much: OpenCV, Arrow, Rust's allocator, mmap."""
    message = log.message(place, length=300, before=0)
    size = first_size(rf"(?:allocate|allocation of|malloc of size|allocating|mmap|of size) {SIZE}", message)
    if size is None and (match := re.search(r"(?:of size|allocate|allocation of) (\d{4,20})\b", message)):
        size = int(match[1])
    shared = "/torch_" in message or "</torch" in message  # shared memory between workers: see worker_texts
    on_card = "device memory allocation" in log.line(place).lower()  # Vulkan's: see simulator_texts
    return None if size is None or shared or on_card else _refused(place, size, "a native library")


def _overflow(log: Log, place: int) -> Reading | None:
    """Read a tensor whose size does not fit 64 bits."""
    match = re.search(r"sizes=(\[[\d,\s]{1,200}\])", log.message(place, length=300))
    return reading(
        place, Rank.REFUSED, "host-allocator",
        "A tensor was requested that is larger than any computer can address: one of its dimensions is probably wrong.",
        shape=parse_shape(match[1]) if match else None,
    )  # fmt: skip


def _cannot_allocate(log: Log, place: int) -> Reading | None:
    """Read `Cannot allocate memory` where nothing more specific stands beside it."""
    line = log.line(place).lower()
    if any(words in line for words in _NOT_MEMORY) or "errno 12" in line or "fork" in line or "torch_" in line:
        return None
    return _refused(place, None, "a program or library", certain=False)


def _refused(place: int, size: int | None, who: str, *, certain: bool = True) -> Reading:
    asked = f" and asked for {format_size(size)}" if size else "; the amount is not given"
    summary = f"Host memory (RAM and swap) ran out: {who} was refused{asked}."
    return reading(
        place, Rank.REFUSED if size else Rank.SAID, "host-allocator", summary, requested=size, certain=certain
    )


def _unsized(who: str) -> Read:
    return lambda log, place: _refused(place, None, who)


RECOGNISERS = (
    Recogniser("torch CPU", ("you tried to allocate", "you tried to reallocate"), _tried),
    Recogniser("torch CPU before 2019", ("posix_memalign(", "defaultcpuallocator: "),
               _unsized("PyTorch's CPU allocator")),
    Recogniser(
        "native libraries, sized",
        ("insufficient memory", "arrowmemoryerror: malloc of size", "memory allocation of",
         "malloc of size", "realloc of size", "unable to mmap", "failed to allocate memory for"),
        _sized,
    ),
    Recogniser("torch size overflow", ("storage size calculation overflowed",), _overflow),
    Recogniser("C++ allocation", ("std::bad_alloc", "malloc: can't allocate region", "mmap failed: cannot allocate",
                                  "malloc: *** error", "tcmalloc: large alloc", "bad allocation"),
               _unsized("C++ code (std::bad_alloc)")),
    Recogniser("other libraries", ("cpu memory allocation failed",), _unsized("a native library")),
    Recogniser("OpenBLAS", ("openblas error: memory allocation", "openblas : program will terminate"),
               _unsized("OpenBLAS")),
    Recogniser("Java", ("java.lang.outofmemoryerror",), says(
        Rank.SAID, "host-allocator", "The Java process of the environment filled the heap it may use; -Xmx sets it.",
    )),
    Recogniser("cannot allocate memory", ("cannot allocate memory", "not enough memory resources are available"),
               _cannot_allocate),
)  # fmt: skip
