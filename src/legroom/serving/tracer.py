"""A traced prediction in the background: `legroom predict --mode trace` in a child process, one at a time.

Tracing imports what a run names. So it is done for the runs that the page was started with and for no other. Only
settings that the page's controls turn are handed on, and only as numbers, truths and known words.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from signal import SIGKILL
from typing import Any

from pydantic import TypeAdapter

from legroom.errors import BadInput
from legroom.model.footprint import Footprint, Item
from legroom.model.run import Run
from legroom.orphan import END_WITH_PARENT
from legroom.rendering.document import Bars, Part, Section
from legroom.rendering.item_text import WHERES, bar_of, peak_text
from legroom.rendering.page import parts_html
from legroom.serving.asked import TargetMachine
from legroom.serving.controls import control_by_key
from legroom.serving.drawing import card_limits, host_limits

COMMAND = (sys.executable, "-P", "-c", f"{END_WITH_PARENT} from legroom.cli.main import main; main()")
LONGEST_S = 900.0  # brax's compiler takes minutes
LARGEST_ANSWER = 4 << 20
MOST_WIDTHS = 64


class Tracer:
    """The child under way, if there is one, and what the last one said."""

    def __init__(self) -> None:
        self._job, self._began = 0, 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._answer: dict[str, Any] | None = None

    async def start(self, target: str, options: Sequence[str], where: TargetMachine) -> int:
        """Start tracing a run as it is turned now, in place of what is under way; return the number to ask with."""
        await self.end()
        self._job, self._began, self._answer = self._job + 1, time.monotonic(), None
        command = [*COMMAND, str(os.getpid()), "predict", target, "--json", "--mode", "trace", *options]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True,
            limit=LARGEST_ANSWER,
        )  # fmt: skip
        self._task = asyncio.create_task(self._wait(self._process, where))
        return self._job

    def told(self, job: int) -> dict[str, Any]:
        """Return how far it is, or what it said.

        Raises:
            BadInput: there is no such job, or another one took its place.
        """
        if job != self._job:
            raise BadInput("another trace replaced it", hint="start it again")
        if self._answer is not None:
            return self._answer
        return {"state": "running", "text": f"Tracing the networks: {time.monotonic() - self._began:.0f} s…"}

    async def end(self) -> None:
        """End what is under way, and all that it started."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, SIGKILL)
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _wait(self, process: asyncio.subprocess.Process, where: TargetMachine) -> None:
        try:
            out, err = await asyncio.wait_for(process.communicate(), LONGEST_S)
            answer = _answered(out, err, process.returncode, time.monotonic() - self._began, where)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)
            answer = {"state": "failed", "text": f"Tracing took more than {LONGEST_S / 60:.0f} minutes and was ended."}
        self._answer = answer


def _answered(out: bytes, err: bytes, code: int | None, seconds: float, where: TargetMachine) -> dict[str, Any]:
    if code not in (0, 1):  # 1: it does not fit, which is an answer
        lines = err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {code}"]
        return {"state": "failed", "text": f"Tracing failed: {lines[-1][:400]}"}
    told = json.loads(out)["runs"][0]
    if told.get("unseen"):
        return {"state": "failed", "text": f"Not traced: {'; '.join(told['notes'])[:400]}."}
    if told.get("unknown"):
        return {"state": "failed", "text": f"Tracing failed: {'; '.join(told['unknown'])[:400]}."}
    items = TypeAdapter(tuple[Item, ...]).validate_json(json.dumps(told["items"]), strict=True)
    footprint = Footprint(told["name"], items, told["device"])
    peaks = [f"host {peak_text(footprint.host)}", *([f"GPU {peak_text(footprint.gpu)}"] if footprint.gpu else [])]
    shown: list[Part] = []
    for place in WHERES:
        name = f"{'Host' if place == 'host' else 'GPU'}, traced"
        if (bar := bar_of(footprint, place, name="traced")) is not None:
            limits = host_limits(where) if place == "host" else card_limits(bar, where)
            shown.append(Section(name, [Bars(name, [bar], limits)]))
    text = f"Traced in {seconds:.0f} s: {'; '.join(peaks)}."
    return {"state": "done", "text": text, "drawn": parts_html(shown, level=3)}


def place_options(asked: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of `legroom predict` for a place that `place_asked` has read."""
    for name in ("ram", "vram", "gpu"):
        if asked.get(name):
            yield f"--{name}={asked[name]}"
    if asked.get("device") == "cpu":
        yield "--cpu-only"


def turned_settings(run: Run, data: Any) -> Iterator[str]:
    """Yield an option for every setting of the run that was turned in the data."""
    before = run.model_dump(exclude_defaults=True)
    for key, control in control_by_key(run).items():
        value = _at(data, key)
        if value == _at(before, key) or not _is_plain(value, control):
            continue
        yield "--set"
        yield f"{key}={json.dumps(value)}"


def _at(data: Any, key: str) -> Any:
    for name in key.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _is_plain(value: Any, control: Mapping[str, Any]) -> bool:
    match control["kind"]:
        case "choice":
            return value is None or value in control["choices"]
        case "flag":
            return value is None or isinstance(value, bool)
        case "widths":
            return isinstance(value, list) and len(value) <= MOST_WIDTHS and all(_is_number(each) for each in value)
        case "text":
            return False  # schedules and the like, which memory does not depend on
    return value is None or _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
