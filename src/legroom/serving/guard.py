"""The door of the server: who may ask, how much, and what every answer carries.

A page on some other site can make a browser ask us, and a name that such a site controls can be pointed at 127.0.0.1
(DNS rebinding). So the Host of every request has to be one of ours, and an Origin the page's own. Whatever goes wrong
behind the door is one line of JSON.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

from legroom.errors import LegroomError
from legroom.model.run import Run

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HOST, DEFAULT_PORT = "127.0.0.1", 8765  # no other machine reaches it
LARGEST_BODY = 256 * 1024
BODY_TIMEOUT_S = 10.0
NAMES = ("localhost", "127.0.0.1", "[::1]")
DEFAULT_HTTP_PORT = 80  # which browsers leave out
METHODS = ("GET", "HEAD", "POST")
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Started:
    """A run that the page was started with: what was said on the command line, and what it was read as."""

    target: str
    run: Run


@dataclass(frozen=True)
class ServerSettings:
    """All that a server is told; `folders` are resolved, so that a path can be held against them."""

    port: int = DEFAULT_PORT
    started: tuple[Started, ...] = ()
    folders: tuple[Path, ...] = ()
    key: str = field(default_factory=token_urlsafe)  # who executes code has to know it: others reach the page as well


class RequestRefused(LegroomError):
    """A request that is answered with its status and one line."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestGuard:
    """Lets in what may come in, with its body read and bounded, and seals every answer."""

    def __init__(self, app: Any, settings: ServerSettings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a websocket: nothing here speaks it
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = _Sealed(send, api=scope["path"].startswith("/api/"))
        try:
            self._admit(scope)
            body = await _body(scope, receive)
            await self._app(scope, _replay(body, receive), answer)
        except RequestRefused as refused:
            await answer.fail(refused.status, str(refused))
        except LegroomError as error:
            await answer.fail(400, str(error))
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:  # nobody who asks shall see a traceback, and the page goes on
            sys.stderr.write(f"legroom ui: {scope['path'][:80]!r}: {type(error).__name__}: {str(error)[:200]!r}\n")
            await answer.fail(500, f"this could not be computed ({type(error).__name__})")

    def _admit(self, scope: Scope) -> None:
        """Refuse who may not come in."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if scope["method"] not in METHODS:
            raise RequestRefused(405, f"method {scope['method'][:20]} is not served (GET and POST are)")
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            raise RequestRefused(
                421, "this server answers to its own name only (open the address that legroom ui printed)"
            )
        origins = headers.get("origin", [])
        if any(origin != f"http://{hosts[0]}" for origin in origins):
            raise RequestRefused(403, "requests from other sites are refused")
        if "transfer-encoding" in headers:  # no page sends so; a megabyte in chunks of one byte takes seconds to read
            raise RequestRefused(411, "requests need a Content-Length")
        navigates = scope["method"] == "GET" and not scope["path"].startswith("/api/")
        if "cross-site" in headers.get("sec-fetch-site", []) and not navigates:
            raise RequestRefused(403, "requests from other sites are refused")

    def _is_ours(self, host: str) -> bool:
        """Return whether a Host is one of our names as browsers write them, with our port; nothing is interpreted."""
        port = f":{self._settings.port}"
        if self._settings.port != DEFAULT_HTTP_PORT and not host.endswith(port):
            return False
        return host.removesuffix(port).lower() in NAMES


async def _body(scope: Scope, receive: Receive) -> bytes:
    """Return the whole body, refused as soon as it is too long or too slow."""
    for name, value in scope["headers"]:
        if name.lower() == b"content-length" and value.isdigit() and int(value) > LARGEST_BODY:
            raise RequestRefused(413, f"a request may have at most {LARGEST_BODY // 1024} KiB")
    body: bytes = b""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestRefused(400, "the request ended early")
                body += message.get("body", b"")
                if len(body) > LARGEST_BODY:
                    raise RequestRefused(413, f"a request may have at most {LARGEST_BODY // 1024} KiB")
                if not message.get("more_body"):
                    return body
    except TimeoutError:
        raise RequestRefused(408, f"the request took longer than {BODY_TIMEOUT_S:.0f} s to arrive") from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that hands out the body once, then what really comes."""
    told = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class _Sealed:
    """A `send` that adds the headers of every answer, and can say what went wrong if nothing was said yet."""

    def __init__(self, send: Send, *, api: bool) -> None:
        self._send, self._api, self._began = send, api, False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._began = True
            headers = [(name, value) for name, value in message.get("headers", []) if name.lower() != b"server"]
            headers += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            if self._api:
                headers.append((b"cache-control", b"no-store"))
            message["headers"] = headers
        await self._send(message)

    async def fail(self, status: int, text: str) -> None:
        if self._began:  # half an answer cannot be taken back
            return
        body = dumps({"error": " ".join(text.split())}).encode() + b"\n"
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if status in (408, 411, 413):
            headers.append((b"connection", b"close"))
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
