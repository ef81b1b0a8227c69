"""How long a training still takes, from what it said so far.

An on-policy training alternates: steps come fast while it collects and stop while it updates. A rate taken over part
of a round is therefore wrong by whatever the rest costs, and the time left would jump twice a round. So the rate is
taken between the beginnings of whole rounds, over the later half of the time (an off-policy run is quicker before it
begins to learn), and within a round the time left counts down. Before the first round is complete there is only a
lower bound, and it is shown as one.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import NamedTuple

from legroom.model.outcome import Progress
from legroom.model.trace import Forecast

LEAST_WINDOW_S = 60.0
POINTS = 200  # kept of the whole time; a round may last a millisecond


class Point(NamedTuple):
    """The beginning of a round."""

    seconds: float
    timesteps: int


@dataclass(frozen=True)
class TimeLeft:
    """Seconds until the last step; `at_least` where what an update costs is not known yet."""

    seconds: float
    at_least: bool = False


class TrainingPace:
    """Follows the progress of one session: a resumed one begins where its first message says."""

    def __init__(self) -> None:
        self._rounds: list[Point] = []
        self._iteration = 0
        self._first: Progress | None = None
        self._last: Progress | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds from the first message to the last."""
        return 0.0 if self._first is None or self._last is None else self._last.seconds - self._first.seconds

    @property
    def steps(self) -> int:
        """Steps made from the first message to the last."""
        return 0 if self._first is None or self._last is None else self._last.timesteps - self._first.timesteps

    def add(self, progress: Progress) -> None:
        """Take a message; one without a time is skipped, one from an earlier time begins anew (another attempt)."""
        if not math.isfinite(progress.seconds):
            return
        if self._first is None or self._last is None or _goes_back(self._last, progress):
            self._first, self._rounds = progress, [Point(progress.seconds, progress.timesteps)]
            self._iteration = progress.iteration
        elif progress.iteration > self._iteration:
            self._iteration = progress.iteration
            self._add_round(Point(progress.seconds, progress.timesteps))
        self._last = progress

    def time_left(self, waited_s: float = 0.0) -> TimeLeft | None:
        """Return the time left, None where nothing is known.

        Args:
            waited_s: since the last message: an update says nothing while it works.
        """
        if self._first is None or self._last is None:
            return None
        last, seconds = self._last, self._last.seconds + waited_s
        if len(self._rounds) < 2:
            rate = _rate(Point(self._first.seconds, self._first.timesteps), Point(seconds, last.timesteps))
            return None if rate is None else TimeLeft(max(last.total - last.timesteps, 0) / rate, at_least=True)
        newest = self._rounds[-1]
        rate = _rate(self._oldest(newest), newest)
        if rate is None:
            return None
        end = newest.seconds + (last.total - newest.timesteps) / rate
        # A round that takes longer than the others must not count down to nothing with steps still to make.
        return TimeLeft(max(end - seconds, (last.total - last.timesteps) / rate, 0.0))

    def _add_round(self, point: Point) -> None:
        spacing = self.elapsed_s / POINTS
        if len(self._rounds) > 2 and point.seconds - self._rounds[-2].seconds < spacing:
            self._rounds[-1] = point
        else:
            self._rounds.append(point)

    def _oldest(self, newest: Point) -> Point:
        """Return the round to measure from: the latest that is far enough back, and never the newest itself."""
        back = newest.seconds - max(LEAST_WINDOW_S, (newest.seconds - self._rounds[0].seconds) / 2)
        early = [point for point in self._rounds[:-1] if point.seconds <= back]
        return early[-1] if early else self._rounds[0]


def _goes_back(last: Progress, progress: Progress) -> bool:
    return progress.timesteps < last.timesteps or progress.seconds < last.seconds


def _rate(begin: Point, end: Point) -> float | None:
    seconds, steps = end.seconds - begin.seconds, end.timesteps - begin.timesteps
    return steps / seconds if seconds > 0 and steps > 0 else None


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units: `42 s`, `7 min`, `1 h 20 min`, `3 d 4 h`."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 59.5:
        return f"{max(seconds, 0):.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def number_text(value: float | None) -> str:
    """Return a figure in a few digits: `1.23`, `-0.0012`, `12,346`, `1.20e+08`; `–` where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if 0 < size < 1e-4 or size >= 1e8:
        return f"{value:.2e}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 0.1 or value == 0 else f"{value:.2g}"


def runs_out_text(coming: Forecast) -> str:
    """Return the sentence of a forecast, with the hour on the clock."""
    left = coming.reaches - coming.made
    hour = time.strftime("%H:%M" if left >= 120 else "%H:%M:%S", time.localtime(time.time() + left))
    day = time.strftime(" on %d %b", time.localtime(time.time() + left)) if left > 20 * 3600 else ""
    return f"memory runs out in about {duration_text(left)} (at {hour}{day})"
