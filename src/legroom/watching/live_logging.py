"""A display that also writes down what it shows, so that a watch can be followed from outside (`legroom ui`)."""

from __future__ import annotations

from pathlib import Path

from legroom.machine.live_log import LiveLog
from legroom.model.trace import Forecast, MemoryLimit, Sample
from legroom.watching.watch import Display


class LoggedDisplay(Display):
    """Shows on `display`, and keeps memory in the folder's live log."""

    def __init__(self, display: Display, folder: Path) -> None:
        self._display, self._log = display, LiveLog(folder)

    def pass_on(self, chunk: bytes) -> None:
        self._display.pass_on(chunk)

    def memory(self, sample: Sample, limit: MemoryLimit | None, coming: Forecast | None) -> None:
        self._log.memory(sample.host, sample.gpu, limit=None if limit is None else limit.nbytes)
        self._display.memory(sample, limit, coming)

    def exceeded(self, sample: Sample, limit: MemoryLimit) -> None:
        self._log.say("above the given limit")
        self._display.exceeded(sample, limit)

    def forecast(self, coming: Forecast, limit: MemoryLimit) -> None:
        self._log.say(f"reaches its limit in {coming.reaches - coming.made:.0f} s at this rate")
        self._display.forecast(coming, limit)
