"""Signals as messages: blocked while something is watched, and taken one by one between two samples.

A handler would interrupt the reading of a sample or the writing of a result anywhere. Taking them with `sigtimedwait`
also tells who sent one: Ctrl-C comes from the kernel and goes to every process of the foreground group, the command
included, so passing it on would press it twice; a signal that some process sent to us alone has to be passed on.

Known limit: who sends a signal to a whole group by hand (`timeout` does) reaches the command twice.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import Any, Self

PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
TAKEN = frozenset({*PASSED_ON, signal.SIGCHLD, signal.SIGWINCH})


class Signals:
    """While entered, signals wait to be taken. Outside the main thread it only waits: signals go to that one."""

    def __init__(self) -> None:
        self.before: set[Any] = set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._main:
            self.before = set(signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN))
        return self

    def __exit__(self, *exc: object) -> None:
        if self._main:
            while signal.sigtimedwait(TAKEN, 0) is not None:
                pass  # what came while the result was written has nobody to go to any more
            signal.pthread_sigmask(signal.SIG_SETMASK, self.before)

    def wait(self, seconds: float) -> signal.struct_siginfo | None:
        """Return the next signal, None when the time is over."""
        if not self._main:
            time.sleep(max(seconds, 0))
            return None
        return signal.sigtimedwait(TAKEN, max(seconds, 0))


def from_terminal(taken: signal.struct_siginfo) -> bool:
    """Say whether the kernel sent it (a key was pressed, the terminal went away): the command has it too then."""
    return taken.si_code > 0
