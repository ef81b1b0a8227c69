"""Which call of an environment is under way, in memory that the training child and its supervisor share.

The child writes, once when a call begins and once when it ends; the supervisor looks. Not a thread of the child: an
environment in the training process that blocks in native code may hold the GIL, and then no thread of it runs.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from legroom.machine.forks import in_forks

Call = Literal["build", "reset", "step", "call", "close"]
CALLS: tuple[Call, ...] = ("build", "reset", "step", "call", "close")
_NUMBER, _KIND, _SLOWEST = 0, 1, 2  # then the slowest of each kind
_NBYTES = 8 * (_SLOWEST + len(CALLS))


class EnvCalls:
    """The memory, from either side.

    Args:
        descriptor: of a file of `new_file`; a negative one: nobody looks.
    """

    def __init__(self, descriptor: int) -> None:
        memory = mmap.mmap(descriptor, _NBYTES) if descriptor >= 0 else bytearray(_NBYTES)
        self._cells = memoryview(memory).cast("d")
        self._n_calls = 0
        in_forks(self, EnvCalls._leave)

    def _leave(self) -> None:
        self._cells = memoryview(bytearray(_NBYTES)).cast("d")

    def begin(self, kind: Call) -> float:
        """Note that a call begins; returns when, for `end`."""
        self._n_calls += 1
        self._cells[_KIND] = CALLS.index(kind)
        self._cells[_NUMBER] = self._n_calls
        return time.monotonic()

    def end(self, kind: Call, began: float) -> None:
        """Note that no call is under way; how long the slowest took is what later ones are judged by."""
        self._cells[_NUMBER] = 0
        at = _SLOWEST + CALLS.index(kind)
        took = time.monotonic() - began
        if took > self._cells[at]:
            self._cells[at] = took

    @contextmanager
    def calling(self, kind: Call) -> Iterator[None]:
        """A block in which environments are called; one that fails is over as well."""
        began = self.begin(kind)
        try:
            yield
        finally:
            self.end(kind, began)

    def under_way(self) -> tuple[int, Call]:
        """Return the number of the call that is under way, 0 where there is none, and its kind."""
        return int(self._cells[_NUMBER]), CALLS[int(self._cells[_KIND])]

    def slowest_s(self, kind: Call) -> float:
        """Return how long the slowest call of a kind took; 0 where none has returned."""
        return float(self._cells[_SLOWEST + CALLS.index(kind)])


def new_file() -> int:
    """Return the descriptor of a file without a name, large enough for an `EnvCalls`."""
    with tempfile.TemporaryFile() as file:
        file.truncate(_NBYTES)
        return os.dup(file.fileno())
