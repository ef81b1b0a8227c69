"""Pinned host memory as PyTorch's caching host allocator takes it: blocks of powers of two, kept once they are freed.

A rehearsed tensor that is pinned is an ordinary one, whose bytes the process really takes. What the pool would take
beyond them, by rounding up and by keeping, is told to the journal. Mirrors `CachingHostAllocatorImpl` of torch 2.13; a
block is free again with its tensor, not later with the copy that reads it.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import Counter
from typing import Any

MAKERS = ("empty", "zeros", "ones", "rand", "randn", "full")
TOLD_FROM = 1 << 20  # bytes by which the pool must have grown


class PinnedPool:
    """The pool of one process."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self._free: Counter[int] = Counter()  # by size
        self._whole = self._live = self._told = 0
        self._lock = threading.RLock()  # a tensor may be collected while another is made

    def add(self, tensor: Any) -> None:
        """Take in a pinned tensor."""
        nbytes = int(tensor.untyped_storage().nbytes())
        if nbytes == 0:
            return
        size = 1 << (nbytes - 1).bit_length()
        with self._lock:
            if self._free[size]:
                self._free[size] -= 1
            else:
                self._whole += size
            self._live += nbytes
            beyond = self._whole - self._live
            if beyond >= self._told + TOLD_FROM:
                self._told = beyond
                self._journal.json("pinned", nbytes=beyond, pool=self._whole)
        tensor._legroom_pinned = True
        weakref.finalize(tensor, self._give_back, nbytes, size).atexit = False

    def _give_back(self, nbytes: int, size: int) -> None:
        with self._lock:
            self._free[size] += 1
            self._live -= nbytes


def install(torch: Any, pool: PinnedPool) -> None:
    """Let tensors that are made with `pin_memory=True` be pinned."""
    for name in MAKERS:
        setattr(torch, name, _pinning(getattr(torch, name), pool))


def _pinning(make: Any, pool: PinnedPool) -> Any:
    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        found = make(*args, **kwargs)
        if kwargs.get("pin_memory"):
            pool.add(found)
        return found

    return made
