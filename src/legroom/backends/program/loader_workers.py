"""Forked workers of a DataLoader: how much of the program's memory they will have copied when an epoch is over.

A forked worker shares its parent's pages until it writes to them. Reading a Python object writes its reference count,
so workers that fetch items of a list of objects copy its pages, one by one. The guest tells after how many batches
which part of their memory the workers have for themselves. What they copy per batch goes on until the epoch ends, and
at most until nothing is shared any more. What they take beyond that is new: a cache of the dataset's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from legroom.model.rehearsal import WorkerPages
from legroom.units import MIB

LEAST_GROWTH = 1 * MIB  # between two looks, below which pages do not grow with the batches


@dataclass(frozen=True)
class _Look:
    """Bytes of all workers after so many batches: copied, new since the first look, and still shared."""

    done: int
    own: int
    anonymous: int

    @property
    def shared(self) -> int:
        return max(self.anonymous - self.own, 0)


class LoaderWorkers:
    """What the guest has said of the workers of the epoch under way; of several epochs, the largest counts."""

    def __init__(self) -> None:
        self._looks: list[_Look] = []
        self._left = 0
        self._workers = 0
        self._found: WorkerPages | None = None
        self._most_own = 0

    @property
    def seen(self) -> bool:
        return self._workers > 0

    def take(self, message: dict[str, Any]) -> None:
        """Take in one look at all workers."""
        pages = message.get("pages") or []
        look = _Look(int(message.get("done") or 0), sum(own for own, _ in pages), sum(every for _, every in pages))
        if self._looks and (look.done <= self._looks[-1].done or len(pages) != self._workers):  # another epoch
            self._looks = []
        epochs = len(pages) if message.get("again") else 1  # workers that stay come to see all items
        self._looks.append(look)
        self._workers = max(self._workers, len(pages))
        self._left = max(epochs * int(message.get("total") or 0) - look.done, 0)
        self._most_own = max(self._most_own, look.own)
        self._found = self._forecast()

    def _forecast(self) -> WorkerPages:
        first, middle, last = self._looks[0], self._looks[(len(self._looks) - 1) // 2], self._looks[-1]
        lately, all_along = self._later(middle, last), self._later(first, last)
        later, error = (lately + all_along) // 2, abs(lately - all_along) // 2
        before = self._found or WorkerPages(self._workers, 0, 0, 0)
        copied = max(before.copied, last.own - first.own)
        return WorkerPages(self._workers, copied, later, error)

    def _later(self, one: _Look, other: _Look) -> int:
        """Return the bytes that come if it goes on as between two looks."""
        batches = other.done - one.done
        if batches <= 0 or other.own - one.own < LEAST_GROWTH:
            return 0
        new = max(other.anonymous - one.anonymous, 0)
        copied = max(other.own - one.own - new, 0)
        return int(min(copied / batches * self._left, other.shared) + new / batches * self._left)

    def pages(self, at_peak: int, *, ended: bool) -> WorkerPages | None:
        """Return the forecast, None without workers.

        Args:
            at_peak: bytes of workers that are counted already.
        """
        if self._found is None:
            return None
        later = 0 if ended else self._found.later
        return replace(self._found, later=later, missed=min(max(self._most_own - at_peak, 0), self._found.copied))
