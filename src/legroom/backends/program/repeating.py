"""Whether anything new still happens on the card: what lets a rehearsal stop after seconds.

An iteration is what lies between two optimizer steps. One is *new* if it asks for memory at a line not seen before,
raises a peak, or leaves more behind than any iteration with the same requests did. It *repeats* if an earlier one asked
for the same blocks at the same lines. At least three repeats since the last new one are needed, and up to twelve where
they are quick: PyTorch's allocator may still reserve a segment in the third or fourth iteration that asks for the same.

One reservation: a loop around the steps (the rollout of PPO between its minibatches, the validation after an epoch)
must have come round. Lines whose tensors came and went several times, and which have not been seen since the last new
iteration, tell of such a loop; then repeats count only after twice the longest iteration, or twenty seconds.
"""

from __future__ import annotations

from legroom.backends.program.card_books import Interval, ProcessBook

LEAST_REPEATS, MOST_REPEATS = 3, 12
WORTH_S = 16.0  # that repeats may take beyond the least
RECURRENT = 3  # blocks of a line that came and went: it is in a loop
LEAST_S, ENOUGH_S = 5.0, 20.0  # without a line that is in a loop
WITHOUT_CARD_S = 10.0  # on the CPU only the host's memory tells, which takes its time


class RepeatFinder:
    """Follows the iterations of one process."""

    def __init__(self, book: ProcessBook) -> None:
        self.book = book
        self._taken = 0
        self._seen: set[int] = set()
        self._highest: dict[int, int] = {}
        self._longest_s = 0.0
        self.repeats = 0
        self._seconds = 0.0
        self._sites: set[int] = set()

    def update(self) -> None:
        """Take in the iterations that ended since the last call."""
        for interval in self.book.intervals[self._taken :]:
            self._add(interval)
        self._taken = len(self.book.intervals)

    def _add(self, interval: Interval) -> None:
        highest = self._highest.get(interval.content)
        grew = highest is not None and interval.end_allocated > highest
        self._highest[interval.content] = max(highest or 0, interval.end_allocated)
        self._longest_s = max(self._longest_s, interval.seconds)
        if interval.rose or interval.new_sites or grew:
            self.repeats, self._seconds, self._sites = 0, 0.0, set()
        else:
            self.repeats += interval.content in self._seen
            self._seconds += interval.seconds
            self._sites |= interval.sites
        self._seen.add(interval.content)

    def _needed(self) -> int:
        each_s = self._seconds / self.repeats if self.repeats else 0.0
        affordable = int(WORTH_S / each_s) if each_s > 0 else MOST_REPEATS
        return max(LEAST_REPEATS, min(affordable, MOST_REPEATS))

    @property
    def is_repeating(self) -> bool:
        """Whether nothing new happens any more."""
        if self.repeats < self._needed() or self.book.current.rose or self.book.current.new_sites:
            return False
        if not self.book.devices:
            return self._seconds >= WITHOUT_CARD_S
        recurrent = {site for site, died in self.book.transient.items() if died >= RECURRENT}
        return recurrent <= self._sites or self._seconds >= min(max(2 * self._longest_s, LEAST_S), ENOUGH_S)
