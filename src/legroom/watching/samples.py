"""Samples of hours in memory that is taken whole at the start, thinned so that every extreme stays.

A list of objects grows until it is full, and what it leaves in Python's arenas when it is thinned never comes back to
the system: a process that watches the memory of others would itself look like a leak. Columns of numbers have their
size from the first moment. A double holds every whole number up to 2^53, which is more bytes than any machine has, and
NaN stands for "unknown".
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from legroom.model.trace import ROLES, Sample

T = TypeVar("T")


class KeptRows:
    """At most `most` rows: a time, a height, and other numbers. When there are more, half of them stay.

    Of those every extreme of the height does.
    """

    def __init__(self, width: int, most: int) -> None:
        self._most, self._count = most, 0
        self._columns = [array("d", bytes(8 * most)) for _ in range(width)]  # written, so the pages are there

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> list[float]:
        place = place + self._count if place < 0 else place
        if not 0 <= place < self._count:
            raise IndexError(place)
        return [column[place] for column in self._columns]

    def add(self, row: Iterable[float | None]) -> None:
        """Take one more; its time is not before the last one's."""
        if self._count == self._most:
            self._keep(self.fewer(self._most // 2))
        for column, number in zip(self._columns, row, strict=True):
            column[self._count] = math.nan if number is None else number
        self._count += 1

    def fewer(self, most: int) -> Sequence[int]:
        """Return the places of at most so many of them, every extreme among them."""
        times, heights = self._columns[:2]
        return thinned(range(self._count), most, times.__getitem__, heights.__getitem__)

    def _keep(self, places: Sequence[int]) -> None:
        for column in self._columns:
            for new, old in enumerate(places):  # in order: no place is overwritten before it is read
                column[new] = column[old]
        self._count = len(places)


class KeptSamples:
    """At most `most` samples of a tree of processes, every extreme among them."""

    def __init__(self, most: int) -> None:
        self._rows = KeptRows(5 + len(ROLES), most)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Sample]:
        return map(self._at, range(len(self._rows)))

    def add(self, sample: Sample) -> None:
        """Take one more."""
        roles = (sample.by_role.get(role, 0) for role in ROLES)
        self._rows.add((sample.t, sample.host, sample.gpu, sample.untouched, sample.files, *roles))

    def highest_of_last(self, count: int) -> int:
        """Return the most memory in the last few, 0 where there is none."""
        first = max(len(self._rows) - count, 0)
        return max((self._at(place).host for place in range(first, len(self._rows))), default=0)

    def _at(self, place: int) -> Sample:
        t, host, gpu, untouched, files, *roles = self._rows[place]
        by_role = dict(zip(ROLES, map(int, roles), strict=True))
        return Sample(t, int(host), whole(gpu), by_role, int(untouched), int(files))


def whole(number: float) -> int | None:
    """Return a number of a row as bytes, None for what is not known."""
    return None if math.isnan(number) else int(number)


def thinned(samples: Sequence[T], most: int, time: Callable[[T], float], height: Callable[[T], float]) -> Sequence[T]:
    """Return at most `most` (at least 4) of the samples in order, the first and the last and every extreme among them.

    Of each stretch of time the lowest and the highest stay: averages would hide what a curve of memory is for.

    Args:
        samples: in the order of their time.
    """
    if len(samples) <= most:
        return samples
    begin, end = time(samples[0]), time(samples[-1])
    stretches = max((most - 2) // 2, 1)
    kept: dict[int, list[T]] = {}
    for sample in samples[1:-1]:
        here = min(int((time(sample) - begin) / (end - begin) * stretches), stretches - 1) if end > begin else 0
        extremes = kept.setdefault(here, [])
        extremes.append(sample)
        if len(extremes) > 2:
            ranked = sorted(extremes, key=height)
            extremes[:] = sorted((ranked[0], ranked[-1]), key=time)
    return [samples[0], *(sample for here in sorted(kept) for sample in kept[here]), samples[-1]]
