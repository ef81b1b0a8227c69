"""What is asked of a training child by signals: SIGINT and SIGTERM to stop, SIGUSR1 to retreat.

The first request ends the training at its next complete state, with a checkpoint: after a step or a minibatch where the
learner can stop there, else after its iteration. That may take an hour, so a clock runs from then on: what was done
since the last checkpoint is given up after a few seconds. The second request ends the training at once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

STOP_WITHIN_S = 7.0  # of ten: closing environments and writing a checkpoint take their time too


class StopSignals:
    """True once somebody has asked to stop or to retreat.

    Args:
        on_stop: called once, when the first request to stop arrives.
    """

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self.asked = 0  # how often
        self.retreating = False  # stop, because memory is about to run out
        self.writing = False  # a checkpoint that is on its way is worth the wait
        self.graceful = False  # before there is anything to save, the first request is the last
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGALRM, self._out_of_time)
        signal.signal(signal.SIGUSR1, self._retreat)

    def __bool__(self) -> bool:
        return self.asked > 0 or self.retreating

    def in_time(self) -> None:
        """Stop the clock: what had to be done before the end is done."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self.asked > 1 or not self.graceful:
            raise KeyboardInterrupt
        self._on_stop()
        signal.setitimer(signal.ITIMER_REAL, STOP_WITHIN_S)

    def _out_of_time(self, number: int, frame: FrameType | None) -> None:
        if self.writing:
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            return
        raise KeyboardInterrupt

    def _retreat(self, number: int, frame: FrameType | None) -> None:
        self.retreating = True
