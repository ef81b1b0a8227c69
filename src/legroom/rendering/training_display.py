"""A training as it runs: a live display on a terminal, plain lines everywhere else.

Both show the same figures (`TrainingView`): steps, speed, reward, time left, and memory against its predicted peak and
its limit. Showing is never worth a training: a reader that went away or a character that cannot be written is ignored.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self, TextIO

from legroom.model.footprint import Peak
from legroom.model.progress import MemorySample, Progress, finite
from legroom.rendering.printable import printable
from legroom.rendering.time_left import Pace, duration_text, number_text
from legroom.units import format_size

LINE_EVERY_S = 10.0
SLOWEST_LINE_S = 60.0  # between two lines of a training that runs for hours, or stands in a long update
SOON_S = 1.0  # between two lines that a new phase asks for
PRESSURE_SHOWN = 0.05  # of the time that everything waits for memory
NEAR_LIMIT, AT_LIMIT = 0.85, 0.95  # shares of the limit from which memory is shown as a warning, as a danger


@dataclass(frozen=True)
class MemoryGauge:
    """Memory in one place against what was predicted and what there is."""

    name: str
    predicted: Peak | None = None
    limit: int | None = None
    nbytes: int | None = None
    peak: int = 0

    def at(self, nbytes: int | None) -> MemoryGauge:
        """Return the gauge with a new reading; None leaves the old one."""
        return self if nbytes is None else replace(self, nbytes=nbytes, peak=max(self.peak, nbytes))

    @property
    def level(self) -> Literal["good", "warning", "danger"]:
        """How close it is: `warning` above the predicted band or near the limit, `danger` at the limit."""
        used = self.nbytes or 0
        if self.limit is not None and used >= AT_LIMIT * self.limit:
            return "danger"
        over = self.predicted is not None and used > self.predicted.high
        return "warning" if over or (self.limit is not None and used >= NEAR_LIMIT * self.limit) else "good"


class TrainingView:
    """The latest figures of a training: what a display shows, without how."""

    def __init__(
        self,
        run_name: str,
        total_timesteps: int,
        *,
        host: MemoryGauge,
        gpu: MemoryGauge | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run_name, self.total = run_name, total_timesteps
        self.clock, self._heard_at = clock, clock()
        self.host, self.gpu = host, gpu
        self.pace = Pace()
        self.now: Progress | None = None
        self.reward: float | None = None
        self.episode_length: float | None = None
        self.pressure = 0.0
        self.rewards: list[tuple[int, float]] = []  # by step, for a curve of a few characters

    def progress(self, progress: Progress) -> None:
        """Take a message; a reward once known stays until there is another."""
        if self.now is None or progress.seconds != self.now.seconds:  # a mere change of phase repeats the time
            self._heard_at = self.clock()
        self.pace.add(progress)
        self.now = progress
        self.total = progress.total or self.total
        self.episode_length = finite(progress.episode_length_mean) or self.episode_length
        reward = finite(progress.reward_mean)
        if reward is not None and (not self.rewards or self.rewards[-1][0] < progress.timesteps):
            self.rewards.append((progress.timesteps, reward))
            if len(self.rewards) > 1000:
                del self.rewards[1:-1:2]
        self.reward = self.reward if reward is None else reward

    def memory(self, sample: MemorySample) -> None:
        """Take a reading."""
        self.host = self.host.at(sample.host_nbytes)
        self.pressure = sample.pressure or 0.0
        if sample.gpu_nbytes is not None:
            self.gpu = (self.gpu or MemoryGauge("GPU")).at(sample.gpu_nbytes)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first message."""
        return 0.0 if self.now is None else self.pace.elapsed_s + self._waited_s

    @property
    def _waited_s(self) -> float:
        return max(self.clock() - self._heard_at, 0.0)

    @property
    def time_left(self) -> str:
        """The time left as text; `≥` while it is only a lower bound, empty while nothing is known or nothing left."""
        left = self.pace.time_left(self._waited_s)
        if left is None or (left.seconds < 0.5 and self.now is not None and self.now.timesteps >= self.total):
            return ""
        return f"{'≥ ' if left.at_least else ''}{duration_text(left.seconds)}"

    @property
    def waiting(self) -> str:
        """How much of the time is lost to waiting for memory, empty where it is hardly any."""
        return f"waits for memory {self.pressure:.0%} of the time" if self.pressure >= PRESSURE_SHOWN else ""

    @property
    def speed(self) -> str:
        """Steps per second as text, empty while there is no figure."""
        rate = finite(self.now.steps_per_s) if self.now else None
        return "" if not rate or rate < 0 else f"{rate:,.0f} steps/s" if rate >= 10 else f"{rate:.2g} steps/s"


class Display(Protocol):
    """What the training loop talks to; used as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def progress(self, progress: Progress) -> None:
        """Show how far the training is."""

    def memory(self, sample: MemorySample) -> None:
        """Show what memory it has."""

    def say(self, line: str) -> None:
        """Write a line that stays."""


def display_for(
    stream: TextIO,
    run_name: str,
    total_timesteps: int,
    *,
    host_predicted: Peak | None = None,
    host_limit: int | None = None,
    gpu_predicted: Peak | None = None,
    gpu_limit: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Display:
    """Return a live display where the stream is a terminal that can show one, else one of plain lines."""
    gpu = MemoryGauge("GPU", gpu_predicted, gpu_limit)
    view = TrainingView(
        run_name,
        total_timesteps,
        host=MemoryGauge("host", host_predicted, host_limit),
        gpu=None if gpu_predicted is None else gpu,
    )
    if not _can_be_live(stream, environ):
        return PlainDisplay(view, stream)
    from legroom.rendering.live import LiveDisplay  # importing rich takes 60 ms

    return LiveDisplay(view, stream)


def _can_be_live(stream: TextIO, environ: Mapping[str, str]) -> bool:
    if not stream.isatty() or environ.get("NO_COLOR") or environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return False
    return (stream.encoding or "").lower().replace("-", "") == "utf8"  # the bars are no ASCII


class PlainDisplay:
    """Lines into a file or a pipe: one soon, one at every phase that is new, then one now and then."""

    def __init__(self, view: TrainingView, stream: TextIO) -> None:
        self.view = view
        self._stream, self._clock, self._began = stream, view.clock, view.clock()
        self._lock = threading.Lock()  # memory is sampled in a thread of its own
        self._seen: set[str] = set()
        self._said_at = 0.0
        self._said: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            if self.view.now is not None and self.view.now is not self._said:
                self._say_progress()

    def progress(self, progress: Progress) -> None:
        with self._lock:
            self.view.progress(progress)
            if self._is_time(progress):
                self._say_progress()

    def memory(self, sample: MemorySample) -> None:
        with self._lock:
            self.view.memory(sample)
            # A long update says nothing for itself: show that it is alive.
            if self._said is not None and self._clock() - self._said_at >= SLOWEST_LINE_S:
                self._say_progress()

    def say(self, line: str) -> None:
        with self._lock:
            self._write(line)

    def _is_time(self, progress: Progress) -> bool:
        now = self._clock()
        if self._said is None:  # not before there is something to say
            return self.view.pace.steps > 0 or now - self._began >= SOON_S
        if progress.phase not in self._seen:
            return now - self._said_at >= SOON_S
        return now - self._said_at >= min(max(LINE_EVERY_S, (now - self._began) / 30), SLOWEST_LINE_S)

    def _say_progress(self) -> None:
        now = self.view.now
        if now is None:
            return
        self._write(progress_line(self.view))
        self._said, self._said_at = now, self._clock()
        self._seen.add(now.phase)

    def _write(self, line: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(printable(line).encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads it any more
            pass


def progress_line(view: TrainingView) -> str:
    """Return all that is known in one line, columns kept where they were as long as numbers grow."""
    now = view.now
    steps, total = (now.timesteps if now else 0), f"{view.total:,}"
    parts = [f"{steps:>{len(total)},} / {total} steps", view.speed]
    parts.append(f"reward {number_text(view.reward)}" if view.reward is not None else "")
    parts.append(f"ETA {view.time_left}" if view.time_left else "")
    parts += [memory_text(gauge) for gauge in (view.host, view.gpu) if gauge is not None and gauge.nbytes is not None]
    if now is not None and now.phase != "collect":
        parts.append(now.phase)
    parts.append(view.waiting)
    return "  " + "   ".join(part for part in parts if part)


def memory_text(gauge: MemoryGauge) -> str:
    """Return `host 612.0 MiB (predicted 700.0 MiB, limit 16.0 GiB)`."""
    against = [f"predicted {format_size(gauge.predicted.nbytes)}"] if gauge.predicted is not None else []
    against += [f"limit {format_size(gauge.limit)}"] if gauge.limit is not None else []
    return f"{gauge.name} {format_size(gauge.nbytes or 0)}" + (f" ({', '.join(against)})" if against else "")
