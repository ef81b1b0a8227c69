"""Answers worked out beside the page: a few child processes, each killed as soon as one answer takes too long.

The page itself only passes texts on, so nothing that is sent can keep it from answering other requests. One child is
kept for quick answers: files and plans that take seconds wait for each other. A request whose client has gone while it
waited is dropped when its turn comes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from signal import SIGKILL
from typing import Any

from starlette.responses import Response

from legroom.errors import BadInput
from legroom.orphan import END_WITH_PARENT
from legroom.serving.guard import RequestRefused

COMMAND = (sys.executable, "-P", "-c", f"{END_WITH_PARENT} from legroom.serving.answers import main; main()")
MOST_CHILDREN = 3
SLOW = ("/api/read", "/api/fit", "/api/check", "/api/follow")
WORKED_OUT = (*SLOW[:3], "/api/predict", "/api/plan", "/api/file")  # from what was sent alone
LONGEST_S = 20.0  # the child itself gives up after 8 s of processor time; a busy machine takes longer over them
LONGEST_ANSWER = 16 << 20


def response_to(path: str, told: Mapping[str, Any]) -> Response:
    """Return what a child told as an answer.

    Raises:
        BadInput: what was sent cannot be.
        RequestRefused: there is no such thing, or it could not be worked out.
    """
    if told["status"] == 400:
        raise BadInput(told["text"])
    if told["status"] == 500:
        sys.stderr.write(f"legroom ui: {path}: {told['text']}\n")
        raise RequestRefused(500, f"this could not be computed ({told['text'].partition(':')[0]})")
    if told["status"] != 200:
        raise RequestRefused(told["status"], told["text"])
    return Response(told["text"].encode("utf-8", "replace"), media_type=told["kind"])  # JSON may name half a character


class Answering:
    """The children, started when there is something to ask."""

    def __init__(self, command: Sequence[str] = COMMAND, longest_s: float = LONGEST_S) -> None:
        self._command, self._longest_s = (*command, str(os.getpid())), longest_s
        self._idle: list[asyncio.subprocess.Process] = []
        self._all: set[asyncio.subprocess.Process] = set()
        self._free = asyncio.Semaphore(MOST_CHILDREN)
        self._slow = asyncio.Semaphore(MOST_CHILDREN - 1)

    async def ask(
        self,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        own: Any = None,
        gone: Callable[[], Awaitable[bool]] | None = None,
    ) -> Response:
        """Return the answer to a request.

        Args:
            own: plain data that the page adds.
            gone: says whether the client has closed its connection.

        Raises:
            BadInput: what was sent cannot be, or takes too long or too much memory.
            RequestRefused: there is no such thing, the child could not work it out, or the client has gone.
        """
        question = {"path": path, "query": dict(query), "body": body.decode("utf-8", "surrogateescape")}
        if own is not None:
            question["own"] = own
        async with AsyncExitStack() as turn:
            if path in SLOW:
                await turn.enter_async_context(self._slow)
            await turn.enter_async_context(self._free)
            if gone is not None and await gone():
                raise RequestRefused(408, "the client has closed its connection")
            told = await self._told(json.dumps(question).encode() + b"\n")
        return response_to(path, told)

    async def _told(self, question: bytes) -> dict[str, Any]:
        """Ask a child that is kept; where it has died, which need not be the question's fault, ask a new one."""
        child = self._idle.pop() if self._idle else await self._start()
        told = await self._asked(child, question) or await self._asked(await self._start(), question)
        if told is None:
            raise BadInput("takes more memory than an answer may", hint="send a smaller run")
        return told

    async def _asked(self, child: asyncio.subprocess.Process, question: bytes) -> dict[str, Any] | None:
        """Return what the child says, None where it died."""
        assert child.stdin is not None and child.stdout is not None
        told: dict[str, Any] | None = None
        try:
            async with asyncio.timeout(self._longest_s):
                child.stdin.write(question)
                await child.stdin.drain()
                line = await child.stdout.readline()
                told = json.loads(line) if line.endswith(b"\n") else None
        except TimeoutError:
            raise BadInput(f"takes more than {self._longest_s:g} s", hint="send a smaller run") from None
        except ValueError:
            raise BadInput("the answer is too long", hint="send a smaller run") from None
        except ConnectionError:  # it had died before
            return None
        finally:
            if told is None:
                await self._end(child)
            else:
                self._idle.append(child)
        return told

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, start_new_session=True, limit=LONGEST_ANSWER,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        self._all.add(child)
        return child

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, SIGKILL)
        await child.wait()
        self._all.discard(child)

    async def warm_up(self) -> None:
        """Start one child: its imports take a second, which nobody shall wait for."""
        self._idle.append(await self._start())

    async def end(self) -> None:
        """End all children."""
        self._idle.clear()
        for child in tuple(self._all):
            await self._end(child)
