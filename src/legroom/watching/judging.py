"""What a curve of memory says: its phases of growth, whether it leaks, and when it reaches its limit.

*leak*: the lowest points still rise steadily at the end, however the beginning is read, and memory was asked for as it
rose. *growing*: it rises, but may be about to settle, or fills what was reserved before, or still loads libraries.
*ok*: it does not rise any more. A buffer that is asked for piece by piece and not full yet looks like a leak; nothing
in the memory of a process tells the two apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from legroom.model.trace import Forecast, GrowthPhase, MemoryLimit, Sample, Verdict
from legroom.units import MIB, format_size
from legroom.watching.trend import Reading, enough, envelopes, readings, rise

JUDGED_FROM_S = 2.0  # before that, an interpreter has hardly started
LEAKS_FROM_S = 1.5  # after the start; what is shorter may be growing, but nobody can call it a leak
CALM_S = 1.0
CALM_RISE, CALM_LEAST = 0.02, 2 * MIB
LONGEST_START_SHARE = 0.25  # of the time; what goes on for longer is no start
STEADY_WITHIN = 0.01  # of the peak
LEAST_STEADY_SHARE = 0.1  # of the time
RELEVANT_SHARE, RELEVANT_LEAST = 0.01, 2 * MIB  # growth below this over the time watched is no finding
FILLS_BELOW = 0.3  # of the growth was asked for meanwhile: the rest had been asked for before
LOADS_ABOVE = 0.1  # of the growth is in files
ENDING_DROP = 0.8  # a tree that shrinks so much in its last moments is ending
CERTAIN_BAND = 2.0  # latest over earliest time left
FARTHEST = 10.0  # times as long as the growth was watched: what lies beyond is a guess
NEVER_S = 10 * 365 * 86400.0


def phases(samples: Sequence[Sample]) -> tuple[GrowthPhase, ...]:
    """Return start, fill and steady, those that there are."""
    if not samples:
        return ()
    end, peak = samples[-1].t, max(sample.host for sample in samples)
    started = start_end(samples)
    filled = next(sample.t for sample in samples if sample.host >= (1 - STEADY_WITHIN) * peak)
    filled = max(filled, started)
    if end - filled < LEAST_STEADY_SHARE * end:  # the last samples of what grew to its end
        filled = end
    marks = [("start", 0.0, started), ("fill", started, filled), ("steady", filled, end)]
    found = []
    for name, begin, until in marks:
        inside = [sample.host for sample in samples if begin <= sample.t <= until]
        if inside and (until > begin or name == "start"):
            found.append(GrowthPhase(name, begin, until, max(inside)))  # type: ignore[arg-type]
    return tuple(found)


def start_end(samples: Sequence[Sample]) -> float:
    """Return when programs and libraries were loaded: the first second in which memory hardly rose."""
    end = samples[-1].t
    latest = min(max(LONGEST_START_SHARE * end, 2 * CALM_S), end)
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
    return min(latest, LONGEST_START_SHARE * end)


def judge(samples: Sequence[Sample]) -> tuple[Verdict, str, float]:
    """Return the verdict, why, and the growth at the end in bytes per second."""
    samples = _without_end(samples)
    if len(samples) < 2 or samples[-1].t < JUDGED_FROM_S:
        return "ok", "too short to tell", 0.0
    begin, end = max(start_end(samples), 0.1 * samples[-1].t), samples[-1].t
    lows, _ = envelopes(samples, begin, end)
    found = readings(lows) if end - begin >= LEAKS_FROM_S else []
    if not found:
        return _judge_briefly(samples, begin)
    best, span = found[0], lows[-1][0] - lows[0][0]
    relevant = max(RELEVANT_LEAST, RELEVANT_SHARE * lows[-1][1])
    late = best.at(end) - best.at(end - span / 4)
    rate = f"{format_size(max(best.slope, 0) * 60)} a minute"
    if best.slope * span >= relevant and min(one.lower() for one in found) * span >= relevant / 4:
        if _fills(samples, begin):
            return "growing", f"fills memory that it had reserved, {rate}", best.slope
        if _loads(samples, begin):
            return "growing", f"still loading libraries or mapping files at the end, {rate}", best.slope
        return "leak", f"still growing steadily at the end, {rate}", best.slope
    if late >= relevant / 2 and late > 2 * best.spread:
        return "growing", "still growing at the end, perhaps about to settle", late / (span / 4)
    return "ok", "steady at the end", 0.0


def forecast(samples: Sequence[Sample], limit: MemoryLimit | None) -> Forecast | None:
    """Return when the tree reaches the limit, None where nothing says that it will."""
    if limit is None or len(samples) < 2 or samples[-1].host >= limit.nbytes:
        return None
    begin, now = max(start_end(samples), 0.1 * samples[-1].t), samples[-1].t
    _, highs = envelopes(samples, begin, now)
    if not enough(highs) or rise(highs) < RELEVANT_LEAST:
        return None
    found = readings(highs)
    grown = found[0].slope * (now - begin)
    if found[0].lower(2) <= 0 or grown < RELEVANT_LEAST:
        return None
    if _fills(samples, begin) and samples[-1].host + samples[-1].untouched < limit.nbytes:
        return None  # all it has reserved fits
    left = _seconds_left(found[0], found[0].slope, limit.nbytes, now)
    bounds = [
        _seconds_left(one, one.slope + sign * 2 * one.error, limit.nbytes, now) for one in found for sign in (-1, 1)
    ]
    earliest, latest = min([left, *bounds]), max([left, *bounds])
    if left > NEVER_S:
        return None
    certain = latest <= CERTAIN_BAND * max(earliest, 1e-9) and left <= FARTHEST * (now - begin)
    return Forecast(now, now + left, now + earliest, now + latest if latest < NEVER_S else None, certain)


def _seconds_left(one: Reading, slope: float, limit: float, now: float) -> float:
    room = limit - one.at(now) - one.above
    if room <= 0:
        return 0.0
    return room / slope if slope > 0 else math.inf


def _judge_briefly(samples: Sequence[Sample], begin: float) -> tuple[Verdict, str, float]:
    """Judge by thirds what has too few samples for a trend."""
    later = [sample for sample in samples if sample.t >= begin] or list(samples)
    third = max(len(later) // 3, 1)
    middle, last = min(s.host for s in later[third : 2 * third] or later), min(s.host for s in later[-third:])
    if len(later) >= 6 and last - middle > max(RELEVANT_LEAST, 0.05 * middle):
        return "growing", "still growing at the end, too short to tell more", 0.0
    return "ok", "no growth seen, though too short to tell much", 0.0


def _fills(samples: Sequence[Sample], begin: float) -> bool:
    """Say whether most of the growth went into memory that had been asked for before."""
    inside = [sample for sample in samples if sample.t >= begin]
    fifth = max(len(inside) // 5, 1)
    early, late = inside[:fifth], inside[-fifth:]
    grown = _middle(s.host for s in late) - _middle(s.host for s in early)
    touched = _middle(s.untouched for s in early) - _middle(s.untouched for s in late)
    return grown > 0 and touched > (1 - FILLS_BELOW) * grown


def _loads(samples: Sequence[Sample], begin: float) -> bool:
    """Say whether the growth of the later half goes with more and more of files: a leak does not load any."""
    half = [sample for sample in samples if sample.t >= (begin + samples[-1].t) / 2]
    fifth = max(len(half) // 5, 1)
    early, late = half[:fifth], half[-fifth:]
    grown = _middle(s.host for s in late) - _middle(s.host for s in early)
    loaded = _middle(s.files for s in late) - _middle(s.files for s in early)
    return loaded > max(LOADS_ABOVE * grown, MIB)


def _middle(values: Iterable[int]) -> int:
    ranked = sorted(values)
    return ranked[len(ranked) // 2]


def _without_end(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Leave out the last moments of a tree that was ending: workers go, arrays are freed."""
    tail = max(int(0.95 * len(samples)), len(samples) - 20, 2)
    drops = (i for i in range(tail, len(samples)) if samples[i].host < ENDING_DROP * samples[i - 1].host)
    return samples[: next(drops, len(samples))]
