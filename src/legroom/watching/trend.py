"""The one verdict on growth, of `watch`, `profile` and rehearsals: `leak`, `growing` or `ok`, with the rate.

"More at the end than at the beginning" cries wolf on nearly every clean run: modules are loaded, caches warm up,
buffers fill and are dropped. So the caller says from when on it counts, and the time is cut into windows: their lowest
points show what never comes back, their highest what has to fit. Through either goes a straight line, alone and
together with one thing that happened once: an approach to a level (a cache of random keys), a ramp that ends (a buffer
with a limit), a step (something was loaded). Every fit about as good as the best is believed, so no claim depends on
which one is true: the growth is what the *smallest* lower bound among them says. Errors of slopes allow for windows
that resemble their neighbours (AR(1) residuals), as those of memory do.

A leak has to rise all the way besides: of a saw tooth longer than a window, what never comes back is flat up to its
last tooth. Where growth may yet settle the verdict is `growing`, and a caller who can looks for longer. One who cannot,
as the command has ended, asks for a `final` verdict: what happens once has had its time, and the later half tells the
shape.

Time is whatever the caller counts: steps of an environment, seconds, seconds of processor time. Plain Python: the
process that watches should stay small, and for some dozen points the first calls of NumPy's functions take longer than
all of this.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import mul
from typing import Any, get_args

from legroom.model.trace import LeakVerdict

Series = tuple[list[float], list[float]]  # times, rising, and bytes
Shape = Callable[[float], float]  # of the time, 0 at the first point and 1 at the last

LEAST_POINTS = 8
LEAST_WINDOWS, MOST_WINDOWS, SAMPLES_PER_WINDOW = 12, 24, 3
FALL_SHARE = 0.6  # of the height: what falls by more is a buffer dropped, not noise
ABOUT_AS_GOOD = 2.0  # difference of the information criterion (BIC)
APPROACHES = tuple(0.04 * 1.25**number for number in range(20))  # time constants, in lengths of what is fitted
SETTLED = APPROACHES[:9]  # those of which less than a twentieth is left at the end
QUANTILE = 3.09  # one in a thousand

CALM_SHARE = 0.4  # of the floor: what stays within is judged at a glance
SETTLING_SHARE = 0.35  # of the growth before
SEGMENTS, LEAST_SHARE = 4, 0.25  # a leak rises in every quarter, by a quarter of its mean at least
STEADY_SHARE = 0.4  # and makes up so much of all the growth; a cache beside it has filled in a longer look
SLOWER, FASTER = 0.8, 2.5  # the later half against the earlier one


@dataclass(frozen=True)
class Floor:
    """What is too little to matter: growth below `nbytes` over all that is looked at, or below `per_time` of it.

    Levels that differ by less than `noise` are the same.
    """

    nbytes: float
    per_time: float = 0.0
    noise: float = 256.0

    def over(self, span: float) -> float:
        return max(self.nbytes, self.per_time * span)


@dataclass(frozen=True)
class Verdict:
    """How a series grows."""

    verdict: LeakVerdict
    rate: float  # at the end, in bytes per unit of time, by the best fit; `interval` is what it lies between
    interval: tuple[float, float]
    lately: float = 0.0  # the rate over the last quarter by the same fit, with what is about to settle in it
    too_few: bool = False  # whether there were too few samples for a trend


def judge(
    times: Sequence[float], values: Sequence[float], floor: Floor, *, begin: float, final: bool = False
) -> Verdict:
    """Return the verdict on a series of bytes in use.

    Args:
        times: at which the samples were taken, rising; of several at one time (a slow step) the lowest counts.
        begin: the samples before are left out.
        final: whether there will be no longer look.
    """
    place = bisect_left(times, begin)
    lowest: dict[float, float] = {}
    for time, value in zip(times[place:], values[place:], strict=True):
        lowest[time] = min(value, lowest.get(time, value))
    times, values = list(lowest), list(lowest.values())
    if len(times) < 2 or times[-1] <= times[0]:
        return Verdict("ok", 0.0, (0.0, 0.0), too_few=True)
    span, height = times[-1] - times[0], max(values) - min(values)
    if len(times) >= 3 and height < CALM_SHARE * floor.over(span):
        return _calm(times, values, floor.noise + height)
    times, values = evenly(times, values)
    if len(times) < LEAST_POINTS:
        rate = (values[-1] - values[0]) / (times[-1] - times[0])
        verdict: LeakVerdict = "growing" if values[-1] - values[0] > floor.nbytes else "ok"
        return Verdict(verdict, rate, (min(rate, 0.0), max(rate, 0.0)), rate, too_few=True)
    return _judge_closely(times, values, floor, final=final)


def combine(parts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a whole whose parts were judged: the worst one; the rates of those that have it add up."""
    worst = min(parts, key=lambda part: get_args(LeakVerdict).index(part.verdict))
    counted = [part for part in parts if part.verdict == worst.verdict]
    low, high = (sum(part.interval[end] for part in counted) for end in (0, 1))
    return replace(worst, rate=sum(part.rate for part in counted), interval=(low, high))


def _calm(times: Sequence[float], values: Sequence[float], height: float) -> Verdict:
    """Return the verdict on a series that stays where it is: most environments, most of the time."""
    centre = sum(times) / len(times)
    width = sum((time - centre) ** 2 for time in times)
    slope = line_slope(times, values)
    reach = QUANTILE * height / 2 / width**0.5  # at most: the height bounds every deviation
    return Verdict("ok", slope, (slope - reach, slope + reach), too_few=len(times) < LEAST_POINTS)


def _judge_closely(times: list[float], values: list[float], floor: Floor, *, final: bool) -> Verdict:
    span = times[-1] - times[0]
    lows, _ = envelopes(times, values, least=floor.nbytes)
    found = believable(*lows, noise=floor.noise)
    best, low, high = found[0], min(fit.low for fit in found), max(fit.high for fit in found)
    least = floor.over(span)
    lately = (best.at(times[-1]) - best.at(times[-1] - span / 4)) / (span / 4)
    steady = _is_steady((times, values), best.slope, lows)
    if final and not steady:
        steady = _is_steady(_later_half((times, values)), best.slope, _later_half(lows))
    verdict: LeakVerdict = "ok"
    if low * span >= least and steady:
        verdict = "leak"
    # by the fit, not by the samples: their last moments may be the middle of a tooth
    elif (final and lately * span / 4 >= max(least / 2, 2 * best.spread)) or (
        not final and _still_rising(times, values, least, high * span)
    ):
        verdict = "growing"
    return Verdict(verdict, best.slope, (low, high), lately)


def _later_half(points: Series) -> Series:
    half = len(points[0]) // 2
    return points[0][half:], points[1][half:]


def _is_steady(points: Series, slope: float, lows: Series) -> bool:
    times, values = points
    return _rises_evenly(*lows) and _rises_all_the_way(times, values, slope * (times[-1] - times[0]))


def _rises_evenly(times: Sequence[float], lowest: Sequence[float]) -> bool:
    """Say whether the later half rises about as fast as the earlier one: what slows down may settle soon."""
    if len(times) < LEAST_POINTS:
        return False
    half = len(times) // 2
    early, late = line_slope(times[:half], lowest[:half]), line_slope(times[half:], lowest[half:])
    return SLOWER * early <= late <= FASTER * early


def _rises_all_the_way(times: Sequence[float], values: Sequence[float], rise: float) -> bool:
    marks = _never_back(times, values, [number / SEGMENTS for number in range(SEGMENTS + 1)])
    if rise < STEADY_SHARE * (marks[-1] - marks[0]):
        return False
    return all(later - earlier >= LEAST_SHARE * rise / SEGMENTS for earlier, later in pairwise(marks))


def _still_rising(times: Sequence[float], values: Sequence[float], least: float, high: float) -> bool:
    """Say whether what never came back rose in the later half: by more than the samples scatter, or as it did before.

    The last tenth is left out: whatever scatters ends somewhere above its lowest point. Growth that was far less than
    before, and that no believable fit takes for a trend (`high` is the most any of them has), is settling.
    """
    first, second, third = _never_back(times, values, (0.1, 0.5, 0.9))
    early, late = second - first, third - second
    if late < CALM_SHARE * least:
        return False
    if late <= SETTLING_SHARE * early and CALM_SHARE * high <= max(0.5 * late, CALM_SHARE * least):
        return False
    scatter = middle(max(part) - min(part) for part in parts(values, min(12, len(values) // 2)))
    return late >= 1.5 * scatter or (min(early, late) >= 0.35 * scatter and early >= late / 4)


def _never_back(times: Sequence[float], values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return what was in use after each share of the time and never came back: the lowest of then and later."""
    lowest, kept = float("inf"), []
    for value in reversed(values):
        lowest = min(lowest, value)
        kept.append(lowest)
    kept.reverse()
    found = []
    for place in (times[0] + share * (times[-1] - times[0]) for share in shares):
        right = min(max(bisect_left(times, place), 1), len(times) - 1)
        between = (place - times[right - 1]) / (times[right] - times[right - 1])
        found.append(kept[right - 1] + min(max(between, 0.0), 1.0) * (kept[right] - kept[right - 1]))
    return found


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
