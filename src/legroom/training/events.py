"""Events from the training child to its parent: one JSON object per line through a pipe.

JSON and not pickle, because the child runs somebody else's code and its parent should believe nothing but figures.
"""

from __future__ import annotations

import json
import math
import os
import threading
from typing import Any

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
