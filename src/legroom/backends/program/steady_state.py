"""Whether anything new still happens on the card: what lets a rehearsal stop after seconds.

An iteration is what lies between two optimizer steps. One is *new* if it asks for memory at a line not seen before,
raises a peak, or leaves more behind than any iteration with the same requests did. It *repeats* if an earlier one asked
for the same blocks at the same lines. At least three repeats since the last new one are needed, and up to twelve where
they are quick. PyTorch's allocator may still reserve a segment in a later iteration that asks for the same: the last
iterations are therefore run again through a copy of it (`cache_growth.py`), and while it grows there, nothing is
settled here.

One reservation: a loop around the steps (the rollout of PPO between its minibatches, the validation after an epoch)
must have come round. Lines whose tensors came and went several times, and which have not been seen since the last new
iteration, tell of such a loop; then repeats count only after twice the longest iteration, or twenty seconds. The loop
over a DataLoader need not be waited for: the process is asked to leave out the rest of it (`hollow/epochs.py`), and
what comes after its end is seen before anything counts as repeated.
"""

from __future__ import annotations

from legroom.backends.program.allocation_ledger import Interval, ProcessBook

LEAST_REPEATS, MOST_REPEATS = 3, 12
WORTH = 16 / 60  # share of the time allowed that repeats may take beyond the least
RECURRENT = 3  # blocks of a line that came and went: it is in a loop
LEAST_S, ENOUGH_S = 5.0, 20.0  # without a line that is in a loop
WITHOUT_CARD_S = 10.0  # on the CPU only the host's memory tells, which takes its time


class RepeatFinder:
    """Follows the iterations of one process.

    Args:
        seconds: that the whole rehearsal may take.
    """

    def __init__(self, book: ProcessBook, seconds: float = 60.0) -> None:
        self.book = book
        self._worth_s = seconds * WORTH
        self._taken = 0
        self._seen: set[int] = set()
        self._highest: dict[int, int] = {}
        self._longest_s = 0.0
        self.repeats = 0
        self._seconds = 0.0
        self._sites: set[int] = set()
        self._asked_at = -1
        self._rose = False
        self.growth = 0  # bytes by which the cache would still grow if what repeats went on
        self.left_out_at: float | None = None  # when the process was asked to leave out the rest of an epoch

    def update(self) -> None:
        """Take in the iterations that ended since the last call."""
        for interval in self.book.intervals[self._taken :]:
            self._add(interval)
        self._taken = len(self.book.intervals)

    def restart(self) -> None:
        """Begin anew, since another part of the program begins: what was seen is known, and has to be seen again."""
        self.update()
        self.repeats, self._seconds, self._sites, self._asked_at, self.growth = 0, 0.0, set(), -1, 0
        self._rose = False

    @property
    def is_calm(self) -> bool:
        """Whether no peak has risen since the last start."""
        return not self._rose and not self.book.current.rose

    @property
    def _is_settled(self) -> bool:
        """Whether the cache would stay as it is: asked, answered when the next step ends, and asked anew later."""
        twins = [device.twin for device in self.book.devices.values()]
        if self._asked_at < 0 or (self.growth and self._taken >= self._asked_at + MOST_REPEATS):
            self._asked_at, self.growth = self._taken, 0
            for twin in twins:
                twin.ask(self.repeats)
        if any(twin.growth is None for twin in twins):
            return False
        self.growth = sum(twin.growth or 0 for twin in twins)
        return not self.growth

    def _add(self, interval: Interval) -> None:
        highest = self._highest.get(interval.content)
        grew = highest is not None and interval.end_allocated > highest
        self._highest[interval.content] = max(highest or 0, interval.end_allocated)
        self._longest_s = max(self._longest_s, interval.seconds)
        self._rose = self._rose or interval.rose
        if interval.rose or interval.new_sites or grew:
            self.repeats, self._seconds, self._sites, self._asked_at, self.growth = 0, 0.0, set(), -1, 0
        else:
            self.repeats += interval.content in self._seen
            self._seconds += interval.seconds
            self._sites |= interval.sites
        self._seen.add(interval.content)

    def _needed(self) -> int:
        each_s = self._seconds / self.repeats if self.repeats else 0.0
        affordable = int(self._worth_s / each_s) if each_s > 0 else MOST_REPEATS
        return max(LEAST_REPEATS, min(affordable, MOST_REPEATS))

    @property
    def is_repeating(self) -> bool:
        """Whether nothing new happens any more."""
        if self.repeats < self._needed() or self.book.current.rose or self.book.current.new_sites:
            return False
        if not self.book.devices:
            return self._seconds >= WITHOUT_CARD_S
        recurrent = {site for site, died in self.book.transient.items() if died >= RECURRENT}
        if not recurrent <= self._sites and self._seconds < min(max(2 * self._longest_s, LEAST_S), ENOUGH_S):
            return False
        return self._is_settled
