"""What one connection may take: a request arrives soon, an answer is read soon, and a silent one makes room for others.

uvicorn counts connections, and refuses all others once there are as many as it may have; sixty-four that say nothing
lock the page. So each has a timer for whatever it is at: its request's head, its answer, the reader's pace. And where
there are too many, the one that has waited longest without a request is ended for the one that comes.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 64
HEAD_TIMEOUT_S = 5.0  # from opening, or from the first byte of the next request, to the end of its headers
ANSWER_TIMEOUT_S = 60.0  # from there to the end of the answer, a body that is sent slowly included
UNREAD_TIMEOUT_S = 15.0  # an answer that nobody reads
STREAMS = ("/api/follow",)  # go on until one side ends them


class BoundedConnection(H11Protocol):
    """uvicorn's connection, ended when it takes too long over anything."""

    _timer: asyncio.TimerHandle | None = None
    _waits_since = 0.0  # for a request; 0 while there is one

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            if not self._waits_since:
                self._wait_for_request()
        elif self._waits_since:  # its head is complete
            self._waits_since = 0.0
            self._end_in(None if self.scope["path"] in STREAMS else ANSWER_TIMEOUT_S)

    def on_response_complete(self) -> None:
        self._wait_for_request()  # before the next one, which may have arrived with the last
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._end_in(UNREAD_TIMEOUT_S)

    def resume_writing(self) -> None:
        super().resume_writing()
        streams = self.scope is not None and self.scope["path"] in STREAMS
        self._end_in(None if streams else ANSWER_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_in(None)
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        self._waits_since = time.monotonic()
        self._end_in(HEAD_TIMEOUT_S)

    def _end_in(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # abort, not close: closing waits until the other side has read what is left
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def _make_room(self) -> None:
        others: set[Any] = self.connections - {self}
        waiting = [each for each in others if each._waits_since and not each.transport.is_closing()]
        if waiting:
            min(waiting, key=lambda each: float(each._waits_since)).transport.abort()
