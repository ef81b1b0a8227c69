"""When the next checkpoint is due: as often as possible, for at most a given share of the time.

What a checkpoint costs depends on the networks, the environments' states and the disk, so it is measured, not guessed.
The bill is kept over the whole run: one is due whenever what was spent and what the next one will cost stay within it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHARE = 0.02  # of the training's time, for writing checkpoints
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

    @contextmanager
    def writing(self, step: int) -> Iterator[None]:
        """Measure the writing of the checkpoint of this step."""
        began = self._clock()
        yield
        self._written_at = self._clock()
        self.last_seconds = self._written_at - began
        self.spent_s += self.last_seconds
        self.written_at_step = step
