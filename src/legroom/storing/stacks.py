"""Finds out whether observations are stacks of frames, and along which axis, from the observations alone.

Nothing is assumed from a shape: a stack is what makes an observation equal its predecessor shifted by one frame, byte
for byte, where it does not simply equal the predecessor. The finding only decides how a store cuts observations into
frames; the store itself checks every single shift again before it leaves a frame out.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

ENOUGH = 4  # changes between successive observations that settle the question
MAX_FRAMES = 64  # more frames than this in one observation are no stack but a picture that moves


@dataclass(frozen=True)
class Stack:
    """An observation of n_stack frames: bytes [outer][n_stack][rest], the newest frame last or first."""

    n_stack: int = 1
    outer: int = 1
    newest_first: bool = False


SINGLE = Stack()


class StackFinder:
    """Looks at successive observations until it knows."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.stack: Stack | None = None if _candidates(shape) else SINGLE
        self._previous: dict[int, np.ndarray] = {}
        self._score: dict[tuple[int, int, bool], int] = {}
        self._changes = self._seen = 0

    def look(self, observations: np.ndarray, patience: int = 64) -> None:
        """Take one observation of every environment into account; after `patience` calls without changes, give up."""
        for env, observation in enumerate(observations):
            previous = self._previous.get(env)
            if previous is not None and not _same(previous, observation):
                self._changes += 1
                for candidate in _candidates(self.shape):
                    if _shifted(previous, observation, *candidate):
                        self._score[candidate] = self._score.get(candidate, 0) + 1
            self._previous[env] = observation.copy()
            if self._changes >= ENOUGH:
                break
        self._seen += 1
        if self._changes >= ENOUGH or self._seen >= patience:
            self.stack = self._decide()
            self._previous.clear()

    def _decide(self) -> Stack:
        """Return the shift that explains most changes, at least half of them; fewer frames win a tie."""
        best = max(self._score, key=lambda c: (self._score[c], c[1]), default=None)
        if best is None or 2 * self._score[best] < self._changes:
            return SINGLE
        axis, step, newest_first = best
        return Stack(self.shape[axis] // step, prod(self.shape[:axis]), newest_first)


def _candidates(shape: tuple[int, ...]) -> list[tuple[int, int, bool]]:
    """Return (axis, size of a frame along it, newest first) of every way to see this shape as a stack."""
    return [
        (axis, step, newest_first)
        for axis, size in enumerate(shape)
        for step in range(1, size // 2 + 1)
        if size % step == 0 and size // step <= MAX_FRAMES
        for newest_first in (False, True)
    ]


def _shifted(previous: np.ndarray, observation: np.ndarray, axis: int, step: int, newest_first: bool) -> bool:
    """Say whether the observation is its predecessor moved on by one frame, in a part that did change."""
    older = [slice(None)] * previous.ndim
    newer = list(older)
    older[axis], newer[axis] = slice(step, None), slice(None, -step)
    if newest_first:
        older, newer = newer, older
    before, after = previous[tuple(older)], observation[tuple(newer)]
    return _same(before, after) and not _same(previous[tuple(newer)], after)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Compare bytes, not numbers (NaN, -0.0): a thin sample first, since most candidates fail there."""
    a, b = _bits(a), _bits(b)
    thin = tuple(slice(None, None, max(1, size // 4)) for size in a.shape)
    return bool(np.array_equal(a[thin], b[thin]) and np.array_equal(a, b))


def _bits(array: np.ndarray) -> np.ndarray:
    if array.itemsize in (1, 2, 4, 8):
        return array.view(f"u{array.itemsize}")
    return np.ascontiguousarray(array).view("u8")  # complex numbers and long doubles
