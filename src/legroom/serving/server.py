"""One server process: its socket, its signals, and nothing that outlives it."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn

from legroom.errors import BadInput
from legroom.serving.app import Page
from legroom.serving.connections import MOST_CONNECTIONS, BoundedConnection
from legroom.serving.guard import HOST, Guard, Settings
from legroom.sharing.heap import give_back, give_back_from

LARGEST_HEAD = 16 * 1024
LARGE = 64 * 1024  # bytes of a request or an answer
TIDY_EVERY_S = 2.0
GRACE_S = 1  # for answers under way when it is told to stop


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; `say` gets the address once it can be opened.

    Raises:
        BadInput: the port is in use.
    """
    give_back_from(LARGE)
    listening = _listen(settings)
    settings = replace(settings, port=listening.getsockname()[1])
    page = Page(settings)
    config = uvicorn.Config(
        Guard(page, settings),
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


def address(settings: Settings) -> str:
    """Return what to open in a browser."""
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


def _listen(settings: Settings) -> socket.socket:
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
