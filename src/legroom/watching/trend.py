"""Trends in a curve of memory: what it does at its end, told apart from how it began.

Training allocates and frees in rounds, so single samples say little. The time is cut into windows; the lowest points of
the windows show what never comes back, the highest what has to fit. Through either a straight line is laid, alone and
together with one shape for something that happened once: a ramp that ends (a buffer filled), a step (something was
loaded), an approach to a level (a cache warmed up). `readings` are all of these that describe the points about as
well as the best one does. A claim that holds for each of them does not depend on which one is true.

Errors of the slope allow for windows that resemble their neighbours (AR(1) residuals), as those of memory do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import mul

from legroom.model.trace import Sample

Point = tuple[float, float]
Shape = Callable[[float], float]  # of the time, 0 at the first point and 1 at the last

WINDOWS = 48
SAMPLES_PER_WINDOW = 3
LEAST_POINTS = 8
NOISE_SHARE = 0.0005  # of the level: what nobody would call a difference
NOISE_LEAST = 64 << 10
ABOUT_AS_GOOD = 4.0  # difference of the information criterion
_TAUS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True)
class Reading:
    """One description of the points: their slope at the end in bytes per second, its standard error, and the curve."""

    slope: float
    error: float
    spread: float  # of the points around it
    above: float  # nine in ten points lie less than this above it
    criterion: float  # smaller is better
    settles: bool  # whether it has a part that ends by itself
    at: Callable[[float], float]

    def lower(self, errors: float = 2.5) -> float:
        """Return the slope that it has at least."""
        return self.slope - errors * self.error


def envelopes(samples: Sequence[Sample], begin: float, end: float) -> tuple[list[Point], list[Point]]:
    """Return the lowest and the highest point of each window between two times."""
    inside = [(sample.t, sample.host) for sample in samples if begin <= sample.t <= end]
    count = min(WINDOWS, len(inside) // SAMPLES_PER_WINDOW)
    if count < 1 or end <= begin:
        return [], []
    windows: list[list[Point]] = [[] for _ in range(count)]
    for t, nbytes in inside:
        windows[min(int((t - begin) / (end - begin) * count), count - 1)].append((t, float(nbytes)))
    full = [window for window in windows if window]
    return [min(w, key=lambda p: p[1]) for w in full], [max(w, key=lambda p: p[1]) for w in full]


def readings(points: Sequence[Point]) -> list[Reading]:
    """Return every reading about as good as the best one, which comes first; none for too few points."""
    if not enough(points):
        return []
    found = sorted(_all(points), key=lambda reading: reading.criterion)
    return [reading for reading in found if reading.criterion <= found[0].criterion + ABOUT_AS_GOOD]


def enough(points: Sequence[Point]) -> bool:
    """Say whether there are enough points to speak of a trend."""
    return len(points) >= LEAST_POINTS and points[-1][0] > points[0][0]


def rise(points: Sequence[Point]) -> float:
    """Return how far the last third of the points lies above the first, at most: a quick look before a close one."""
    third = max(len(points) // 3, 1)
    return max(nbytes for _, nbytes in points[-third:]) - min(nbytes for _, nbytes in points[:third])


def _all(points: Sequence[Point]) -> Iterator[Reading]:
    first, last = points[0][0], points[-1][0]
    times = [(t - first) / (last - first) for t, _ in points]
    shapes: list[Shape | None] = [None]
    shapes += [partial(kind, tau) for kind in (_ramp, _step, _approach) for tau in _TAUS]
    for shape in shapes:
        reading = _fit(points, times, shape)
        if reading is not None:
            yield reading


def _ramp(tau: float, u: float) -> float:
    return u if u < tau else tau


def _step(tau: float, u: float) -> float:
    return 1.0 if u > tau else 0.0


def _approach(tau: float, u: float) -> float:
    return -math.exp(-3 * u / tau)


def _fit(points: Sequence[Point], times: list[float], shape: Shape | None) -> Reading | None:
    """Return the least squares of level, slope and shape, None where they cannot be told apart."""
    first, span, count = points[0][0], points[-1][0] - points[0][0], len(points)
    values = [nbytes for _, nbytes in points]
    columns = [[1.0] * count, times] if shape is None else [[1.0] * count, times, [shape(u) for u in times]]
    inverse = _inverse([[_product(a, b) for b in columns] for a in columns])
    if inverse is None:
        return None
    right = [_product(column, values) for column in columns]
    solution = [_product(row, right) for row in inverse]
    off = [value - _product(solution, row) for value, row in zip(values, zip(*columns, strict=True), strict=True)]
    noise = max(NOISE_LEAST, NOISE_SHARE * max(values))
    squares = _product(off, off) + count * noise * noise
    alike = _likeness(off)
    spread = math.sqrt(squares / max(count - len(columns), 1))
    error = spread * math.sqrt(inverse[1][1] * (1 + alike) / (1 - alike))
    criterion = count * math.log(squares / count) + (2 if shape is None else 4) * math.log(count)

    def at(t: float) -> float:
        u = (t - first) / span
        return solution[0] + solution[1] * u + (solution[2] * shape(u) if shape is not None else 0.0)

    above = sorted(off)[min(int(0.9 * count), count - 1)]
    return Reading(solution[1] / span, error / span, spread, max(above, 0.0), criterion, shape is not None, at)


def _likeness(off: Sequence[float]) -> float:
    """Return how much residuals resemble the one before, between 0 and 0.9."""
    squares = _product(off, off)
    return min(max(_product(off, off[1:]) / squares, 0.0), 0.9) if squares > 0 else 0.0


def _product(a: Iterable[float], b: Iterable[float]) -> float:
    return sum(map(mul, a, b))


def _inverse(square: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """Return the inverse of a small matrix by elimination, None where there is none."""
    size = len(square)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(square)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        if abs(rows[pivot][i]) < 1e-9:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for k in range(size):
            if k != i and rows[k][i]:
                factor = rows[k][i]
                rows[k] = [x - factor * y for x, y in zip(rows[k], rows[i], strict=True)]
    return [row[size:] for row in rows]
