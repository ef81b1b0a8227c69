"""What reading one file may cost: steps, memory and processor time, paid before the work is done.

A file of 120 bytes can ask for more than any machine has (`a = a + a` forty times, `round(1, -10**10)`). So whoever
reads pays: the interpreter for every node and every element it makes, walks over data for every part they visit. One
operation that costs too much is priced before it is done and gives an unknown value (`priced`); a file that costs too
much altogether ends its reading with one line. Nothing is paid outside of `bounded_reading`.

Work inside C cannot pay. On the command line and in the page's reading process a timer of the system ends that too
(`end_by_timer`); regular expressions and arithmetic on large integers both let Python handle the signal.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from legroom.errors import BadInput
from legroom.units import MIB, format_size

MOST_STEPS = 1_000_000  # a script of 640 lines takes 11,000
MOST_BYTES = 200 * MIB
MOST_SECONDS = 2.0  # of this thread's processor time
TIMER_SLACK_S = 3.0  # the timer also counts imports that reading brings about
LOOK_EVERY = 512  # steps between two looks at the clock
BYTES_PER_ITEM = 8  # of a list; a character takes less, an entry of a dict more


class TooCostly(BadInput):
    """A file whose reading takes more than a reading may."""

    def __init__(self, what: str, path: str | None, line: int | None = None) -> None:
        super().__init__(f"reading it takes {what}", path=path, line=line, hint="give the settings in a run file")


class ReadingBudget:
    """What is left for one reading; once it is used up, everything that pays is refused."""

    def __init__(self, path: str | None, seconds: float) -> None:
        self.path, self._seconds = path, seconds
        self._steps, self._nbytes = MOST_STEPS, MOST_BYTES
        self._look_at = self._steps - LOOK_EVERY
        self._began = time.thread_time()

    def pay(self, steps: int, line: int | None = None, path: str | None = None) -> None:
        """Take `steps` off what is left.

        Raises:
            TooCostly: there is not so much left, or the time is up.
        """
        self._steps -= steps
        if self._steps > self._look_at:
            return
        self._look_at = self._steps - LOOK_EVERY
        if self._steps < 0:
            self._refuse(f"more than {MOST_STEPS:,} steps", line, path)
        if time.thread_time() - self._began > self._seconds:
            self._refuse(f"more than {self._seconds:g} s", line, path)

    def hold(self, items: int) -> None:
        """Take the memory of so many items off what is left; they count even after they are dropped.

        Raises:
            TooCostly: there is not so much left.
        """
        self._nbytes -= items * BYTES_PER_ITEM
        if self._nbytes < 0:
            self._refuse(f"more than {format_size(MOST_BYTES)} of memory", None, None)

    def _refuse(self, what: str, line: int | None, path: str | None) -> None:
        raise TooCostly(what, path or self.path, line)


_current: ContextVar[ReadingBudget | None] = ContextVar("reading_budget", default=None)
_by_timer = False


def end_by_timer() -> None:
    """Have the system end readings in this process that take far too long inside C; for programs of our own only."""
    global _by_timer
    _by_timer = hasattr(signal, "setitimer")


@contextmanager
def bounded_reading(path: str | None = None, seconds: float | None = None) -> Iterator[None]:
    """Give what is read inside one budget; a reading inside another one uses that one's.

    Raises:
        BadInput: the budget is used up, or something is nested too deeply or too large for memory.
    """
    if _current.get() is not None:
        yield
        return
    seconds = seconds or MOST_SECONDS
    token = _current.set(ReadingBudget(path, seconds))
    try:
        with _timer(path, seconds):
            yield
    except RecursionError:
        raise BadInput("nested too deeply to follow", path=path, hint="give the settings in a run file") from None
    except MemoryError:
        raise TooCostly("more memory than there is", path) from None
    finally:
        _current.reset(token)


@contextmanager
def _timer(path: str | None, seconds: float) -> Iterator[None]:
    if not _by_timer or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        raise TooCostly(f"more than {seconds:g} s", path)

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds + TIMER_SLACK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def pay(steps: int = 1, line: int | None = None, path: str | None = None) -> None:
    """Pay for work of the reading under way; free where there is none."""
    budget = _current.get()
    if budget is not None:
        budget.pay(steps, line, path)


def hold(items: int) -> None:
    """Pay for items or characters that the reading under way makes."""
    budget = _current.get()
    if budget is not None:
        budget.pay(items // 64 + 1)  # copying is quick
        budget.hold(items)
