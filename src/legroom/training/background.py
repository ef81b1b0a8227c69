"""How the training child hears signals: SIGINT and SIGTERM to stop, SIGUSR1 to retreat.

The first request ends the training at its next complete state, with a checkpoint: after a step or a minibatch where the
learner can stop there, else after its iteration. That may take an hour, so a clock runs from then on: what was done
since the last checkpoint is given up after a few seconds. The second request ends the training at once.

Python handles a signal between two bytecodes of the main thread, and a compilation, a training step of XLA or an
iteration of RLlib is one call that may take minutes. So such a call is made in a thread of its own. A computation whose
result nobody needs to go on (a compilation, an evaluation) is abandoned at the first Ctrl-C; a training step, whose
inputs may be gone by then, is waited for as long as a stop may take.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from legroom.machine.forks import in_forks

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


LOOK_EVERY_S = 0.1

Result = TypeVar("Result")
Answers = queue.SimpleQueue[tuple[bool, Any]]


class Abandoned(Exception):
    """Somebody asked to stop, and what was being computed is not needed for that."""


class BackgroundThread:
    """One thread that computes while the main thread listens; it ends with the process, whatever it is doing."""

    def __init__(self, signals: StopSignals) -> None:
        self._signals = signals
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Answers]] = queue.SimpleQueue()
        self._is_here = True
        in_forks(self, BackgroundThread._leave)
        threading.Thread(target=self._compute, name="background", daemon=True).start()

    def run(self, function: Callable[[], Result], *, needed: bool, within_s: float | None = None) -> Result:
        """Return what the function returns, or raise what it raises.

        Args:
            needed: the state of the training is in it: wait for it even when a stop is asked for.
            within_s: how long to wait for it at most.

        Raises:
            RuntimeError: this process was forked from the one that has the thread.
            TimeoutError: it took longer; the thread may still be computing it.
            Abandoned: it is not needed and a stop was asked for; the thread may still be computing it.
        """
        if not self._is_here:
            raise RuntimeError("the compute thread belongs to the parent process")
        answers: Answers = queue.SimpleQueue()
        self._work.put((function, answers))
        until = None if within_s is None else time.monotonic() + within_s
        while True:
            try:
                good, value = answers.get(timeout=LOOK_EVERY_S)
                break
            except queue.Empty:
                if not needed and self._signals:
                    raise Abandoned from None
                if until is not None and time.monotonic() > until:
                    raise TimeoutError from None
        if not good:
            raise value
        result: Result = value
        return result

    def _leave(self) -> None:
        self._is_here = False

    def _compute(self) -> None:
        while True:
            function, answers = self._work.get()
            try:
                answers.put((True, function()))
            except BaseException as failed:
                answers.put((False, failed))
            del function, answers  # what a failed computation held must not wait for the next one
