"""Parts of minibatches, the next one decoded in a thread while one is used, where decoding takes long enough for that.

What comes next is a guess: that the next minibatch is wanted in parts of the same size. A wrong guess costs one part
decoded in vain, and no sample is wrong: a part is only handed out for the very indices it was made of. So a minibatch
may be asked for again, in smaller parts, when memory ran out in the middle of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from legroom.machine.forks import in_forks

WORTH_A_THREAD_S = 0.0002  # decoding a part takes at least this long before it is done ahead; handing it over 0.05 ms


class ReadingAhead:
    """Makes samples part by part.

    Args:
        make: returns the samples of these indices.
        make_ahead: the same, in the thread, while the samples before are still in use.
        allowed: whether there may be a thread.
    """

    def __init__(
        self, make: Callable[[np.ndarray], Any], make_ahead: Callable[[np.ndarray], Any], *, allowed: bool
    ) -> None:
        self._make, self._make_ahead = make, make_ahead
        self._allowed = allowed
        self._thread: ThreadPoolExecutor | None = None
        self._coming: tuple[np.ndarray, Future[Any]] | None = None
        in_forks(self, ReadingAhead._without_thread)

    def parts(self, whole: np.ndarray, following: np.ndarray, size: int) -> Iterator[Any]:
        """Yield the samples of a minibatch in parts of `size`; the last may be smaller.

        Args:
            following: the indices of the minibatch after this one; empty where there is none.
        """
        if not self._allowed and self._coming is None and size >= len(whole):
            yield self._make(whole)
            return
        cut = [whole[start : start + size] for start in range(0, len(whole), size)]
        for part, after in zip(cut, [*cut[1:], following[:size]], strict=True):
            samples = self._take(part)
            self._start(after)
            yield samples
            del samples  # its memory is what the next part is waiting for

    def drop(self) -> None:
        """Let go of what was made ahead of time."""
        if self._coming is not None:
            _, future = self._coming
            self._coming = None
            if not future.cancel():
                future.exception()  # waits: memory that the thread is still filling cannot be let go

    def close(self) -> None:
        """End the thread."""
        self.drop()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _without_thread(self) -> None:
        self._thread = self._coming = None

    def _take(self, part: np.ndarray) -> Any:
        if self._coming is not None and np.array_equal(self._coming[0], part):
            _, future = self._coming
            self._coming = None
            return future.result()
        self.drop()
        began = time.perf_counter()
        samples = self._make(part)
        if time.perf_counter() - began < WORTH_A_THREAD_S:
            self._allowed = False
        return samples

    def _start(self, part: np.ndarray) -> None:
        if not self._allowed or not len(part):
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "legroom-prefetch")
        self._coming = part, self._thread.submit(self._make_ahead, part)
