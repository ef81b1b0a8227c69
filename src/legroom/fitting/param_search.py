"""Finds the largest value of a program's argument that fits, in few tries.

Memory grows with most arguments along a line, with steps where an allocator rounds. So two tries that fit give a line,
the line gives a proposal close to the limit, and from there the search walks in steps that double until one try fits
and the next value does not. Every answer is a try that was made, never an extrapolation: there is no overshoot. The
largest value is tried only where the line says that it may fit: mostly it does not.

A program may refuse values (a batch that does not divide a rollout). Refused values are skipped. After a few refusals
in a row, the search goes on with fewer values of a range: those as far apart as the accepted ones were, then rounder
ones: multiples of 8, multiples of the smallest value, its doublings. Of a list every value may be tried.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import gcd

from legroom.model.program_plan import Number, Param, ParamSearch, ParamTrial
from legroom.model.verdict import Budget

MOST_TRIES = 24
REFUSALS_IN_A_ROW = 3  # before rounder values are tried
ROUND = 8
SEGMENT = 2 << 20  # bytes in which allocators grow, and so how far a line may miss
FAR, NEAR = 1.05, 1.02  # ratios of values
LINES = 6  # proposals by a line, before the search walks
COLUMNS = 6  # values of the first of two arguments

Try = Callable[[Number], ParamTrial]


class _Ended(Exception):
    """The search cannot go on, for the reason it says."""


def find_largest(param: Param, attempt: Try, *, most: int = MOST_TRIES, likely: Number | None = None) -> ParamSearch:
    """Return the largest value that fits, with the next one that does not.

    Args:
        attempt: rehearses one value.
        likely: the value to try first.
    """
    search = _ValueSearch(param, attempt, most)
    why = ""
    try:
        search.run(likely)
    except _Ended as ended:
        why = str(ended)
    best = search.trials.get(search.low) if search.low is not None else None
    above = [value for value, trial in search.trials.items() if trial.fits is False]
    return ParamSearch(
        (param,), best, search.trials[min(above)] if above else None, tuple(search.trials.values()), why=why
    )


def find_frontier(first: Param, second: Param, attempt: Callable[[Number, Number], ParamTrial]) -> ParamSearch:
    """Return the largest second argument that fits for some values of the first; the best has the most of both.

    A larger value of the first argument takes no less. So what did not fit before is not tried again, and the largest
    that did fit is tried first: where it still fits, one try is enough.
    """
    trials: list[ParamTrial] = []
    frontier: list[ParamTrial] = []
    reasons: list[str] = []
    likely: Number | None = None
    for value in spread(first.values, COLUMNS):
        found = find_largest(second, lambda other, value=value: attempt(value, other), likely=likely)  # type: ignore[misc]
        trials += found.trials
        if found.next is not None:
            below = second.values[: bisect_left(second.values, found.next.params[second.name])]
            second = replace(second, values=below)
        if found.best is not None:
            frontier.append(found.best)
            likely = found.best.params[second.name]
        elif found.why:
            reasons.append(found.why)
        if found.best is None and found.fits is False:
            break  # larger values of the first argument take no less
    best = max(frontier, key=lambda trial: trial.params[first.name] * trial.params[second.name], default=None)
    return ParamSearch((first, second), best, None, tuple(trials), tuple(frontier), "; ".join(dict.fromkeys(reasons)))


def spread(values: Sequence[Number], most: int) -> list[Number]:
    """Return at most so many of the values, the smallest and the largest among them, evenly by ratio."""
    if len(values) <= most:
        return list(values)
    low, high = max(float(values[0]), 1e-9), float(values[-1])
    wanted = (low * (high / low) ** (step / (most - 1)) for step in range(most))
    return [values[place] for place in sorted({nearest(values, each) for each in wanted})]


def nearest(values: Sequence[Number], wanted: float) -> int:
    """Return the place of the largest value that is not above `wanted`, the first place where all are."""
    return max(bisect_left(values, wanted + 1e-9) - 1, 0)


class _ValueSearch:
    """One search: what was tried, the largest value that fits, the smallest above it that was not seen to."""

    def __init__(self, param: Param, attempt: Try, most: int) -> None:
        self.trials: dict[Number, ParamTrial] = {}
        self.low: Number | None = None
        self.high: Number | None = None
        self._param, self._attempt, self._most = param, attempt, most
        self._refused_in_a_row = 0
        self._lines_left = LINES
        self._stride: int | None = None  # of the walk; 0 once it has passed the answer
        self._upwards: bool | None = None

    def run(self, likely: Number | None) -> None:
        """Search until the value that fits and the one that does not are neighbours, or nothing larger is left.

        Raises:
            _Ended: a verdict stays open, or the tries are used up.
        """
        if likely is not None:
            self._tried(likely)
        for values in self._grids():
            if self._between(values):
                break
        if self.low is not None and self._open(self._param.values) is not None:
            above = f"and {self.high}" if self.high is not None else "and the largest"
            raise _Ended(f"the program refuses many values: between {self.low} {above} only some were tried")
        if self.high is not None and self.trials[self.high].unknown:
            raise _Ended(self._unknown(self.trials[self.high]))

    def _grids(self) -> Iterator[Sequence[Number]]:
        values = self._param.values
        yield values
        if not isinstance(values, range):
            return
        first, last = values[0], values[-1]
        accepted = sorted(int(value) for value, trial in self.trials.items() if not trial.refused)
        smallest = (accepted or [first])[0] or 1
        apart = gcd(*(value - smallest for value in accepted[1:]))
        doublings = [smallest]
        while doublings[-1] * 2 <= last:
            doublings.append(doublings[-1] * 2)
        rounder: list[Sequence[int]] = [range(smallest, last + 1, apart)] if apart else []
        rounder.append(range(smallest, last + 1, gcd(ROUND, smallest) if smallest % ROUND else ROUND))
        rounder += [range(smallest, last + 1, smallest), doublings]
        for fewer in rounder:
            kept = fewer if values.step == 1 else [value for value in fewer if value in values]
            if len(kept) < len(values):
                yield kept

    def _between(self, values: Sequence[Number]) -> bool:
        """Search among these values; return False where the program refuses too many of them."""
        self._refused_in_a_row = 0
        if self.low is None and not self._first(values):
            return self.high is not None  # the smallest one does not fit: an answer
        while (open_ := self._open(values)) is not None:
            if self._refused_in_a_row >= REFUSALS_IN_A_ROW and isinstance(self._param.values, range):
                return False
            self._tried(values[self._proposal(values, *open_)])
        return True

    def _first(self, values: Sequence[Number]) -> bool:
        """Try the smallest values until the program takes one; return whether it fits."""
        for value in values:
            trial = self._tried(value)
            if not trial.refused:
                return bool(trial.fits)
            if self._refused_in_a_row >= REFUSALS_IN_A_ROW and not self._param.given:
                break
        raise _Ended(f"the program refuses {self._param.name}={values[0]}: {next(iter(self.trials.values())).refused}")

    def _open(self, values: Sequence[Number]) -> tuple[int, int] | None:
        """Return the first and last place that may still hold the answer; None where it is found."""
        assert self.low is not None
        begin = bisect_left(values, self.low) + (self.low in values)
        end = bisect_left(values, self.high) if self.high is not None else len(values)
        while begin < end and values[begin] in self.trials:
            begin += 1
        while begin < end and values[end - 1] in self.trials:
            end -= 1
        return (begin, end - 1) if begin < end else None

    def _proposal(self, values: Sequence[Number], first: int, last: int) -> int:
        """Return the place to try next: where the line meets the limit, then in doubling steps, then the middle."""
        line = self._line()
        if line is None and self.high is None and sum(trial.fits is True for trial in self.trials.values()) > 1:
            return self._free(values, last, first, last)  # nothing grew
        # no line yet, or one that was refuted from afar, as where memory grows with the square: the middle by ratio
        if line is None or (line[0] > values[last] > FAR * values[first] and self.high is not None):
            middle = (float(values[first]) * float(values[last])) ** 0.5 if float(values[first]) > 0 else 0.0
            return self._free(values, min(max(nearest(values, middle), first), last), first, last)
        at, segment = line
        place = nearest(values, at)
        if self.high is None:
            place = min(place, last)
        if first <= place <= last and self._lines_left:
            self._lines_left -= 1
        else:
            step = max(nearest(values, float(values[first]) + segment) - first, 1)
            place = self._walk(first, last, step, upwards=place < first or self.high is None)
        return self._free(values, place, first, last)

    def _walk(self, first: int, last: int, step: int, *, upwards: bool) -> int:
        """Return the next place of a walk from one end; once it has passed the answer, the middle of what is left."""
        turned = self._upwards is not None and next(reversed(self.trials.values())).fits is not self._upwards
        if turned or self._stride == 0:
            self._stride = 0
            return (first + last) // 2
        self._upwards = upwards if self._upwards is None else self._upwards
        stride = self._stride or step
        self._stride = stride * 2
        return min(first + stride - 1, last) if self._upwards else max(last - stride + 1, first)

    def _free(self, values: Sequence[Number], place: int, first: int, last: int) -> int:
        """Return the place nearest to this one that was not tried."""
        around = sorted(range(max(first, place - 64), min(last, place + 64) + 1), key=lambda each: abs(each - place))
        return next((each for each in around if values[each] not in self.trials), first)

    def _line(self) -> tuple[float, float] | None:
        """Return where a line through two tries that fit meets the budget, and how far it may miss; else None."""
        fitting = sorted(((value, trial) for value, trial in self.trials.items() if trial.fits), key=lambda one: one[0])
        if len(fitting) < 2:
            return None
        large, after = fitting[-1]
        # neighbours may differ by nothing, or by a whole segment: the slope is taken over a distance
        small, before = max(fitting[:-1], key=lambda one: (one[0] <= 0.8 * large, one[0]))
        meets = []
        for (used, least, limit), (used_after, least_after, _) in zip(_places(before), _places(after), strict=False):
            # close to the limit the allocator gives its cache back: then it grows slower than what is in use
            slope = max(used_after - used, least_after - least) / (large - small)
            if slope > 0:
                at = large + (limit - used_after) / slope
                if least_after > least and at < NEAR * large:  # it is full of cache: half of the way to where it is not
                    at = large + (limit - least_after) * (large - small) / (least_after - least) / 2
                meets.append((at, SEGMENT / slope * max(1.0, (at - large) / (large - small))))
        return min(meets, default=None)

    def _tried(self, value: Number) -> ParamTrial:
        if value in self.trials:
            return self.trials[value]
        if len(self.trials) >= self._most:
            raise _Ended(f"stopped after {self._most} rehearsals")
        trial = self.trials[value] = self._attempt(value)
        if trial.refused:
            self._refused_in_a_row += 1
            return trial
        self._refused_in_a_row = 0
        if trial.unknown and self.low is None:
            raise _Ended(self._unknown(trial))
        if trial.fits and (self.low is None or value > self.low):
            self.low = value
        elif not trial.fits and (self.high is None or value < self.high):
            self.high = value  # where that is unknown, smaller values may still be known
        return trial

    def _unknown(self, trial: ParamTrial) -> str:
        reasons = "; ".join(trial.prediction.footprint.unknown) or "no budget is known"
        return f"unknown whether {self._param.name}={trial.params[self._param.name]} fits: {reasons}"


def _places(trial: ParamTrial) -> list[tuple[int, int, int]]:
    """Return what a trial takes, has in use of that, and may take: of the host, and of the GPU where it uses one."""
    footprint, budget = trial.prediction.footprint, trial.prediction.budget
    on_card, peaks = footprint.gpu.high if footprint.gpu is not None else 0, footprint.allocator
    in_use = on_card - (peaks.peak_reserved - peaks.peak_allocated) if peaks is not None else 0
    return [
        (high, least, Budget.usable(budget, limit))
        for high, least, limit in ((footprint.host.high, 0, budget.ram), (on_card, in_use, budget.vram))
        if limit is not None
    ]
