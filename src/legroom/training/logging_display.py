"""A display that also writes down what it shows, so that a training can be followed from outside (`legroom ui`)."""

from __future__ import annotations

from pathlib import Path

from legroom.machine.live_log import LiveLog
from legroom.model.progress import MemorySample, Progress
from legroom.training.supervise import Display


class LoggingDisplay:
    """Shows on `display`, and keeps memory and words in the folder's live log."""

    def __init__(self, display: Display, folder: Path) -> None:
        self._display, self._log = display, LiveLog(folder)

    def progress(self, progress: Progress) -> None:
        self._display.progress(progress)

    def memory(self, sample: MemorySample) -> None:
        self._log.memory(sample.host_nbytes, sample.gpu_nbytes, phase=sample.phase)
        self._display.memory(sample)

    def say(self, line: str) -> None:
        self._log.say(line)
        self._display.say(line)
