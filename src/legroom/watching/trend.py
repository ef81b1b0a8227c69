"""The one verdict on growth, of `watch`, `profile` and rehearsals: `leak`, `growing` or `ok`, with the rate.

"More at the end than at the beginning" cries wolf on nearly every clean run: modules are loaded, caches warm up,
buffers fill and are dropped. So the caller says from when on it counts, and of the rest only the lowest points of
windows do, which show what never came back. Every fit about as good as the best is believed (`line_fits`): the growth
is what the *smallest* lower bound among them says.

A leak has to rise all the way besides: of a saw tooth longer than a window, what never comes back is flat up to its
last tooth. Where growth may yet settle the verdict is `growing`, and a caller who can looks for longer. One who cannot,
as the command has ended, asks for a `final` verdict: what happens once has had its time, and the later half tells the
shape.

Time is whatever the caller counts: steps of an environment, seconds, seconds of processor time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import get_args

from legroom.model.trace import LeakVerdict
from legroom.watching import line_fits
from legroom.watching.line_fits import LEAST_POINTS, Series, line_slope, middle

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
    """How a series grows.

    Args:
        rate: at the end, in bytes per unit of time, by the best fit; `interval` is what it lies between.
        lately: the rate over the last quarter by the same fit, with what is about to settle in it.
        too_few: whether there were too few samples for a trend.
    """

    verdict: LeakVerdict
    rate: float
    interval: tuple[float, float]
    lately: float = 0.0
    too_few: bool = False


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
    times, values = line_fits.evenly(times, values)
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
    reach = line_fits.QUANTILE * height / 2 / width**0.5  # at most: the height bounds every deviation
    return Verdict("ok", slope, (slope - reach, slope + reach), too_few=len(times) < LEAST_POINTS)


def _judge_closely(times: list[float], values: list[float], floor: Floor, *, final: bool) -> Verdict:
    span = times[-1] - times[0]
    lows, _ = line_fits.envelopes(times, values, least=floor.nbytes)
    found = line_fits.believable(*lows, noise=floor.noise)
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
    scatter = middle(max(part) - min(part) for part in line_fits.parts(values, min(12, len(values) // 2)))
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
