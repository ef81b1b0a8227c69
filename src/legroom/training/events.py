"""What the training child and its parent tell each other: events through a pipe, and which environment is being called.

Events are JSON objects, one per line, and not pickles: the child runs somebody else's code, and its parent should
believe nothing but figures. Calls of environments are noted in memory that both share. Not by a thread of the child: an
environment that blocks in native code may hold the GIL, and then no thread of that process runs.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from legroom.machine.forks import in_forks, to_nowhere


class EventPipe:
    """The child's end. A parent that is gone is no reason to stop: what is learned is in the checkpoints."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.RLock()  # a signal's handler may send while its thread does
        in_forks(self, EventPipe._leave)

    def __enter__(self) -> EventPipe:
        return self

    def __exit__(self, *exc: object) -> None:
        descriptor, self._descriptor = self._descriptor, -1  # the number may be somebody else's from now on
        os.close(descriptor)

    def _leave(self) -> None:
        if self._descriptor >= 0:
            to_nowhere(self._descriptor)  # a forked process that lives on would keep the parent waiting for its end
        self._lock = threading.RLock()

    def send(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **{key: _finite(value) for key, value in fields.items()}}) + "\n"
        data = memoryview(line.encode())
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except BrokenPipeError:
                return


class EventLines:
    """The parent's end: turns what arrives into events, however it was cut."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the events that `data` completes; a line that is no event is left out."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        events = []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                events.append(event)
        return events


def _finite(value: Any) -> Any:
    # JSON has no NaN, and a reward may be one
    return None if isinstance(value, float) and not math.isfinite(value) else value


Call = Literal["build", "reset", "step", "call", "close"]
CALLS: tuple[Call, ...] = ("build", "reset", "step", "call", "close")
_NUMBER, _KIND = 0, 1
_NBYTES = 8 * 2


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

    @contextmanager
    def calling(self, kind: Call) -> Iterator[None]:
        """A block in which environments are called; one that fails is over as well."""
        self._n_calls += 1
        self._cells[_KIND] = CALLS.index(kind)
        self._cells[_NUMBER] = self._n_calls
        try:
            yield
        finally:
            self._cells[_NUMBER] = 0

    def under_way(self) -> tuple[int, Call]:
        """Return the number of the call that is under way, 0 where there is none, and its kind."""
        return int(self._cells[_NUMBER]), CALLS[int(self._cells[_KIND])]


def new_file() -> int:
    """Return the descriptor of a file without a name, large enough for an `EnvCalls`."""
    with tempfile.TemporaryFile() as file:
        file.truncate(_NBYTES)
        return os.dup(file.fileno())
