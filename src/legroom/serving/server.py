"""One server process: its socket, its signals, what one connection may take, and nothing that outlives it.

uvicorn counts connections, and refuses all others once there are as many as it may have; sixty-four that say nothing
lock the page. So each has a timer for whatever it is at: its request's head, its answer, the reader's pace. And where
there are too many, the one that has waited longest without a request is ended for the one that comes.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from legroom.errors import BadInput
from legroom.machine.tree import give_back, give_back_from
from legroom.serving.app import Page
from legroom.serving.guard import HOST, RequestGuard, ServerSettings

MOST_CONNECTIONS = 64
HEAD_TIMEOUT_S = 5.0  # from opening, or from the first byte of the next request, to the end of its headers
ANSWER_TIMEOUT_S = 60.0  # from there to the end of the answer, a body that is sent slowly included
UNREAD_TIMEOUT_S = 15.0  # an answer that nobody reads
STREAMS = ("/api/follow",)  # go on until one side ends them
LARGEST_HEAD = 16 * 1024
LARGE = 64 * 1024  # bytes of a request or an answer
TIDY_EVERY_S = 2.0
GRACE_S = 1  # for answers under way when it is told to stop


def serve(settings: ServerSettings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; `say` gets the address once it can be opened.

    Raises:
        BadInput: the port is in use.
    """
    give_back_from(LARGE)
    listening = _listen(settings)
    settings = replace(settings, port=listening.getsockname()[1])
    page = Page(settings)
    config = uvicorn.Config(
        RequestGuard(page, settings),
        loop="asyncio",
        http=BoundedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=2 * MOST_CONNECTIONS,  # silent ones make room long before
        timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    asyncio.run(_until_told(_Server(config), listening, page, lambda: say(address(settings))))


def address(settings: ServerSettings) -> str:
    return f"http://{HOST}:{settings.port}/#key={settings.key}"


class _Server(uvicorn.Server):
    """uvicorn's, but for its way to end: it would raise the signal again, and a stop that was asked for is no error."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _until_told(server: _Server, listening: socket.socket, page: Page, ready: Callable[[], None]) -> None:
    def stop() -> None:
        server.force_exit = server.should_exit  # asked twice: now
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    ready()  # not before: who reads it may end us at once
    try:
        await page.warm_up()
        tidying = asyncio.create_task(_tidy())
        await server.serve(sockets=[listening])
        tidying.cancel()
    finally:
        await page.end()


async def _tidy() -> None:
    """Give memory back every few seconds.

    What a connection leaves in cycles, its request's body included, waits for the collector, which comes after so many
    objects, not bytes: meanwhile small things that stay are put between them, and the heap grows for hours.
    """
    gc.collect()
    gc.freeze()  # what is there now stays: the others are collected in a millisecond
    while True:
        await asyncio.sleep(TIDY_EVERY_S)
        gc.collect()
        give_back()


def _listen(settings: ServerSettings) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, settings.port))
        listening.listen(MOST_CONNECTIONS)
    except OSError as error:
        listening.close()
        hint = f"--port {settings.port + 1}, or --port 0 for any that is free"
        raise BadInput(f"{HOST}:{settings.port} cannot be served: {error.strerror}", hint=hint) from None
    return listening


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
