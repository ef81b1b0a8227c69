"""Large host arrays of a rehearsed program: told with their line, and not written where they are only zeroed.

`_reserve.c`, preloaded by the parent, serves requests of 32 MiB and more (4 MiB where zeros are asked for) without
committing them, and calls back for each of them, and for each that it refuses, from a thread that holds the
interpreter. `torch.zeros` writes every page of a tensor that comes as zeros from the kernel anyway; for such large ones
it is `torch.empty` here.

Pinned memory is taken as PyTorch's caching host allocator does, in blocks of powers of two that it keeps: what that is
beyond the bytes of the tensors is told to the journal. Mirrors `CachingHostAllocatorImpl` of torch 2.13; a block is
free again with its tensor, not later with the copy that reads it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import os
import sys
import sysconfig
import threading
import time
import weakref
from collections import Counter
from typing import Any

from .source_lines import OURS, calls

LIBRARY = "LEGROOM_RESERVE"  # its path, where it is preloaded
REFUSED = "refused"  # a file of the rehearsal's folder: requests that were refused, from C and from forked processes
LEAST = 64 << 20
HEAP_EVERY_S, HEAP_COST = 0.01, 100  # seconds between two samples of the heap, and times as long as one takes
_STANDARD = os.path.join(sysconfig.get_paths()["stdlib"], "")
_kept: list[Any] = []  # what C holds must not be collected


def _preloaded() -> str:
    path = os.environ.get(LIBRARY, "")
    return path if path in os.environ.get("LD_PRELOAD", "") else ""


def watch_requests(journal: Any) -> None:
    """Tell the journal of every large request, with the line that made it."""
    path = _preloaded()
    if not path:
        return
    try:
        tell = ctypes.CDLL(path).legroom_tell
    except (OSError, AttributeError):
        return

    def told(address: int, nbytes: int) -> None:
        try:
            (file, line), (user_file, user_line) = _asking_lines()
            kind = "host-alloc" if address else "host-refused"
            journal.json(
                kind, nbytes=nbytes, address=address, file=file, line=line, how="reserved",
                user_file=user_file, user_line=user_line,
            )  # fmt: skip
        except Exception:  # the program goes on, whatever is wrong with us
            return

    def told_by_fork(address: int, nbytes: int) -> None:
        with contextlib.suppress(Exception):
            if not address:
                _, (file, line) = _asking_lines()
                with open(os.path.join(os.environ["LEGROOM_REHEARSAL_FOLDER"], REFUSED), "a") as refusals:
                    refusals.write(json.dumps({"nbytes": nbytes, "file": file, "line": line}) + "\n")

    kind = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_size_t)
    callback, of_fork = kind(told), kind(told_by_fork)
    _kept.extend((callback, of_fork))
    tell(callback)
    os.register_at_fork(after_in_child=lambda: tell(of_fork))  # the journal is the parent's
    atexit.register(lambda: tell(None))


class _GlibcMallinfo2(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                                                     "fsmblks", "uordblks", "fordblks", "keepcost")]  # fmt: skip


class HeapSamples:
    """Tells the journal what is in use on the heap after an optimizer step: what no page shows, some bytes per step."""

    def __init__(self, journal: Any) -> None:
        self._journal, self._next = journal, 0.0
        try:
            self._malloc: Any = ctypes.CDLL(None).mallinfo2
            self._malloc.restype = _GlibcMallinfo2
        except (OSError, AttributeError):  # another C library
            self._malloc = None

    def look(self, steps: int) -> None:
        """Take a sample where one is due."""
        began = time.monotonic()
        if began < self._next:
            return
        busy, blocks, malloc = time.thread_time(), sys.getallocatedblocks(), 0
        if self._malloc is not None:
            info = self._malloc()
            malloc = info.uordblks + info.hblkhd
        self._journal.json("heap", step=steps, blocks=blocks, malloc=malloc)
        self._next = began + max(HEAP_EVERY_S, HEAP_COST * (time.thread_time() - busy))


def _asking_lines() -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the innermost line outside of NumPy, torch and the standard library, and outside of all packages."""
    arrays = [getattr(sys.modules.get(name), "__file__", None) for name in ("numpy", "torch")]
    skipped = tuple(os.path.join(os.path.dirname(file), "") for file in arrays if file)
    found = ("", 0)
    for frame in calls():
        file = frame.f_code.co_filename
        installed = "site-packages" in file or "dist-packages" in file
        if (installed or not file.startswith(_STANDARD)) and not file.startswith(("<", OURS, *skipped)):
            found = found if found[0] else (file, frame.f_lineno)
            if not installed:
                return found, (file, frame.f_lineno)
    return found, ("", 0)


def zeros_are_fresh(torch: Any, journal: Any) -> None:
    """Let large zero tensors of the host be pages that were never written, and say that they would be."""
    if not _preloaded():
        return
    zeros, empty = torch.zeros, torch.empty

    @functools.wraps(zeros)
    def made(*args: Any, **kwargs: Any) -> Any:
        device = torch.device(kwargs.get("device") or default_device() or "cpu")
        if kwargs.get("out") is None and device.type == "cpu" and _nbytes(torch, args, kwargs) >= LEAST:
            found = empty(*args, **kwargs)
            journal.json("host-written", address=found.data_ptr())
            return found
        return zeros(*args, **kwargs)

    torch.zeros = made


def default_device() -> Any:
    """Return what `torch.set_default_device` or `with torch.device(...)` has set, None where nothing has.

    `torch.get_default_device` makes a tensor to find out which of several cards is meant, and that asks here again.
    """
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    modes: Any = _get_current_function_mode_stack()
    return next((mode.device for mode in reversed(modes) if isinstance(mode, DeviceContext)), None)


def _nbytes(torch: Any, args: Any, kwargs: Any) -> int:
    size = kwargs.get("size", args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args)
    try:
        count = 1
        for each in size:
            count *= int(each)
        return count * int((kwargs.get("dtype") or torch.get_default_dtype()).itemsize)
    except (TypeError, ValueError):  # torch says what is wrong with it
        return 0


MAKERS = ("empty", "zeros", "ones", "rand", "randn", "full")
TOLD_FROM = 1 << 20  # bytes by which the pool must have grown


class PinnedPool:
    """The pool of one process."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self._free: Counter[int] = Counter()  # by size
        self._beyond = self._told = 0
        self._lock = threading.RLock()  # a tensor may be collected while another is made

    def add(self, tensor: Any) -> None:
        """Take in a pinned tensor."""
        nbytes = int(tensor.untyped_storage().nbytes())
        if nbytes == 0:
            return
        size = 1 << (nbytes - 1).bit_length()
        with self._lock:
            reused = min(self._free[size], 1)
            self._free[size] -= reused
            self._beyond += size * (1 - reused) - nbytes
            if self._beyond >= self._told + TOLD_FROM:
                self._told = self._beyond
                self._journal.json("pinned", nbytes=self._beyond)
        tensor._legroom_pinned = True
        weakref.finalize(tensor, self._give_back, nbytes, size).atexit = False

    def _give_back(self, nbytes: int, size: int) -> None:
        with self._lock:
            self._free[size] += 1
            self._beyond += nbytes

    def install(self, torch: Any) -> None:
        """Let tensors that are made with `pin_memory=True` be pinned."""

        def pinning(make: Any) -> Any:
            @functools.wraps(make)
            def made(*args: Any, **kwargs: Any) -> Any:
                found = make(*args, **kwargs)
                if kwargs.get("pin_memory"):
                    self.add(found)
                return found

            return made

        for name in MAKERS:
            setattr(torch, name, pinning(getattr(torch, name)))
