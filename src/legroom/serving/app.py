"""The server's table of answers: a path and a method, and the function that answers.

`/api/predict` takes a run and answers as `legroom predict --json` does; the others are the page's own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from legroom import __version__
from legroom.errors import BadInput
from legroom.machine.gpu_table import GPUS
from legroom.named_runs import run_names, workloads
from legroom.reading import read
from legroom.reading.reading_budget import bounded_reading
from legroom.rendering.page import STYLE
from legroom.serving import planning
from legroom.serving.answering import Answering
from legroom.serving.answers import ANSWERS, LONGEST_NAME, mapping, shown
from legroom.serving.following import folders_in, news
from legroom.serving.guard import Refused, Scope, Send
from legroom.serving.questions import Here, Place, place_asked, run_asked
from legroom.serving.settings import Settings
from legroom.serving.tracer import Tracer
from legroom.units import format_size

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_FOLLOWERS = 8
Answer = Callable[[Request], Awaitable[Response]]


class Page:
    """The application behind the guard."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._here = settings, Here()
        self._answering = Answering()
        self._files = _static_files()
        self._started = {each.run.name: each for each in settings.started}
        self._tracer, self._followers = Tracer(), 0
        self._answers: dict[tuple[str, str], Answer] = {
            ("GET", "/api/start"): self.start,
            ("GET", "/api/run"): self.named_run,
            **{("POST", path): self.worked_out for path in ANSWERS},
            ("POST", "/api/trace"): self.trace,
            ("GET", "/api/trace"): self.traced,
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
                raise Refused(405, f"{method} {path} is not served")
            raise Refused(404, "there is nothing of that name")
        response = await answer(Request(scope, receive))
        await response(scope, receive, send)

    async def start(self, request: Request) -> Response:
        """What the page begins with: this machine, the known cards, the named runs and those it was started with."""
        machine = self._here.machine()
        runs = [each.run for each in self._started.values()][: planning.MOST_RUNS] or [read(_first_shown())]
        own = [{"name": gpu.name, "free": format_size(gpu.free)} for gpu in machine.gpus]
        cards = [{"name": card.name, "gb": card.nominal_gb} for card in GPUS]
        return JSONResponse({
            "version": __version__,
            "machine": {"ram": format_size(machine.ram), "available": format_size(machine.available), "gpus": own},
            "cards": cards,
            "workloads": [
                {"name": each.name, "runs": [name for name in run_names() if name.startswith(f"{each.name}:")]}
                for each in workloads()
            ],
            "started": list(self._started),
            "shown": [shown(run) for run in runs],
            "plan": _or_none(lambda: planning.plan_answer(runs, self._place({}), {})),  # drawn without asking again
            "folders": list(folders_in(self._settings.folders)),
        })  # fmt: skip

    async def named_run(self, request: Request) -> Response:
        """A named run, or one that the page was started with; never a path."""
        name = request.query_params.get("name", "")[:LONGEST_NAME]
        return JSONResponse(self._shown_by_name(name))

    async def worked_out(self, request: Request) -> Response:
        """What depends on a text that was sent, from a process that can be killed."""
        return await self._answering.ask(request.url.path, request.query_params, await request.body())

    async def trace(self, request: Request) -> Response:
        """Begin to trace a run that the page was started with, as it is turned: `{"name": …, "run": …}`."""
        asked = mapping(await request.body())
        name = asked.get("name")
        started = self._started.get(name) if isinstance(name, str) else None
        if started is None:
            raise Refused(403, "only runs that legroom ui was started with are traced (legroom ui RUN)")
        where = self._place(asked)
        with bounded_reading("the request"):
            run_asked(asked.get("run"))  # says what cannot be, before a child is started for it
        return JSONResponse({"job": await self._tracer.start(started, asked.get("run"), asked, where)})

    async def traced(self, request: Request) -> Response:
        job = request.query_params.get("job", "")
        if not (job.isascii() and job.isdigit() and len(job) < 10):
            raise BadInput("job must be a number", hint="POST /api/trace gives it")
        return JSONResponse(self._tracer.told(int(job)))

    async def folders(self, request: Request) -> Response:
        return JSONResponse({"folders": list(folders_in(self._settings.folders))})

    async def follow(self, request: Request) -> Response:
        """A stream of what happens in a folder, by the name that it was listed under."""
        name = request.query_params.get("folder", "")
        folder = folders_in(self._settings.folders).get(name)
        if folder is None:
            raise Refused(404, "there is no such training or watch in the folders that legroom ui was given")
        if self._followers >= MOST_FOLLOWERS:
            raise Refused(503, f"{MOST_FOLLOWERS} pages follow already (close one)")
        return StreamingResponse(self._counted(news(name, folder)), media_type="text/event-stream")

    async def _counted(self, told: AsyncIterator[str]) -> AsyncIterator[str]:
        self._followers += 1
        try:
            async for each in told:
                yield each
        finally:
            self._followers -= 1

    async def end(self) -> None:
        """End what is under way."""
        await self._tracer.end()
        await self._answering.end()

    async def warm_up(self) -> None:
        """Be ready to answer quickly."""
        await self._answering.warm_up()

    def _shown_by_name(self, name: str) -> dict[str, Any]:
        """Return a named run, or one that the page was started with.

        Raises:
            Refused: there is none of that name; a path is never looked at.
        """
        if name in self._started:
            return shown(self._started[name].run)
        if name not in run_names():
            raise Refused(404, f"no named run {name!r} (legroom workloads lists them)")
        return shown(read(name))

    def _place(self, asked: dict[str, Any]) -> Place:
        return place_asked(asked, self._here.machine())


def _first_shown() -> str:
    """Return the run to open the page with where none was named."""
    declared = (f"{each.name}:{each.first_shown}" for each in workloads() if each.first_shown is not None)
    return next(declared, None) or run_names()[0]


def _or_none(answer: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Return the answer; None where the runs cannot be predicted, which is said when they are asked about."""
    try:
        return answer()
    except BadInput:
        return None


def _static_files() -> dict[str, tuple[bytes, str]]:
    """Return the page's files by path, read once: no request ever names a file."""
    files = {f"/{path.name}": (path.read_bytes(), TYPES[path.suffix]) for path in STATIC.iterdir()}
    files["/family.css"] = (STYLE.encode(), TYPES[".css"])  # what reports look like, the page does too
    files["/"] = files.pop("/index.html")
    return files
