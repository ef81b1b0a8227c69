"""The server's table of answers: a path and a method, and the function that answers.

`/api/predict` takes a run and answers as `legroom predict --json` does; the others are the page's own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from secrets import compare_digest
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from legroom.errors import BadInput
from legroom.rendering.page import STYLE
from legroom.serving.answering import WORKED_OUT, Answering
from legroom.serving.asked import plain_run
from legroom.serving.following import folders_in, listed, news
from legroom.serving.guard import RequestRefused, Scope, Send, ServerSettings
from legroom.serving.jobs import Jobs

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_FOLLOWERS = 8
Answer = Callable[[Request], Awaitable[Response]]


class Page:
    """The application behind the guard."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._answering = Answering()
        self._files = _static_files()
        self._started = {each.run.name: each for each in settings.started}
        self._jobs, self._followers = Jobs(), 0
        self._answers: dict[tuple[str, str], Answer] = {
            ("GET", "/api/start"): self.started,
            ("GET", "/api/run"): self.started,
            **{("POST", path): self._asked for path in WORKED_OUT},
            ("POST", "/api/job"): self.job,
            ("GET", "/api/job"): self.job_told,
            ("GET", "/api/folders"): self.folders,
            ("GET", "/api/follow"): self.follow,
        }

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        method, path = ("GET" if scope["method"] == "HEAD" else scope["method"]), scope["path"]
        if method == "GET" and path in self._files:
            body, kind = self._files[path]
            await Response(body, media_type=kind, headers={"cache-control": "no-cache"})(scope, receive, send)
            return
        answer = self._answers.get((method, path))
        if answer is None:
            if any(known == path for _, known in self._answers) or path in self._files:
                raise RequestRefused(405, f"{method} {path} is not served")
            raise RequestRefused(404, "not found")
        response = await answer(Request(scope, receive))
        await response(scope, receive, send)

    async def started(self, request: Request) -> Response:
        """What also depends on how the page was started."""
        started = self._started.items()
        own: dict[str, Any] = {"started": {name: plain_run(each.run) for name, each in started}}
        own["targets"] = {name: each.target for name, each in started}
        if request.url.path == "/api/start":
            own |= self._listed()
        return await self._asked(request, own)

    async def _asked(self, request: Request, own: Any = None) -> Response:
        """What depends on a text that was sent, from a process that can be killed."""
        body, path = await request.body(), request.url.path
        return await self._answering.ask(path, request.query_params, body, own, request.is_disconnected)

    async def job(self, request: Request) -> Response:
        """Begin a command: a run that the page was started with, traced or fitted as it is turned; or a program."""
        asked = json.loads(bytes((await self.started(request)).body))
        if asked["executes"] and not compare_digest(request.headers.get("x-legroom-key", ""), self._settings.key):
            raise RequestRefused(403, "this executes code: open the address that legroom ui printed, which has its key")
        return JSONResponse({"job": await self._jobs.start(asked["words"])})

    async def job_told(self, request: Request) -> Response:
        job = request.query_params.get("job", "")
        if not (job.isascii() and job.isdigit() and len(job) < 10):
            raise BadInput("job must be a number", hint="POST /api/job gives it")
        return JSONResponse(self._jobs.told(int(job)))

    async def folders(self, request: Request) -> Response:
        return JSONResponse(self._listed())

    def _listed(self) -> dict[str, Any]:
        """The trainings and watches to follow, newest first, and the names of the folders that are searched."""
        found = folders_in(self._settings.folders)
        return {
            "folders": [listed(name, folder) for name, folder in found.items()],
            "roots": [root.name for root in self._settings.folders],
        }

    async def follow(self, request: Request) -> Response:
        """A stream of what happens in a folder, by the name that it was listed under."""
        name = request.query_params.get("folder", "")
        folder = folders_in(self._settings.folders).get(name)
        if folder is None:
            raise RequestRefused(404, "no such training or watch in the folders of legroom ui --folder")
        if self._followers >= MOST_FOLLOWERS:
            raise RequestRefused(503, f"{MOST_FOLLOWERS} pages are following already (close one)")
        return StreamingResponse(self._counted(news(name, folder, self._tell)), media_type="text/event-stream")

    async def _tell(self, name: str, folder: Path) -> dict[str, str]:
        answer = await self._answering.ask("/api/follow", {}, b"", {"name": name, "folder": str(folder)})
        told: dict[str, str] = json.loads(bytes(answer.body))
        return told

    async def _counted(self, told: AsyncIterator[str]) -> AsyncIterator[str]:
        self._followers += 1
        try:
            async for each in told:
                yield each
        finally:
            self._followers -= 1

    async def end(self) -> None:
        """End what is under way."""
        await self._jobs.end()
        await self._answering.end()

    async def warm_up(self) -> None:
        """Be ready to answer quickly."""
        await self._answering.warm_up()


def _static_files() -> dict[str, tuple[bytes, str]]:
    """Return the page's files by path, read once: no request ever names a file."""
    files = {f"/{path.name}": (path.read_bytes(), TYPES[path.suffix]) for path in STATIC.iterdir()}
    files["/family.css"] = (STYLE.encode(), TYPES[".css"])  # what reports look like, the page does too
    files["/"] = files.pop("/index.html")
    return files
