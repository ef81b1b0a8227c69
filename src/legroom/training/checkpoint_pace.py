"""When the next checkpoint is due: as often as possible, for at most a given share of the time.

What a checkpoint costs depends on the networks, the environments' states and the disk, so it is measured, not guessed.
The bill is kept over the whole run: one is due whenever what was spent and what the next one will cost stay within it.
An iteration may take days. So one is due in any case, also within an iteration, once the last is as old as work may be
that a kill takes; unless writing one takes more than a twentieth of that, as that of a rollout of many gigabytes may.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHARE = 0.02  # of the training's time, for writing checkpoints
OLDEST_S, OLDEST_SHARE = 40.0, 0.05  # a minute at most is lost, with a step and the writing of the next one
LEAST_S = 1.0  # between two of them: to start a training again takes longer than the steps that would be lost


class Pace:
    """Decides from the measured cost of earlier checkpoints whether one is due.

    Args:
        fraction: the largest share of the time that writing may take; the very first one is always due.
        clock: seconds that only go up.
    """

    def __init__(self, fraction: float = SHARE, clock: Callable[[], float] = time.monotonic) -> None:
        self.fraction, self._clock = fraction, clock
        self._began = self._written_at = clock()
        self.spent_s = 0.0
        self.last_seconds = 0.0
        self.written_at_step: int | None = None  # set it to a checkpoint's step when going on from that
        self.written_at_place = 0  # within the iteration

    @property
    def age_s(self) -> float:
        """How long ago the last one was written, or writing was tried."""
        return self._clock() - self._written_at

    def is_overdue(self) -> bool:
        """Return whether the last one is too old, whatever was spent."""
        return self.age_s >= max(OLDEST_S, self.last_seconds / OLDEST_SHARE)

    def is_due(self, step: int, every: int | None = None) -> bool:
        """Return whether a checkpoint should be written now.

        Args:
            every: environment steps between checkpoints; where given, time plays no part.
        """
        if step == self.written_at_step:
            return False
        if every is not None:
            return step - (self.written_at_step or 0) >= every
        if self.last_seconds == 0.0:
            return True
        now = self._clock()
        if now - self._written_at < LEAST_S:
            return False
        return self.spent_s + self.last_seconds <= self.fraction * (now - self._began)

    def put_off(self) -> None:
        """Wait as if a checkpoint had been written: one could not be, and trying at once again would not help."""
        self.spent_s += self.last_seconds
        self._written_at = self._clock()

    @contextmanager
    def writing(self, step: int, place: int = 0) -> Iterator[None]:
        """Measure the writing of the checkpoint of this step, and of this place within an iteration."""
        began = self._clock()
        yield
        self._written_at = self._clock()
        self.last_seconds = self._written_at - began
        self.spent_s += self.last_seconds
        self.written_at_step, self.written_at_place = step, place
