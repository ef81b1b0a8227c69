"""The samples of a watching, in memory that has its size from the start (`kept_rows`)."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.growth.kept_rows import KeptRows, whole
from legroom.model.trace import ROLES, Sample


class KeptSamples:
    """At most `most` samples, every extreme among them."""

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
