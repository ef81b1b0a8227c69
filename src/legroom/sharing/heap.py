"""The C library's heap: return unused memory to the system.

glibc keeps freed memory for later. That is right while the same sizes come again; after work that is done once, such as
building what all processes share, or before a process is forked a hundred times, it is memory that nobody will use.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress


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
