"""Finds out whether observations are stacks of frames, and along which axis, from the observations alone.

Colours are the exception: three bytes side by side, or three planes, are taken for them until so many are seen that no
table could hold them. A store that finds too many later keeps those frames as they are.

Nothing is assumed from a shape: a stack is what makes an observation equal its predecessor shifted by one frame, byte
for byte, where it does not simply equal the predecessor. The finding only decides how a store cuts observations into
frames; the store itself checks every single shift again before it leaves a frame out.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

ENOUGH = 4  # changes between successive observations that settle the question
NO_COLOURS, IN_PLANES, IN_PIXELS = range(3)  # of a frame: [3, pixels] or [pixels, 3], as in _colours.h
PARTS, MOST_PARTS = 3, 4  # red, green, blue; and of a pixel's numbers that lie side by side
MOST_COLOURS = 256
FEWEST_PIXELS = 1024  # that a table of colours is worth
MAX_FRAMES = 64  # more frames than this in one observation are no stack but a picture that moves


@dataclass(frozen=True)
class FrameStack:
    """An observation of n_stack frames: bytes [outer][n_stack][rest], the newest frame last or first.

    `colours` says how those of a frame may lie, `row_bytes` how long a row of a picture is.
    """

    n_stack: int = 1
    outer: int = 1
    newest_first: bool = False
    colours: int = NO_COLOURS
    row_bytes: int = 0

    def as_state(self) -> tuple[int, int, bool, int, int]:
        """Return what `FrameStack(*state)` takes."""
        return self.n_stack, self.outer, self.newest_first, self.colours, self.row_bytes


class StackFinder:
    """Looks at successive observations until it knows."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.single = _stack(1, 1, False, shape, self.dtype)
        self.stack: FrameStack | None = None if _candidates(shape) else self.single
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

    @property
    def found(self) -> FrameStack:
        """How observations are cut into frames, as far as is known."""
        return self.stack or self.single

    def recall(self, stack: FrameStack, decided: bool) -> None:
        """Go on from what was found before; what is stored has its colours, whatever would be found now."""
        self.single = FrameStack(colours=stack.colours, row_bytes=stack.row_bytes)
        if decided:
            self.stack = stack

    def _decide(self) -> FrameStack:
        """Return the shift that explains most changes, at least half of them; fewer frames win a tie."""
        best = max(self._score, key=lambda c: (self._score[c], c[1]), default=None)
        if best is None or 2 * self._score[best] < self._changes:
            found = self.single
        else:
            axis, step, newest_first = best
            frame = (*self.shape[:axis], step, *self.shape[axis + 1 :])
            found = _stack(self.shape[axis] // step, prod(self.shape[:axis]), newest_first, frame, self.dtype)
        if any(_many_colours(observation, found) for observation in self._previous.values()):
            found = replace(found, colours=NO_COLOURS)
        return found


def _many_colours(observation: np.ndarray, stack: FrameStack) -> bool:
    """Say whether a frame of the observation has more colours than a table holds."""
    if stack.colours == NO_COLOURS:
        return False
    frame = observation.reshape(stack.outer, stack.n_stack, -1)[:, -1].reshape(-1)
    parts = frame.reshape(-1, PARTS).T if stack.colours == IN_PIXELS else frame.reshape(PARTS, -1)
    red, green, blue = parts.astype(np.uint32)
    return len(np.unique(red | green << 8 | blue << 16)) > MOST_COLOURS


def _stack(n_stack: int, outer: int, newest_first: bool, frame: tuple[int, ...], dtype: np.dtype) -> FrameStack:
    sizes = [size for size in frame if size > 1]
    row = sizes[-2:] if len(sizes) > 2 and sizes[-1] <= MOST_PARTS else sizes[-1:]
    row_bytes = prod(row) * dtype.itemsize if len(sizes) > 1 else 0
    return FrameStack(n_stack, outer, newest_first, _colours(frame, dtype), row_bytes)


def _colours(frame: tuple[int, ...], dtype: np.dtype) -> int:
    """Return how the colours of a frame of this shape lie, if it has any."""
    sizes = [size for size in frame if size > 1]
    if dtype != np.uint8 or len(sizes) != 3 or prod(sizes) < PARTS * FEWEST_PIXELS:
        return NO_COLOURS
    return IN_PIXELS if sizes[-1] == PARTS else IN_PLANES if sizes[0] == PARTS else NO_COLOURS


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
