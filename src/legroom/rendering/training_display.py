"""A training as it runs: a live display on a terminal, plain lines everywhere else.

Both show the same figures (`TrainingView`): steps, speed, reward, time left, and memory against its predicted peak and
its limit.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self, TextIO

from legroom.model.footprint import Peak
from legroom.model.outcome import MemorySample, Progress, finite
from legroom.rendering.console import DRAW_EVERY_S, LiveLines
from legroom.rendering.layout import paint
from legroom.rendering.printable import printable
from legroom.rendering.time_left import TrainingPace, duration_text, number_text
from legroom.units import format_size

LINE_EVERY_S = 10.0
SLOWEST_LINE_S = 60.0  # between two lines of a training that runs for hours, or stands in a long update
SOON_S = 1.0  # between two lines that a new phase asks for
PRESSURE_SHOWN = 0.05  # of the time that everything waits for memory
LABEL, NARROWEST_BAR, WIDEST = 7, 10, 130  # letters of the picture
NEAR_ENOUGH = 0.25  # of the limit: a smaller prediction gets a bar of its own scale
HEADROOM = 1.25
_LEVELS = {"good": "green", "warning": "yellow", "danger": "bold red"}
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
        self.pace = TrainingPace()
        self.now: Progress | None = None
        self.reward: float | None = None
        self.pressure = 0.0

    def progress(self, progress: Progress) -> None:
        """Take a message; a reward once known stays until there is another."""
        if self.now is None or progress.seconds != self.now.seconds:  # a mere change of phase repeats the time
            self._heard_at = self.clock()
        self.pace.add(progress)
        self.now = progress
        self.total = progress.total or self.total
        reward = finite(progress.reward_mean)
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


def can_be_live(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether the stream is a terminal that can show a picture; else lines are written."""
    if not stream.isatty() or environ.get("NO_COLOR") or environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return False
    return (stream.encoding or "").lower().replace("-", "") == "utf8"  # the bars are no ASCII


class TerminalDisplay:
    """A picture that moves, the last of which stays; or lines: one soon, one at every new phase, then now and then."""

    def __init__(self, view: TrainingView, stream: TextIO, *, live: bool = False) -> None:
        self.view, self.live = view, live
        self._lines, self._clock, self._began = LiveLines(stream), view.clock, view.clock()
        self._lock = threading.Lock()  # memory is sampled in a thread of its own
        self._seen: set[str] = set()
        self._said_at = 0.0 if not live else -math.inf
        self._said: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            if self.live:
                self._draw()
                self._lines.keep()
            elif self.view.now is not None and self.view.now is not self._said:
                self._say_progress()

    def progress(self, progress: Progress) -> None:
        with self._lock:
            self.view.progress(progress)
            if self.live:
                self._draw_soon()
            elif self._is_time(progress):
                self._say_progress()

    def memory(self, sample: MemorySample) -> None:
        with self._lock:
            self.view.memory(sample)
            # A long update says nothing for itself: show that it is alive.
            if self.live:
                self._draw_soon()
            elif self._said is not None and self._clock() - self._said_at >= SLOWEST_LINE_S:
                self._say_progress()

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self._lines.say(line)

    def _draw_soon(self) -> None:
        if self._clock() - self._said_at >= DRAW_EVERY_S:
            self._draw()

    def _draw(self) -> None:
        self._said_at = self._clock()
        self._lines.draw(picture(self.view, self._lines.width))

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
        self._lines.say(progress_line(self.view))
        self._said, self._said_at = now, self._clock()
        self._seen.add(now.phase)


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


def picture(view: TrainingView, width: int) -> list[str]:
    """The lines of the live display, none wider than `width`: what goes on, steps, and memory, the latter with bars."""
    width, now = min(width, WIDEST), view.now
    gauges = [gauge for gauge in (view.host, view.gpu) if gauge is not None and gauge.nbytes is not None]
    share = min(now.timesteps / view.total, 1.0) if now is not None and view.total > 0 else 0.0
    steps = f"{now.timesteps if now else 0:,} / {view.total:,}  {int(100 * share)} %  {view.speed}".rstrip()
    texts = [steps, *(memory_text(gauge) for gauge in gauges)]
    bar = max(width - LABEL - 2 - max(map(len, texts)), NARROWEST_BAR)
    bars = [("━" * int(share * bar)).ljust(bar, "─"), *(gauge_bar(gauge, bar) for gauge in gauges)]
    styles = ["cyan", *(_LEVELS[gauge.level] for gauge in gauges)]
    lines = [paint(_headline(view)[:width], "bold")]
    for name, drawn, style, text in zip(("steps", *(one.name for one in gauges)), bars, styles, texts, strict=True):
        shown = text.removeprefix(f"{name} ")[: width - LABEL - 2 - bar]
        lines.append(f"{name.ljust(LABEL)}{paint(drawn, style)}  {shown}".rstrip())
    return lines


def _headline(view: TrainingView) -> str:
    now = view.now
    parts = [view.run_name, "starting" if now is None else now.phase]
    if now is not None:
        parts.append(f"iteration {now.iteration:,}" if now.iteration else "")
        parts.append(f"reward {number_text(view.reward)}" if view.reward is not None else "")
        left = view.time_left or ("…" if now.timesteps < view.total else "")
        parts += [f"ETA {left}" if left else "", f"{duration_text(view.elapsed_s)} gone", view.waiting]
    return printable("   ".join(part for part in parts if part))


def gauge_bar(gauge: MemoryGauge, width: int) -> str:
    """What is used, lighter up to the peak so far, with a mark at the predicted peak."""
    scale = scale_of(gauge)
    used, peak = (round(min(nbytes / scale, 1.0) * width) for nbytes in (gauge.nbytes or 0, gauge.peak))
    cells = ["█"] * used + ["░"] * (peak - used) + ["─"] * (width - peak)
    if gauge.predicted is not None:
        cells[min(int(gauge.predicted.nbytes / scale * width), width - 1)] = "┃"
    return "".join(cells)


def scale_of(gauge: MemoryGauge) -> int:
    """Bytes at the end of a gauge's bar: the limit where the prediction comes anywhere near it, else a little more
    than the prediction, because a bar that ends at 64 GiB shows nothing of a run that takes one.
    """
    expected = max(gauge.predicted.high if gauge.predicted else 0, gauge.peak, 1)
    if gauge.limit is not None and (gauge.predicted is None or expected >= NEAR_ENOUGH * gauge.limit):
        return max(gauge.limit, gauge.peak)
    return int(expected * HEADROOM)
