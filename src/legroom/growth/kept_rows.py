"""Samples of hours in memory that is taken whole at the start: columns of numbers.

A list of objects grows until it is full, and what it leaves in Python's arenas when it is thinned never comes back to
the system: a process that watches the memory of others would itself look like a leak. Columns have their size from
the first moment. A double holds every whole number up to 2^53, which is more bytes than any machine has, and NaN stands
for "unknown".
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence

from legroom.growth.thinning import thinned


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


def whole(number: float) -> int | None:
    """Return a number of a row as bytes, None for what is not known."""
    return None if math.isnan(number) else int(number)
