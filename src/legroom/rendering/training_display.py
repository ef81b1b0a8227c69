"""A training as it runs: a line that stays in its place on a terminal, a line now and then everywhere else."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TextIO

from legroom.model.footprint import Peak
from legroom.model.outcome import MemorySample, Progress, finite
from legroom.rendering.console import DRAW_EVERY_S, LiveLines
from legroom.rendering.layout import wrap
from legroom.units import duration_text, format_size, number_text

LINE_EVERY_S = 10.0
SLOWEST_LINE_S = 60.0  # between two lines of a training that runs for hours, or is in a long update
SOON_S = 1.0  # between two lines that a new phase asks for
PRESSURE_SHOWN = 0.05  # of the time that everything waits for memory


@dataclass
class MemoryGauge:
    """Memory in one place against what was predicted and what there is."""

    name: str
    predicted: Peak | None = None
    limit: int | None = None
    nbytes: int | None = None

    def __str__(self) -> str:
        against = [f"predicted {format_size(self.predicted.nbytes)}"] if self.predicted is not None else []
        against += [f"limit {format_size(self.limit)}"] if self.limit is not None else []
        return f"{self.name} {format_size(self.nbytes or 0)}" + (f" ({', '.join(against)})" if against else "")


class TimeLeft:
    """Seconds to the last step, from the progress of one session.

    Steps come fast while a training collects, and stop while it updates: the rate is taken between beginnings of whole
    rounds, over the later part of the time, since off-policy runs are quicker before they begin to learn.
    """

    def __init__(self) -> None:
        self._starts: list[Progress] = []  # of rounds: the one to measure from, one about half-way since, the newest
        self._last: Progress | None = None

    def add(self, now: Progress) -> None:
        """Take a message; one from an earlier time begins anew (another attempt)."""
        if not math.isfinite(now.seconds):
            return
        last, self._last = self._last, now
        if last is None or now.timesteps < last.timesteps or now.seconds < last.seconds:
            self._starts = [now]
        elif now.iteration > self._starts[-1].iteration:
            self._starts = [*self._starts[:2], now]
            first, middle = self._starts[0], self._starts[1]
            if now.seconds - middle.seconds > 2 * (middle.seconds - first.seconds):
                self._starts = [middle, now]

    def text(self, waited_s: float = 0.0) -> str:
        """`8 min`, `≥ 8 min` before the first round is complete, empty where nothing is known or nothing is left.

        Args:
            waited_s: since the last message: an update says nothing while it works.
        """
        last = self._last
        if last is None or last.timesteps >= last.total:
            return ""
        first, newest = self._starts[0], self._starts[-1]
        whole = newest is not first
        steps = (newest if whole else last).timesteps - first.timesteps
        seconds = (newest.seconds if whole else last.seconds + waited_s) - first.seconds
        if steps <= 0 or seconds <= 0:
            return ""
        if not whole:
            return f"≥ {duration_text((last.total - last.timesteps) * seconds / steps)}"
        end = newest.seconds + (last.total - newest.timesteps) * seconds / steps
        left = end - last.seconds - waited_s
        return duration_text(max(left, (last.total - last.timesteps) * seconds / steps))


class TerminalDisplay:
    """Shows a training on a stream.

    Args:
        live: one line is redrawn, the last of which stays; else a line comes soon, at every new phase, then now and
            then.
    """

    def __init__(
        self, total: int, stream: TextIO, *, host: MemoryGauge, gpu: MemoryGauge | None, live: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._total, self._host, self._gpu, self._live, self._clock = total, host, gpu, live, clock
        self._lines, self._lock = LiveLines(stream), threading.Lock()  # memory is sampled in a thread of its own
        self._began = self._heard_at = clock()
        self._left = TimeLeft()
        self._first: Progress | None = None
        self._now: Progress | None = None
        self._reward: float | None = None
        self._pressure = 0.0
        self._seen: set[str] = set()
        self._said: Progress | None = None
        self._said_at = -math.inf if live else 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            if self._now is not None and self._now is not self._said:
                self._show()
            self._lines.keep()

    def progress(self, progress: Progress) -> None:
        """Take a message; a reward once known stays until there is another."""
        with self._lock:
            if self._now is None or progress.seconds != self._now.seconds:  # a mere change of phase repeats the time
                self._heard_at = self._clock()
            self._left.add(progress)
            self._first, self._now = self._first or progress, progress
            reward = finite(progress.reward_mean)
            self._reward = self._reward if reward is None else reward
            if self._is_due(progress):
                self._show()

    def memory(self, sample: MemorySample) -> None:
        """Take a reading."""
        with self._lock:
            self._host.nbytes, self._pressure = sample.host_nbytes, sample.pressure or 0.0
            if sample.gpu_nbytes is not None:
                self._gpu = self._gpu or MemoryGauge("GPU")
                self._gpu.nbytes = sample.gpu_nbytes
            silent = DRAW_EVERY_S if self._live else SLOWEST_LINE_S  # a long update: show that it is alive
            if self._said is not None and self._clock() - self._said_at >= silent:
                self._show()

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self._lines.say(line)

    def _is_due(self, progress: Progress) -> bool:
        now, since = self._clock(), self._clock() - self._said_at
        if self._live:
            return since >= DRAW_EVERY_S
        if self._said is None:  # not before there is something to say
            return now - self._began >= SOON_S or progress.timesteps > (self._first or progress).timesteps
        if progress.phase not in self._seen:
            return since >= SOON_S
        return since >= min(max(LINE_EVERY_S, (now - self._began) / 30), SLOWEST_LINE_S)

    def _show(self) -> None:
        assert self._now is not None
        if self._live:
            self._lines.draw(wrap(self.line(), self._lines.width))
        else:
            self._lines.say(self.line())
        self._said, self._said_at = self._now, self._clock()
        self._seen.add(self._now.phase)

    def line(self) -> str:
        """All that is known in one line, columns kept where they were as long as numbers grow."""
        now, total = self._now, f"{self._total:,}"
        rate = finite(now.steps_per_s) if now else None
        left = self._left.text(self._clock() - self._heard_at)
        parts = [
            f"{now.timesteps if now else 0:>{len(total)},} / {total} steps",
            "" if not rate or rate < 0 else f"{rate:,.0f} steps/s" if rate >= 10 else f"{rate:.2g} steps/s",
            f"reward {number_text(self._reward)}" if self._reward is not None else "",
            f"ETA {left}" if left else "",
            *(str(gauge) for gauge in (self._host, self._gpu) if gauge is not None and gauge.nbytes is not None),
            now.phase if now is not None and now.phase != "collect" else "",
            f"waits for memory {self._pressure:.0%} of the time" if self._pressure >= PRESSURE_SHOWN else "",
        ]
        return "  " + "   ".join(part for part in parts if part)
