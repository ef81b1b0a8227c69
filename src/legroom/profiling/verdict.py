"""The verdict on growth: `leak`, `growing` or `ok`, with the bytes per step and the interval they lie in.

"More at the end than at the beginning" cries wolf on nearly every clean run: modules are loaded, caches warm up,
buffers fill and are dropped. So the first fifth is left out, and of the rest only the lowest points of windows count,
which show what never came back. Through them goes a straight line, alone and together with one thing that happened
once: an approach to a level (a cache of random keys), a ramp that ends (a cache with a limit), a step (something was
loaded). Every fit about as good as the best is believed: the growth is what the *smallest* lower bound among them says.
Errors of slopes allow for neighbours that resemble each other (AR(1)), as windows of memory do.

A leak has to rise all the way besides: of a saw tooth longer than a window, what never comes back is flat up to its
last tooth. Where growth may yet settle the verdict is `growing`, and the caller looks for longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from legroom.model.profile import LeakVerdict

DROPPED_SHARE = 0.2
MOST_WINDOWS, LEAST_POINTS = 24, 8
ABOUT_AS_GOOD = 2.0  # difference of the information criterion (BIC)
FLOOR_NBYTES = 4096.0  # growth below this over all that was watched is no finding
FLOOR_PER_STEP = 0.5  # bytes; a billion steps of that are half a gigabyte
CALM_SHARE = 0.4  # of the floor: what stays within is judged at a glance
SETTLING_SHARE = 0.35  # of the growth before
NOISE_NBYTES = 256.0  # two levels that differ by less are the same
SEGMENTS, LEAST_SHARE = 4, 0.25  # a leak rises in every quarter, by a quarter of its mean at least
STEADY_SHARE = 0.4  # and makes up so much of all the growth; a cache beside it has filled in a longer look
SLOWER, FASTER = 0.8, 2.5  # the later half against the earlier one
APPROACHES = tuple(0.04 * 1.25**number for number in range(20))  # time constants, in lengths of what is fitted
SMALL_LEAK_NBYTES = 64.0  # per step; a look too short for that much to show says so
TOO_FEW = "did not grow, in too few steps to tell much"
QUANTILE = 3.09  # one in a thousand
FALL_SHARE = 0.6  # of the height: what falls by more is a buffer dropped, not noise


@dataclass(frozen=True)
class Verdict:
    """How a series grows; `interval` is what `bytes_per_step` lies between, `why` says it in words."""

    verdict: LeakVerdict
    bytes_per_step: float
    interval: tuple[float, float]
    why: str = ""


@dataclass(frozen=True)
class _Fit:
    slope: float  # at the end, over the whole length of what is fitted
    error: float
    criterion: float
    quantile: float


def judge(steps: Sequence[int], values: Sequence[float], *, floor_nbytes: float = FLOOR_NBYTES) -> Verdict:
    """Return the verdict on a series of bytes in use.

    Args:
        steps: at which the samples were taken, rising.
        values: bytes in use then.
        floor_nbytes: growth below this over all that is looked at is none.
    """
    calm = _judge_calm(steps, values, floor_nbytes)
    if calm is not None:
        return calm
    when, what = _even(np.asarray(steps, float), np.asarray(values, float))
    if len(when) < LEAST_POINTS or when[-1] <= when[0]:
        return _judge_briefly(when, what, floor_nbytes)
    span = when[-1] - when[0]
    floor = max(floor_nbytes, FLOOR_PER_STEP * span)
    times, lowest = _lowest(when, what)
    fits = _believable(times, lowest)
    slope = fits[0].slope
    low = min(fit.slope - fit.quantile * fit.error for fit in fits)
    high = max(fit.slope + fit.quantile * fit.error for fit in fits)
    per_step, interval = slope / span, (low / span, high / span)
    is_steady = len(times) >= LEAST_POINTS and _rises_evenly(times, lowest)
    if low >= floor and is_steady and _rises_all_the_way(when, what, slope):
        return Verdict("leak", per_step, interval, "grows steadily")
    if _still_rising(when, what, floor, high):
        return Verdict("growing", per_step, interval, "still growing at the end, perhaps about to settle")
    return Verdict("ok", per_step, interval, "steady")


def combine(parts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a whole whose parts were judged: the worst one; the rates of those that have it add up."""
    worst = min(parts, key=lambda part: get_args(LeakVerdict).index(part.verdict))
    counted = [part for part in parts if part.verdict == worst.verdict]
    low, high = (sum(part.interval[end] for part in counted) for end in (0, 1))
    return replace(worst, bytes_per_step=sum(part.bytes_per_step for part in counted), interval=(low, high))


def _judge_calm(steps: Sequence[int], values: Sequence[float], floor_nbytes: float) -> Verdict | None:
    """Return the verdict on a series that hardly moves, None for any other: most environments, most of the time.

    In plain Python: for some dozen samples the first calls of NumPy's functions would cost ten times as much.
    """
    count = len(steps)
    if count < 4 or steps[-1] <= steps[0]:
        return None
    after = steps[0] + DROPPED_SHARE * (steps[-1] - steps[0])
    first = next(place for place in range(count) if steps[place] >= after)
    when, what = steps[first:], values[first:]
    span, count = when[-1] - when[0], count - first
    height = max(what) - min(what)
    if span <= 0 or height >= CALM_SHARE * max(floor_nbytes, FLOOR_PER_STEP * span):
        return None
    middle, level = sum(when) / count, sum(what) / count
    width = sum((step - middle) ** 2 for step in when)
    slope = sum((step - middle) * (value - level) for step, value in zip(when, what, strict=True)) / width
    reach = QUANTILE * (NOISE_NBYTES + height) / 2 / width**0.5  # at most: the height bounds every deviation
    would_show = count >= LEAST_POINTS and SMALL_LEAK_NBYTES * span >= floor_nbytes
    why = "steady" if would_show else TOO_FEW
    return Verdict("ok", slope, (slope - reach, slope + reach), why)


def _even(when: np.ndarray, what: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples after the beginning, thinned to the distance that the last ones have.

    The lowest of many is lower than the lowest of few: windows with more samples early on would look like growth.
    """
    if len(when) < 2:
        return when, what
    kept = when >= when[0] + DROPPED_SHARE * (when[-1] - when[0])
    when, what = when[kept], what[kept]
    gaps = np.diff(when)
    if len(gaps) < LEAST_POINTS:
        return when, what
    least = 0.75 * _middle(gaps[-max(len(gaps) // 4, 4) :])
    chosen, last = [], -np.inf
    for place, step in enumerate(when):
        if step - last >= least:
            chosen.append(place)
            last = step
    return when[chosen], what[chosen]


def _lowest(when: np.ndarray, what: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest point of each window, its time scaled to 0..1.

    Where memory falls back again and again, a window is long enough to have such a moment in it.
    """
    times = (when - when[0]) / (when[-1] - when[0])
    count = int(np.clip(len(when) // 3, min(12, len(when)), MOST_WINDOWS))
    falls = _falls(what)
    if len(falls) >= 2:
        apart = float(np.max(np.diff(times[falls])))
        count = max(2, min(count, int(1 / (1.1 * max(apart, 1e-9)))))
    windows = np.array_split(np.arange(len(what)), count)  # the samples lie evenly, see `_even`
    lowest = [inside[np.argmin(what[inside])] for inside in windows if len(inside)]
    return times[lowest], what[lowest]


def _falls(what: np.ndarray) -> np.ndarray:
    """Return where memory came down by much of the height it moves in, leaving out a trend."""
    line = np.linspace(0, 1, len(what)) * (np.mean(what[-len(what) // 4 :]) - np.mean(what[: len(what) // 4]))
    height = float(np.ptp(what - line))
    return np.flatnonzero(np.diff(what) < -FALL_SHARE * height) + 1 if height > FLOOR_NBYTES else np.array([], int)


def _believable(times: np.ndarray, values: np.ndarray) -> list[_Fit]:
    """Return the fits that describe the points about as well as the best one, which comes first."""
    values = values - values[0]  # small numbers: what is left over is a difference of large ones
    fits = _fit(times, values, None)
    if len(times) >= LEAST_POINTS:
        fits += _fit(times, values, _shapes(times))
    fits.sort(key=lambda fit: fit.criterion)
    return [fit for fit in fits if fit.criterion <= fits[0].criterion + ABOUT_AS_GOOD]


def _shapes(times: np.ndarray) -> np.ndarray:
    """Return what may have happened once, [shape, point]: approaches to a level, ramps that end, steps."""
    approaches = 1 - np.exp(-times / np.array(APPROACHES)[:, None])
    ramps = np.minimum(times, times[2:-2, None])
    steps = times > (times[1:-2, None] + times[2:-1, None]) / 2
    return np.concatenate([approaches, ramps, steps.astype(float)])


def _fit(times: np.ndarray, values: np.ndarray, shapes: np.ndarray | None) -> list[_Fit]:
    """Return the least squares of level, slope and each shape, all shapes at a time.

    A line is taken out of both values and shapes first; what is left has one unknown. (Solving for all three at once
    would need LAPACK, whose first call costs more than a thousand steps of a small environment.)
    """
    count = len(times)
    centred = times - times.mean()
    width = float(centred @ centred)
    slopes = np.array([centred @ values / width])
    off = (values - values.mean() - slopes[0] * centred)[None]
    variance, parameters = np.array([1 / width]), 2
    if shapes is not None:
        leans = shapes @ centred / width
        bent = shapes - shapes.mean(axis=1, keepdims=True) - leans[:, None] * centred
        sizes = np.maximum(np.einsum("ij,ij->i", bent, bent), 1e-12)
        heights = bent @ off[0] / sizes
        slopes, off = slopes - heights * leans, off - heights[:, None] * bent
        variance, parameters = variance + leans**2 / sizes, 3
    own = np.einsum("ij,ij->i", off, off)
    squares, free = own + count * NOISE_NBYTES**2, max(count - parameters, 1)
    alike = np.einsum("ij,ij->i", off[:, 1:], off[:, :-1]) / squares
    alike = np.clip(alike + (1 + 4 * alike) / count, 0, 0.9)  # few points beside a trend look less alike than they are
    error = np.sqrt(squares / free * variance * (1 + alike) / (1 - alike))
    # A place or a time constant that was searched for counts as a parameter too.
    criterion = count * np.log(squares / count) + (2 if shapes is None else 4) * np.log(count)
    quantile = QUANTILE * (1 + (QUANTILE**2 + 1) / (4 * free))  # of Student's t, first terms
    return [_Fit(*row, quantile) for row in zip(slopes.tolist(), error.tolist(), criterion.tolist(), strict=True)]


def _middle(numbers: np.ndarray) -> float:
    """Return the median; NumPy's own imports masked arrays first, for 20 ms."""
    return float(np.sort(numbers)[len(numbers) // 2])


def _never_back(what: np.ndarray) -> np.ndarray:
    """Return for each sample the lowest of it and all later ones: what was in use then and never came back."""
    return np.minimum.accumulate(what[::-1])[::-1]


def _rises_evenly(times: np.ndarray, lowest: np.ndarray) -> bool:
    """Say whether the later half rises about as fast as the earlier one: what slows down may be about to settle."""
    half = len(times) // 2
    early, late = (_fit(times[part], lowest[part], None)[0].slope for part in (slice(half), slice(half, None)))
    return SLOWER * early <= late <= FASTER * early


def _rises_all_the_way(when: np.ndarray, what: np.ndarray, slope: float) -> bool:
    marks = np.interp(np.linspace(when[0], when[-1], SEGMENTS + 1), when, _never_back(what))
    is_most = slope >= STEADY_SHARE * (marks[-1] - marks[0])
    return bool(is_most and np.all(np.diff(marks) >= LEAST_SHARE * slope / SEGMENTS))


def _still_rising(when: np.ndarray, what: np.ndarray, floor: float, high: float) -> bool:
    """Say whether what never came back rose in the later half: by more than the samples scatter, or as it did before.

    The last tenth is left out: whatever scatters ends somewhere above its lowest point. Growth that was far less than
    before, and that no believable fit takes for a trend (`high` is the most any of them has), is settling.
    """
    places = when[0] + np.array([0.1, 0.5, 0.9]) * (when[-1] - when[0])
    early, late = np.diff(np.interp(places, when, _never_back(what)))
    if late < CALM_SHARE * floor:
        return False
    if late <= SETTLING_SHARE * early and 0.4 * high <= max(0.5 * late, CALM_SHARE * floor):
        return False
    parts = np.array_split(what, min(12, len(what) // 2))
    scatter = _middle(np.array([np.ptp(part) for part in parts]))
    return bool(late >= 1.5 * scatter or (min(early, late) >= 0.35 * scatter and early >= late / 4))


def _judge_briefly(when: np.ndarray, what: np.ndarray, floor: float) -> Verdict:
    """Judge what has too few samples for a trend."""
    rise = float(what[-1] - what[0]) if len(what) else 0.0
    span = float(when[-1] - when[0]) if len(when) else 0.0
    per_step = rise / span if span > 0 else 0.0
    bounds = (min(per_step, 0.0), max(per_step, 0.0))
    if rise > floor:
        return Verdict("growing", per_step, bounds, "grew, in too few steps to tell more")
    return Verdict("ok", per_step, bounds, TOO_FEW)
