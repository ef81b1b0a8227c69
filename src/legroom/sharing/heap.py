"""The C library's heap: return unused memory to the system, or keep less of it.

glibc keeps freed memory for later. That is right while the same sizes come again; after work that is done once, such as
building what all processes share, or before a process is forked a hundred times, it is memory that nobody will use.
Blocks of many sizes leave holes between them, and every thread that allocates has a heap of its own.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path


def give_back() -> None:
    """Give all pages without content back (0.1 to 1 ms); does nothing where the C library cannot."""
    with suppress(OSError, AttributeError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)


def give_back_from(nbytes: int) -> None:
    """From now on, give blocks of this size and more back as soon as they are freed.

    glibc does so at first, but raises the size with every such block: in a process that has large texts now and then,
    they soon lie between small ones that stay, and the heap grows step by step.
    """
    m_mmap_threshold = -3
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(m_mmap_threshold, nbytes)


def heap_environment(arenas: int | None, *, jemalloc: bool) -> dict[str, str]:
    """Return the variables that a process has to be started with for so many heaps, or for jemalloc."""
    found = {} if arenas is None else {"MALLOC_ARENA_MAX": str(arenas)}
    library = find_jemalloc() if jemalloc else None
    return found | ({"LD_PRELOAD": library} if library else {})


def find_jemalloc() -> str | None:
    """Return the path of a jemalloc that a process can be started with (LD_PRELOAD): the system's, or Ray's own."""
    folders = [Path(sys.prefix, "lib"), *Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib64"), Path("/usr/lib")]
    ray = find_spec("ray") if sys.platform == "linux" else None
    folders += [Path(ray.origin).parent / "core"] if ray is not None and ray.origin else []
    found = (str(path) for folder in folders for path in sorted(folder.glob("libjemalloc.so*")))
    return next(found, None) if sys.platform == "linux" else None
