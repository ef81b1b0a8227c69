"""Signals while XLA works: long computations happen in a thread of their own, so that the main thread can listen.

Python handles a signal between two bytecodes of the main thread, and a compilation or a training step is one call into
XLA that may take a minute. Nothing can interrupt such a call; what can be done is not to wait for it. A computation
whose result nobody needs to go on (a compilation, an evaluation) is given up at the first Ctrl-C; a training step,
whose inputs are gone by then because they are donated, is waited for as long as a stop may take.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

STOP_WITHIN_S = 7.0  # of ten: a checkpoint takes its time too
LOOK_EVERY_S = 0.1

Result = TypeVar("Result")


class GivenUp(Exception):
    """Somebody asked to stop, and what was being computed is not needed for that."""


class Stopping:
    """What was asked of this process by signals: SIGINT and SIGTERM to stop, SIGUSR1 to retreat.

    Args:
        told: called once, when the first request to stop arrives.
    """

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told
        self.asked = 0  # how often
        self.retreating = False  # stop, because memory is about to run out
        self.writing = False  # a checkpoint that is on its way is worth the wait
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGALRM, self._out_of_time)
        signal.signal(signal.SIGUSR1, self._retreat)

    def __bool__(self) -> bool:
        return self.asked > 0 or self.retreating

    def in_time(self) -> None:
        """Stop the clock: what had to be done before the end is done."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _stop(self, number: int, frame: Any) -> None:
        self.asked += 1
        if self.asked > 1:
            raise KeyboardInterrupt
        self._told()
        signal.setitimer(signal.ITIMER_REAL, STOP_WITHIN_S)

    def _out_of_time(self, number: int, frame: Any) -> None:
        if self.writing:
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            return
        raise KeyboardInterrupt

    def _retreat(self, number: int, frame: Any) -> None:
        self.retreating = True


class Aside:
    """One thread that computes while the main thread listens; it ends with the process, whatever it is doing."""

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[tuple[bool, Any]]]]
        self._work = queue.SimpleQueue()
        threading.Thread(target=self._compute, name="xla", daemon=True).start()

    def do(self, function: Callable[[], Result], *, needed: bool, within_s: float | None = None) -> Result:
        """Return what the function returns, or raise what it raises.

        Args:
            needed: the state of the training is in it: wait for it even when a stop is asked for.
            within_s: how long to wait for it at most.

        Raises:
            TimeoutError: it took longer; the thread may still be computing it.
            GivenUp: it is not needed and a stop was asked for; the thread may still be computing it.
        """
        answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        self._work.put((function, answers))
        until = None if within_s is None else time.monotonic() + within_s
        while True:
            try:
                good, value = answers.get(timeout=LOOK_EVERY_S)
                break
            except queue.Empty:
                if not needed and self._stopping:
                    raise GivenUp from None
                if until is not None and time.monotonic() > until:
                    raise TimeoutError from None
        if not good:
            raise value
        return value

    def _compute(self) -> None:
        while True:
            function, answers = self._work.get()
            try:
                answers.put((True, function()))
            except BaseException as failed:
                answers.put((False, failed))
            del function, answers  # what a failed computation held must not wait for the next one
