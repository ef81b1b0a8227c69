"""Commands of legroom in a child process, one at a time: a prediction that traces, a fit with trusted code, a program.

They import or execute code. So runs are only those that the page was started with, turned only by numbers, truths and
known words; what runs code of the user's own also needs the key in the address that `legroom ui` printed (`app`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any

from legroom.errors import BadInput
from legroom.orphan import END_WITH_PARENT

RUN = f"{END_WITH_PARENT} from legroom.cli.main import main; main()"
FIT = f"{END_WITH_PARENT} from legroom.serving.answers import fit_trusted; fit_trusted()"
LONGEST_S = 900.0  # brax's compiler takes minutes


class Jobs:
    """The child under way, if there is one, and what the last one said."""

    def __init__(self) -> None:
        self._job, self._began = 0, 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._answer: dict[str, Any] | None = None

    async def start(self, words: Sequence[str]) -> int:
        """Start a command in place of what is under way; return the number to ask with."""
        await self.end()
        self._job, self._began, self._answer = self._job + 1, time.monotonic(), None
        folder = tempfile.TemporaryDirectory(prefix="legroom-ui-")
        command, *rest = words
        python = [RUN, command, f"--html={folder.name}/page.html"] if command != "fit" else [FIT]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", python[0], str(os.getpid()), *python[1:], *rest,
            stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True,
        )  # fmt: skip
        self._task = asyncio.create_task(self._wait(self._process, folder))
        return self._job

    def told(self, job: int) -> dict[str, Any]:
        """Return how far it is, or what it said.

        Raises:
            BadInput: there is no such job, or another one took its place.
        """
        if job != self._job:
            raise BadInput("another question replaced it", hint="ask again")
        if self._answer is not None:
            return self._answer
        return {"state": "running", "text": f"Running: {time.monotonic() - self._began:.0f} s…"}

    async def end(self) -> None:
        """End what is under way, and all that it started."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, SIGKILL)
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _wait(self, process: asyncio.subprocess.Process, folder: tempfile.TemporaryDirectory[str]) -> None:
        with folder:
            try:
                out, err = await asyncio.wait_for(process.communicate(), LONGEST_S)
                answer = _answered(out, err, process.returncode, Path(folder.name, "page.html"))
            except TimeoutError:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, SIGKILL)
                answer = {"state": "failed", "text": f"It took more than {LONGEST_S / 60:.0f} minutes and was ended."}
        self._answer = answer | {"seconds": round(time.monotonic() - self._began)}


def _answered(out: bytes, err: bytes, code: int | None, page: Path) -> dict[str, Any]:
    """Return what the child said: the page that it wrote, or the plan that it printed."""
    if page.exists():
        body = page.read_text("utf-8").partition('<body class="legroom">')[2].partition("<footer>")[0]
        drawn = re.sub(r"<(/?)h([1-3])\b", lambda found: f"<{found[1]}h{int(found[2]) + 2}", body)
        return {"state": "done", "drawn": drawn}  # within the page, whose own headings are above these
    if code == 0:
        return {"state": "done", "plan": json.loads(out.splitlines()[-1])}
    lines = err.decode("utf-8", "replace").strip().splitlines() or [f"exit code {code}"]
    return {"state": "failed", "text": lines[-1][:400]}
