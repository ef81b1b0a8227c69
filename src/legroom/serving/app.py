"""The server's table of answers: a path and a method, and the function that answers.

`/api/predict` takes a run and answers as `legroom predict --json` does; the others are the page's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from legroom import __version__
from legroom.errors import BadInput
from legroom.machine.gpu_table import GPUS
from legroom.model.run import Run
from legroom.named_runs import run_names, workloads
from legroom.reading import read, read_given
from legroom.reading.user_files import decode
from legroom.rendering.page import STYLE
from legroom.rendering.run_file import run_file
from legroom.serving import planning
from legroom.serving.controls import controls_of
from legroom.serving.following import folders_in, news
from legroom.serving.guard import Refused, Scope, Send
from legroom.serving.plain_json import parse_json
from legroom.serving.questions import Here, Place, place_asked, plain_run, run_asked
from legroom.serving.settings import Settings
from legroom.serving.tracer import Tracer
from legroom.units import format_size

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LONGEST_NAME = 120
MOST_FOLLOWERS = 8
FITS_AT_ONCE = 2  # a fit may take a second of this machine's processor
Answer = Callable[[Request], Awaitable[Response]]


class Page:
    """The application behind the guard."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._here = settings, Here()
        self._fits = asyncio.Semaphore(FITS_AT_ONCE)
        self._files = _static_files()
        self._started = {each.run.name: each for each in settings.started}
        self._tracer, self._followers = Tracer(), 0
        self._answers: dict[tuple[str, str], Answer] = {
            ("GET", "/api/start"): self.start,
            ("GET", "/api/run"): self.named_run,
            ("POST", "/api/read"): self.read_file,
            ("POST", "/api/predict"): self.predict,
            ("POST", "/api/plan"): self.plan,
            ("POST", "/api/fit"): self.fit,
            ("POST", "/api/check"): self.check,
            ("POST", "/api/file"): self.file,
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
            "shown": [_shown(run) for run in runs],
            "plan": _or_none(lambda: planning.plan_answer(runs, self._place({}), {})),  # drawn without asking again
            "folders": list(folders_in(self._settings.folders)),
        })  # fmt: skip

    async def named_run(self, request: Request) -> Response:
        """A named run, or one that the page was started with; never a path."""
        name = request.query_params.get("name", "")[:LONGEST_NAME]
        return JSONResponse(self._shown_by_name(name))

    async def read_file(self, request: Request) -> Response:
        """The runs in a file that was opened or dropped: `{"name": "ppo.yml", "text": …}`."""
        asked = _mapping(parse_json(await request.body()))
        if "run" in asked:  # one that a link has brought back
            return JSONResponse({"runs": [_shown(run_asked(asked["run"]))]})
        name, text = asked.get("name"), asked.get("text")
        if not isinstance(name, str) or not isinstance(text, str) or not 0 < len(name) <= LONGEST_NAME:
            raise BadInput("a file has a name and a text", hint='{"name": "run.yaml", "text": "algo: PPO …"}')
        plain = name.replace("\\", "/").rpartition("/")[2] or "run.yaml"
        found = read_given(decode(text.encode("utf-8", "replace"), plain), plain)
        return JSONResponse({"runs": [_shown(run) for run in found]})

    async def predict(self, request: Request) -> Response:
        """The contract: a run in, the text of `legroom predict --mode arithmetic --json` out."""
        run = run_asked(parse_json(await request.body()))
        text = planning.predict_answer(run, self._place(dict(request.query_params)))
        return Response(text, media_type="application/json")

    async def plan(self, request: Request) -> Response:
        asked = _mapping(parse_json(await request.body()))
        runs = asked.get("runs")
        if not isinstance(runs, list) or len(runs) > planning.MOST_RUNS:
            raise BadInput("runs must be a list of runs", hint=f"at most {planning.MOST_RUNS}")
        return JSONResponse(planning.plan_answer([run_asked(each) for each in runs], self._place(asked), asked))

    async def fit(self, request: Request) -> Response:
        asked = _mapping(parse_json(await request.body()))
        run, place = run_asked(asked.get("run")), self._place(asked)
        async with self._fits:  # in a thread: a slider of another page goes on meanwhile
            return JSONResponse(await asyncio.to_thread(planning.fit_answer, run, place, asked))

    async def check(self, request: Request) -> Response:
        asked = _mapping(parse_json(await request.body()))
        return JSONResponse(planning.check_answer(run_asked(asked.get("run")), self._place(asked)))

    async def file(self, request: Request) -> Response:
        """The run as YAML, to be kept."""
        run = run_asked(_mapping(parse_json(await request.body())).get("run"))
        return Response(run_file(run, head=[f"{run.name}, as planned with legroom ui"]), media_type="application/yaml")

    async def trace(self, request: Request) -> Response:
        """Begin to trace a run that the page was started with, as it is turned: `{"name": …, "run": …}`."""
        asked = _mapping(parse_json(await request.body()))
        name = asked.get("name")
        started = self._started.get(name) if isinstance(name, str) else None
        if started is None:
            raise Refused(403, "only runs that legroom ui was started with are traced (legroom ui RUN)")
        where = self._place(asked)
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

    def _shown_by_name(self, name: str) -> dict[str, Any]:
        """Return a named run, or one that the page was started with.

        Raises:
            Refused: there is none of that name; a path is never looked at.
        """
        if name in self._started:
            return _shown(self._started[name].run)
        if name not in run_names():
            raise Refused(404, f"no named run {name!r} (legroom workloads lists them)")
        return _shown(read(name))

    def _place(self, asked: dict[str, Any]) -> Place:
        return place_asked(asked, self._here.machine())


def _first_shown() -> str:
    """Return the run to open the page with where none was named."""
    declared = (f"{each.name}:{each.first_shown}" for each in workloads() if each.first_shown is not None)
    return next(declared, None) or run_names()[0]


def _shown(run: Run) -> dict[str, Any]:
    return {
        "name": run.name, "description": run.description, "recommended_for": run.recommended_for, "algo": run.algo,
        "backend": run.backend, "run": plain_run(run), "controls": controls_of(run),
    }  # fmt: skip


def _or_none(answer: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Return the answer; None where the runs cannot be predicted, which is said when they are asked about."""
    try:
        return answer()
    except BadInput:
        return None


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput("the request must be a mapping", hint='{"run": {…}}')
    return value


def _static_files() -> dict[str, tuple[bytes, str]]:
    """Return the page's files by path, read once: no request ever names a file."""
    files = {f"/{path.name}": (path.read_bytes(), TYPES[path.suffix]) for path in STATIC.iterdir()}
    files["/family.css"] = (STYLE.encode(), TYPES[".css"])  # what reports look like, the page does too
    files["/"] = files.pop("/index.html")
    return files
