"""When the next checkpoint is due: as often as possible, for at most a given share of the time.

What a checkpoint costs depends on the networks, the environments' states and the disk, so it is measured, not guessed.
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
    """Decides from the measured cost of the last checkpoint whether one is due; the very first one always is.

    Args:
        clock: seconds that only go up.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._written_at = clock, clock()
        # of those within an iteration, too, which may have gigabytes of a rollout beside the rest
        self._seconds = {False: 0.0, True: 0.0}
        self.written_at_step: int | None = None  # set it to a checkpoint's step when going on from that
        self.written_at_place = 0  # within the iteration; 0: between two

    @property
    def age_s(self) -> float:
        """How long ago the last one was written, or writing was tried."""
        return self._clock() - self._written_at

    def is_written(self, step: int, place: int = 0) -> bool:
        return (step, place) == (self.written_at_step, self.written_at_place)

    def is_due(self, step: int, *, every: int | None = None, or_overdue: bool = False, within: bool = False) -> bool:
        """Return whether a checkpoint should be written now.

        Args:
            every: environment steps between checkpoints; where given, time plays no part, unless `or_overdue`.
            within: it would be one within an iteration.
        """
        if self.written_at_step is None:  # the beginning: environments may be slow, and their seeds forgotten
            return True
        age, cost = self.age_s, self._seconds[within]
        is_overdue = age >= max(OLDEST_S, cost / OLDEST_SHARE)
        if within:
            return is_overdue
        if self.is_written(step):
            return False
        if every is not None:
            return step - self.written_at_step >= every or (or_overdue and is_overdue)
        return is_overdue or age >= max(LEAST_S, cost / SHARE)

    def put_off(self) -> None:
        """Wait as if a checkpoint had been written: one could not be, and trying at once again would not help."""
        self._written_at = self._clock()

    @contextmanager
    def writing(self, step: int, place: int = 0, *, within: bool = False) -> Iterator[None]:
        """Measure the writing of the checkpoint of this step, and of this place within an iteration."""
        began = self._clock()
        yield
        self._written_at = self._clock()
        self._seconds[within] = self._written_at - began
        self.written_at_step, self.written_at_place = step, place
