"""What a curve of memory says: its phases of growth, whether it leaks, and when it reaches its limit.

*leak*: the lowest points still rise steadily at the end, however the beginning is read, and memory was asked for as it
rose. *growing*: it rises, but may settle soon, or fills what was reserved before, or still loads libraries.
*ok*: it does not rise any more. A buffer that was asked for at once is one that fills, whatever else was asked for:
all of it together does not rise. One that is asked for piece by piece looks like a leak until it is full; nothing in
the memory of a process tells the two apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from legroom.model.trace import Forecast, GrowthPhase, LeakVerdict, MemoryLimit, Sample
from legroom.units import MIB, format_size
from legroom.watching.trend import LEAST_POINTS, SETTLED, Fit, Floor, Verdict, believable, envelopes, evenly, middle
from legroom.watching.trend import judge as judge_series

JUDGED_FROM_S = 2.0  # before that, an interpreter has hardly started
LEAKS_FROM_S = 1.5  # after the start; what is shorter may be growing, but nobody can call it a leak
CALM_S = 1.0
CALM_RISE, CALM_LEAST = 0.02, 2 * MIB
LONGEST_START_SHARE = 0.25  # of the time; what goes on for longer is no start
STEADY_WITHIN = 0.01  # of the peak
LEAST_STEADY_SHARE = 0.1  # of the time
RELEVANT_SHARE, RELEVANT_LEAST = 0.01, 2 * MIB  # growth below this over the time watched is no finding
NOISE_SHARE, NOISE_LEAST = 0.0005, 64 << 10  # of the level: what nobody would call a difference
FILLS_BELOW = 0.3  # of the growth was asked for meanwhile: the rest had been asked for before
LOADS_ABOVE = 0.1  # of the growth is in files
ENDING_DROP = 0.8  # a tree that shrinks so much in its last moments is ending
ENDING_FROM, ENDING_SAMPLES = 0.9, 30  # these last moments: a share of the samples, and the most of them
CERTAIN_BAND = 2.0  # latest over earliest time left
FARTHEST = 10.0  # times as long as the growth was watched: what lies beyond is a guess
NEVER_S = 10 * 365 * 86400.0


def phases(samples: Sequence[Sample], *, settled: bool = True) -> tuple[GrowthPhase, ...]:
    """Return start, fill and steady, those that there are; what is judged not to have settled has no steady time."""
    if not samples:
        return ()
    end, peak = samples[-1].t, max(sample.host for sample in samples)
    started = start_end(samples)
    filled = next(sample.t for sample in samples if sample.host >= (1 - STEADY_WITHIN) * peak)
    filled = max(filled, started)
    if not settled or end - filled < LEAST_STEADY_SHARE * end:  # the last samples of what grew to its end
        filled = end
    marks = [("start", 0.0, started), ("fill", started, filled), ("steady", filled, end)]
    found = []
    for name, begin, until in marks:
        inside = [sample.host for sample in samples if begin <= sample.t <= until]
        if inside and (until > begin or name == "start"):
            found.append(GrowthPhase(name, begin, until, max(inside)))  # type: ignore[arg-type]
    return tuple(found)


def start_end(samples: Sequence[Sample], since: float = 0.0) -> float:
    """Return when programs and libraries were loaded: the first second in which memory hardly rose.

    Args:
        since: when the last process of the start began.
    """
    end = samples[-1].t
    latest = min(max(LONGEST_START_SHARE * end, since + 2 * CALM_S), end)
    samples = [sample for sample in samples if sample.t >= since] or samples
    behind = 0
    for place, sample in enumerate(samples):
        if sample.t > latest:
            break
        while samples[behind].t < sample.t - CALM_S:
            behind += 1
        lowest = min(samples[i].host for i in range(behind, place + 1))
        whole = sample.t - samples[behind].t >= 0.8 * CALM_S
        if whole and sample.host - lowest <= max(CALM_RISE * lowest, CALM_LEAST):
            return samples[behind].t
    return min(latest, max(LONGEST_START_SHARE * end, since))


def judge(samples: Sequence[Sample]) -> tuple[LeakVerdict, str, float]:
    """Return the verdict, why, and the growth at the end in bytes per second."""
    samples = _without_end(samples)
    if len(samples) < 2 or samples[-1].t < JUDGED_FROM_S:
        return "ok", "too short to tell", 0.0
    begin = _begin(samples)
    found = _verdict(samples, begin)
    if found.verdict == "ok":
        return "ok", "no growth seen, but too short to be sure" if found.too_few else "steady at the end", 0.0
    if found.too_few or samples[-1].t - begin < LEAKS_FROM_S:
        return "growing", "still growing at the end, too short to be sure", 0.0
    if found.verdict == "growing":
        return "growing", "still growing at the end, may settle soon", max(found.lately, 0.0)
    rate = f"{format_size(found.rate * 60)} a minute"
    asked = [replace(sample, host=sample.host + sample.untouched) for sample in samples]
    if _fills(samples, begin) or _verdict(asked, begin).verdict == "ok":
        return "growing", f"fills memory that it had reserved, {rate}", found.rate
    if _loads(samples, begin):
        return "growing", f"still loading libraries or mapping files at the end, {rate}", found.rate
    return "leak", f"still growing steadily at the end, {rate}", found.rate


def _begin(samples: Sequence[Sample]) -> float:
    return max(start_end(samples), 0.1 * samples[-1].t)


def _floor(samples: Sequence[Sample]) -> Floor:
    highest = max(sample.host for sample in samples)
    relevant = max(RELEVANT_LEAST, RELEVANT_SHARE * highest)
    return Floor(relevant, noise=max(NOISE_LEAST, NOISE_SHARE * highest))


def _verdict(samples: Sequence[Sample], begin: float) -> Verdict:
    hosts = [sample.host for sample in samples]
    return judge_series([sample.t for sample in samples], hosts, _floor(samples), begin=begin, final=True)


def forecast(samples: Sequence[Sample], limit: MemoryLimit | None, started: float = 0.0) -> Forecast | None:
    """Return when the tree reaches the limit, None where nothing says that it will.

    Args:
        started: when the last process of the start began: how memory rises until all have loaded says nothing.
    """
    if limit is None or len(samples) < 2 or samples[-1].host >= limit.nbytes:
        return None
    begin, now = max(_begin(samples), start_end(samples, started)), samples[-1].t
    inside = [sample for sample in samples if sample.t >= begin]
    found = _rise(inside, [sample.host for sample in inside])
    if found is None or _loads(samples, begin):
        return None
    asked = [sample.host + sample.untouched for sample in inside]
    if asked[-1] < limit.nbytes and (_fills(samples, begin) or _rise(inside, asked) is None):
        return None  # all it has reserved fits, and it reserves no more
    left = _seconds_left(found[0], found[0].slope, limit.nbytes, now)
    bounds = [
        _seconds_left(one, one.slope + sign * 2 * one.error, limit.nbytes, now) for one in found for sign in (-1, 1)
    ]
    earliest, latest = min([left, *bounds]), max([left, *bounds])
    if left > NEVER_S:
        return None
    certain = latest <= CERTAIN_BAND * max(earliest, 1e-9) and left <= FARTHEST * (now - begin)
    return Forecast(now, now + left, now + earliest, now + latest if latest < NEVER_S else None, certain)


def _rise(inside: Sequence[Sample], nbytes: Sequence[int]) -> list[Fit] | None:
    """Return the lines by which memory rises, None where it does not, or nobody can tell."""
    times, values = evenly([sample.t for sample in inside], nbytes)
    if len(times) < 3 * LEAST_POINTS or max(values) - min(values) < RELEVANT_LEAST:
        return None
    _, highs = envelopes(times, values, least=RELEVANT_LEAST)
    if len(highs[0]) < LEAST_POINTS:
        return None
    # A moment is foretold for a line. What still bends would need another forecast, and none of its bounds is finite.
    found = believable(*highs, noise=_floor(inside).noise, approaches=SETTLED)
    rises = found[0].slope - 2 * found[0].error > 0 and found[0].slope * (times[-1] - times[0]) >= RELEVANT_LEAST
    return found if rises else None


def _seconds_left(one: Fit, slope: float, limit: float, now: float) -> float:
    room = limit - one.at(now) - one.above
    if room <= 0:
        return 0.0
    return room / slope if slope > 0 else math.inf


def _grown(samples: Sequence[Sample], since: float, *fields: str) -> list[float]:
    """Return by how much each field grew: the median of the last fifth less that of the first."""
    inside = [sample for sample in samples if sample.t >= since]
    fifth = max(len(inside) // 5, 1)
    early, late = inside[:fifth], inside[-fifth:]
    return [middle(getattr(s, name) for s in late) - middle(getattr(s, name) for s in early) for name in fields]


def _fills(samples: Sequence[Sample], begin: float) -> bool:
    """Say whether most of the growth went into memory that had been asked for before."""
    grown, untouched = _grown(samples, begin, "host", "untouched")
    return grown > 0 and -untouched > (1 - FILLS_BELOW) * grown


def _loads(samples: Sequence[Sample], begin: float) -> bool:
    """Say whether the growth of the later half goes with more and more of files: a leak does not load any."""
    grown, loaded = _grown(samples, (begin + samples[-1].t) / 2, "host", "files")
    return loaded > max(LOADS_ABOVE * grown, MIB)


def _without_end(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Leave out the last moments of a tree that was ending: workers go, arrays are freed.

    On a busy machine that takes several samples, each a little lower. They are no trend, nor is the first of them.
    """
    tail = max(int(ENDING_FROM * len(samples)), len(samples) - ENDING_SAMPLES, 0)
    last_peak = max(range(tail, len(samples)), key=lambda place: samples[place].host, default=0)
    ending = bool(samples) and samples[-1].host < ENDING_DROP * samples[last_peak].host
    return samples[: last_peak + 1] if ending else samples
