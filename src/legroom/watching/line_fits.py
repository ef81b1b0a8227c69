"""Lines through a series of bytes: what it does at its end, told apart from what happened once.

Memory is taken and given back in rounds, so single samples say little. The time is cut into windows; their lowest
points show what never comes back, their highest what has to fit. Through either goes a straight line, alone and
together with one thing that happened once: an approach to a level (a cache of random keys), a ramp that ends (a buffer
with a limit), a step (something was loaded). Every fit about as good as the best is believable, and a claim that holds
for each of them does not depend on which one is true.

Errors of slopes allow for windows that resemble their neighbours (AR(1) residuals), as those of memory do.

Plain Python: the process that watches should stay small, and for some dozen points the first calls of NumPy's functions
take longer than all of this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import mul
from typing import Any

Series = tuple[list[float], list[float]]  # times, rising, and bytes
Shape = Callable[[float], float]  # of the time, 0 at the first point and 1 at the last

LEAST_POINTS = 8
LEAST_WINDOWS, MOST_WINDOWS, SAMPLES_PER_WINDOW = 12, 24, 3
FALL_SHARE = 0.6  # of the height: what falls by more is a buffer dropped, not noise
ABOUT_AS_GOOD = 2.0  # difference of the information criterion (BIC)
APPROACHES = tuple(0.04 * 1.25**number for number in range(20))  # time constants, in lengths of what is fitted
SETTLED = APPROACHES[:9]  # those of which less than a twentieth is left at the end
QUANTILE = 3.09  # one in a thousand


@dataclass(frozen=True)
class Fit:
    """One description of the points: the slope at the end in bytes per unit of time, `low` to `high`, and the curve."""

    slope: float
    error: float  # standard error of the slope
    quantile: float  # errors that the slope is off by once in a thousand times, at most
    spread: float  # of the points around the curve
    above: float  # nine in ten points lie less than this above the curve
    criterion: float  # smaller is better
    at: Callable[[float], float]

    @property
    def low(self) -> float:
        return self.slope - self.quantile * self.error

    @property
    def high(self) -> float:
        return self.slope + self.quantile * self.error


def evenly(times: Sequence[float], values: Sequence[float]) -> Series:
    """Return the samples thinned to the distance that the last ones have.

    The lowest of many is lower than the lowest of few: windows with more samples early on would look like growth.
    """
    gaps = [later - earlier for earlier, later in pairwise(times)]
    if len(gaps) < LEAST_POINTS:
        return list(map(float, times)), list(map(float, values))
    least = 0.75 * middle(gaps[-max(len(gaps) // 4, 4) :])
    thinned: Series = ([], [])
    last = -math.inf
    for time, value in zip(times, values, strict=True):
        if time - last >= least:
            thinned[0].append(float(time))
            thinned[1].append(float(value))
            last = time
    return thinned


def envelopes(times: Sequence[float], values: Sequence[float], *, least: float) -> tuple[Series, Series]:
    """Return the lowest and the highest points of windows; the samples lie evenly.

    Where memory falls back again and again, by more than `least` bytes, a window is long enough to have such a moment
    in it.
    """
    count = len(times)
    windows = max(min(count // SAMPLES_PER_WINDOW, MOST_WINDOWS), min(LEAST_WINDOWS, count))
    falls = _falls(values, least)
    if len(falls) >= 2:
        apart = max(times[later] - times[earlier] for earlier, later in pairwise(falls))
        windows = max(2, min(windows, int((times[-1] - times[0]) / (1.1 * apart))))
    places = list(parts(range(count), windows))
    lowest, highest = ([choose(inside, key=values.__getitem__) for inside in places] for choose in (min, max))

    def at(chosen: list[int]) -> Series:
        return [times[place] for place in chosen], [values[place] for place in chosen]

    return at(lowest), at(highest)


def parts(sequence: Sequence[Any], count: int) -> Iterator[Any]:
    """Yield slices of about equal length, the longer ones first."""
    length, longer = divmod(len(sequence), count)
    marks = [number * length + min(number, longer) for number in range(count + 1)]
    return (sequence[begin:end] for begin, end in pairwise(marks))


def _falls(values: Sequence[float], least: float) -> list[int]:
    """Return where memory came down by much of the height it moves in, leaving out a trend."""
    count, first, last = len(values), len(values) // 4, -(-len(values) // 4)
    rise = sum(values[-last:]) / last - sum(values[:first]) / first
    level = [value - rise * place / max(count - 1, 1) for place, value in enumerate(values)]
    height = max(level) - min(level)
    if height <= least:
        return []
    return [place for place in range(1, count) if values[place] - values[place - 1] < -FALL_SHARE * height]


def believable(
    times: Sequence[float], values: Sequence[float], *, noise: float, approaches: Sequence[float] = APPROACHES
) -> list[Fit]:
    """Return the fits that describe the points about as well as the best one, which comes first.

    Args:
        noise: bytes by which two levels may differ and be the same.
        approaches: time constants to try.
    """
    fits = sorted(_fits(times, values, noise, approaches), key=lambda fit: fit.criterion)
    return [fit for fit in fits if fit.criterion <= fits[0].criterion + ABOUT_AS_GOOD]


def line_slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the straight line alone."""
    centre = sum(times) / len(times)
    width = sum((time - centre) ** 2 for time in times)
    return sum((time - centre) * value for time, value in zip(times, values, strict=True)) / width if width else 0.0


def _fits(times: Sequence[float], values: Sequence[float], noise: float, approaches: Sequence[float]) -> Iterator[Fit]:
    """Yield the least squares of level and slope, and of level, slope and each shape.

    A line is taken out of both values and shapes first; what is left has one unknown.
    """
    first, span, count = times[0], times[-1] - times[0], len(times)
    scaled = [(time - first) / span for time in times]
    centre, level = sum(scaled) / count, sum(values) / count
    centred = [u - centre for u in scaled]
    width = _product(centred, centred)
    slope = _product(centred, values) / width
    off = [value - level - slope * c for value, c in zip(values, centred, strict=True)]

    def fit(slope: float, off: Sequence[float], variance: float, parameters: int, curve: Shape) -> Fit:
        squares, free = _product(off, off) + count * noise * noise, max(count - parameters, 1)
        alike = _product(off[1:], off) / squares
        alike += (1 + 4 * alike) / count  # few points beside a trend look less alike than they are
        alike = min(max(alike, 0.0), 0.9)
        spread = math.sqrt(squares / free)
        error = spread * math.sqrt(variance * (1 + alike) / (1 - alike))
        # A place or a time constant that was searched for counts as a parameter too.
        criterion = count * math.log(squares / count) + (2 if parameters == 2 else 4) * math.log(count)
        quantile = QUANTILE * (1 + (QUANTILE**2 + 1) / (4 * free))  # of Student's t, first terms
        above = max(sorted(off)[min(int(0.9 * count), count - 1)], 0.0)
        return Fit(
            slope / span, error / span, quantile, spread, above, criterion, lambda time: curve((time - first) / span)
        )

    yield fit(slope, off, 1 / width, 2, lambda u: level + slope * (u - centre))
    if count < LEAST_POINTS:
        return
    for shape in _shapes(scaled, approaches):
        column = [shape(u) for u in scaled]
        mean, lean = sum(column) / count, _product(column, centred) / width
        bent = [s - mean - lean * c for s, c in zip(column, centred, strict=True)]
        size = max(_product(bent, bent), 1e-12)
        height = _product(bent, off) / size
        less = [o - height * b for o, b in zip(off, bent, strict=True)]
        curve = partial(_curve, (level, slope, centre), (shape, height, mean, lean))
        yield fit(slope - height * lean, less, 1 / width + lean * lean / size, 3, curve)


def _curve(line: tuple[float, float, float], bend: tuple[Shape, float, float, float], u: float) -> float:
    (level, slope, centre), (shape, height, mean, lean) = line, bend
    return level + slope * (u - centre) + height * (shape(u) - mean - lean * (u - centre))


def _shapes(scaled: Sequence[float], approaches: Sequence[float]) -> Iterator[Shape]:
    """Yield what may have happened once: approaches to a level, ramps that end, steps."""
    yield from (partial(_approach, tau) for tau in approaches)
    yield from (partial(min, end) for end in scaled[2:-2])
    yield from (partial(_step, (a + b) / 2) for a, b in pairwise(scaled[1:-1]))


def _approach(tau: float, u: float) -> float:
    return 1 - math.exp(-u / tau)


def _step(place: float, u: float) -> float:
    return 1.0 if u > place else 0.0


def middle(numbers: Iterable[float]) -> float:
    """Return the median, the upper one of two."""
    ranked = sorted(numbers)
    return ranked[len(ranked) // 2]


def _product(a: Iterable[float], b: Iterable[float]) -> float:
    total: float = sum(map(mul, a, b))
    return total
