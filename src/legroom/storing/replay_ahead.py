"""The next batch of a replay buffer, decoded in a thread while one is trained on, where decoding takes long enough.

What is sampled next is a guess: the random numbers that NumPy will draw next, after as many in between as between the
last two samples (DQN tosses a coin per step, SAC none). Nothing depends on it being right. The indices of a sample are
drawn by the library as ever, and only what was decoded for the very same indices is used; the rest is decoded then, and
so are rows that were written since.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from legroom.machine.forks import in_forks
from legroom.machine.probing import count_cores

WORTH_A_THREAD_S = 0.00015  # decoding a batch takes at least this long before it is done ahead
TIMED = 5  # batches of which the median says how long that is: the first one finds nothing in a cache
TIMED_AGAIN = 32  # every so many: a buffer grows, and what waits for a processor in a thread says little
HOPELESS = 16  # guesses in a row of no use (most of it wrong, or waited for) after which none is made any more
LATE = 0.5  # of the time that decoding takes: who waits so long for the thread may as well decode
STATE_BYTES = 4 * 624 + 4  # of the Mersenne Twister: its words, and how many of them are used up

Pair = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]  # observations and next observations, by key
Read = Callable[[np.ndarray, np.ndarray], Pair]  # the pairs of these rows and environments


@dataclass(frozen=True)
class Rows:
    """What there is to sample from.

    Args:
        count: of rows, from row 0 on.
        following: the row that is written next.
        ever: rows written since the buffer was made.
    """

    count: int
    following: int
    ever: int
    capacity: int
    n_envs: int

    def has_changed(self, rows: np.ndarray, since: Rows) -> np.ndarray:
        """Return which of these rows may have been written since then; the last one can be written once more."""
        written = max(self.ever - since.ever, 0) + 1
        return (rows - (since.following - 1)) % self.capacity < written


class ReplayAhead:
    """Decodes pairs of observations, the next ones ahead of time.

    Args:
        read: also called in a thread.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._copy = _Copy()
        self._allowed = self._copy.draws_the_same and count_cores() > 1
        self._thread: ThreadPoolExecutor | None = None
        self._coming: tuple[Rows, Future[tuple[np.ndarray, np.ndarray, Pair]]] | None = None
        self._last: tuple[bytes, int] | None = None  # NumPy's generator and rows written, after the last sample
        self._useless = 0  # guesses in a row
        self._times: deque[float] = deque(maxlen=TIMED)
        self._takes_s = 0.0  # to decode a batch
        self._asked = 0
        self._lock = threading.Lock()  # two threads may sample: what was decoded ahead is for one of them
        in_forks(self, ReplayAhead._without_thread)

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy of a buffer makes its own

    def before_drawing(self) -> bytes | None:
        """Return what `pairs` wants to know of the time before indices were drawn; None: it need not be asked."""
        self._asked += 1
        if not self._allowed or not (self._pays or self._asked <= TIMED or self._asked % TIMED_AGAIN == 0):
            return None
        return state_of_generator()

    def pairs(self, rows: np.ndarray, envs: np.ndarray, there: Rows, before: bytes | None) -> Pair:
        """Return the pairs of these rows and environments, and begin to decode what may come next."""
        found = self._take(rows, envs, there)
        if self._pays and self._asked % TIMED_AGAIN:
            self._start(len(rows), there, before)
        return found

    @property
    def _pays(self) -> bool:
        return self._allowed and self._takes_s >= WORTH_A_THREAD_S

    def close(self) -> None:
        """Let go of what was decoded ahead of time, and of the thread."""
        if self._coming is not None and not self._coming[1].cancel():
            self._coming[1].exception()  # waits
        self._coming = self._last = None
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _without_thread(self) -> None:
        self._lock = threading.Lock()
        self._thread = self._coming = self._last = None

    def _take(self, rows: np.ndarray, envs: np.ndarray, there: Rows) -> Pair:
        with self._lock:
            coming, self._coming = self._coming, None
        if coming is None:
            return self._timed(rows, envs) if self._allowed else self._read(rows, envs)
        then, future = coming
        began = time.perf_counter()
        try:
            guessed_rows, guessed_envs, pair = future.result()
        except Exception:  # of rows that may not have been asked for; where they were, reading them says so
            return self._read(rows, envs)
        is_late = time.perf_counter() - began > LATE * self._takes_s
        if len(guessed_rows) != len(rows):
            return self._read(rows, envs)
        wrong = np.flatnonzero((guessed_rows != rows) | (guessed_envs != envs) | there.has_changed(rows, then))
        mostly = 2 * len(wrong) > len(rows)
        self._useless = self._useless + 1 if mostly or is_late else 0
        self._allowed = self._useless < HOPELESS
        if mostly:
            return self._read(rows, envs)
        if len(wrong):
            for side, parts in zip(pair, self._read(rows[wrong], envs[wrong]), strict=True):
                for key, part in parts.items():
                    side[key][wrong] = part
        return pair

    def _timed(self, rows: np.ndarray, envs: np.ndarray) -> Pair:
        began = time.perf_counter()
        found = self._read(rows, envs)
        self._times.append(time.perf_counter() - began)
        if len(self._times) == TIMED:
            self._takes_s = sorted(self._times)[TIMED // 2]
        return found

    def _start(self, count: int, there: Rows, before: bytes | None) -> None:
        last, after = self._last, state_of_generator()
        self._last = (after, there.ever) if after is not None else None
        if last is None or before is None or after is None:
            return
        upper = min(there.count + max(there.ever - last[1], 0), there.capacity)  # another thread may have seen more
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "legroom-replay")
        guess = (after, _drawn_between(last[0], before), upper, count)
        with self._lock:
            if self._coming is None:
                self._coming = there, self._thread.submit(self._ahead, guess, there)

    def _ahead(self, guess: tuple[bytes, int, int, int], there: Rows) -> tuple[np.ndarray, np.ndarray, Pair]:
        rows, envs = self._copy.draw(*guess, there.n_envs)
        rows[rows >= there.count] = 0  # not written yet: it will be seen that this is another row
        return rows, envs, self._read(rows, envs)


class _Copy:
    """A generator that draws what NumPy's global one would."""

    def __init__(self) -> None:
        self.draws_the_same = False
        try:
            self._generator = np.random.MT19937(0)
            self._random = np.random.RandomState(self._generator)
            state = ctypes.string_at(self._generator.ctypes.state_address, STATE_BYTES)
            expected = self._random.randint(0, 1000, size=8)
            same = (self.draw(state, 0, 1000, 8, 1)[0] == expected).all()
            self.draws_the_same = bool(same) and state_of_generator() is not None
        except (AttributeError, TypeError):  # another NumPy
            pass

    def draw(self, state: bytes, skipped: int, upper: int, count: int, n_envs: int) -> tuple[np.ndarray, np.ndarray]:
        """Return what SB3 will draw of rows and environments after so many words of 32 bits."""
        ctypes.memmove(self._generator.ctypes.state_address, state, STATE_BYTES)
        if skipped:
            self._random.bytes(4 * skipped)
        rows = self._random.randint(0, upper, size=count)
        return rows, np.zeros(count, np.int64) if n_envs == 1 else self._random.randint(0, high=n_envs, size=(count,))


def state_of_generator() -> bytes | None:
    """Return the state of NumPy's global generator; None where it is none that is known."""
    generator = np.random.get_bit_generator()  # type: ignore[attr-defined]
    if type(generator) is not np.random.MT19937:
        return None
    return ctypes.string_at(generator.ctypes.state_address, STATE_BYTES)


def _drawn_between(one: bytes, other: bytes) -> int:
    """Return how many words of 32 bits were drawn between two states, up to some six hundred."""
    first, second = (int.from_bytes(state[-4:], "little") for state in (one, other))
    return second - first if second >= first else 624 - first + second
