"""What the columns of a rollout and the ring of a replay buffer have in common: the array they stand for.

Both keep observations [rows, environments, *shape] of one dtype in shelves, know by now or not whether these are stacks
of frames, and keep small observations plainly, since an index would cost more than it saves; without the C core, all.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from legroom.storing.budget import Options, Shelf
from legroom.storing.core import WHY_NOT, say_plain
from legroom.storing.outputs import Outputs
from legroom.storing.stacks import Stack, StackFinder

# Numbers of several bytes repeat as whole numbers, in maps for example, so a page has as many of them as of bytes: more
# to repeat, and fewer pages to write anew. 100,000 transitions of the wildfire: 472 MB of records in pages of 4 KiB,
# 293 in pages of 16 KiB, and read as fast (2026-11-16, `bench.fire_replay` of eca25f63).
NUMBERS_PER_PAGE, LARGEST_PAGE = 4096, 32768


class Observations:
    """The array that is stood for, and how it is kept.

    Args:
        rows, n_envs, shape, dtype: of the array.
        options: what the user asked for.
        outputs: where decoded batches go.
    """

    plain_up_to: int  # bytes of an observation
    shelves: Sequence[Shelf]  # what rows are stored in, oldest first
    _plain: np.ndarray  # everything, where observations are that small
    _numbers: np.ndarray  # uint32 [rows, n_envs]: the observations' places in their stores, where they are not

    def __init__(
        self, rows: int, n_envs: int, shape: tuple[int, ...], dtype: np.dtype, options: Options, outputs: Outputs
    ) -> None:
        self.rows, self.n_envs, self.item_shape, self.dtype = rows, n_envs, shape, np.dtype(dtype)
        self.options, self.outputs = options, outputs
        self.item_bytes = prod(shape) * self.dtype.itemsize
        self.plain_bytes = rows * n_envs * self.item_bytes
        self.is_plain = bool(WHY_NOT) or self.item_bytes <= self.plain_up_to
        if WHY_NOT and self.item_bytes > self.plain_up_to:
            say_plain()
        self.page_bytes = min(NUMBERS_PER_PAGE * self.dtype.itemsize, LARGEST_PAGE)  # of large frames
        self.finder = StackFinder(shape, dtype)
        self._row_shape = (n_envs, *shape)

    @property
    def stack(self) -> Stack:
        """How observations are cut into frames."""
        return self.finder.found

    def breakdown(self) -> dict[str, int]:
        """Return the bytes in memory by purpose, and those on disk as `spilled`."""
        if self.is_plain:
            return {"plain": self._plain.nbytes}
        parts = {"index": self._numbers.nbytes}
        for shelf in self.shelves:
            for key, value in shelf.store.nbytes().items():
                if isinstance(value, int):  # not the counts by kind of record
                    parts[key] = parts.get(key, 0) + value
        return parts

    def made_of(self) -> list[Any]:
        """Return what this was constructed with."""
        return [self.rows, self.n_envs, self.item_shape, self.dtype, self.options, self.outputs]

    def check_form(self, state: dict[str, Any]) -> None:
        """Refuse what was stored plainly where it is stored leanly here, or the other way round.

        Raises:
            ValueError: it was.
        """
        if self.is_plain != ("plain" in state):
            kept = ("leanly", "plainly")
            raise ValueError(f"observations were stored {kept[not self.is_plain]}, here they are {kept[self.is_plain]}")

    def stack_state(self) -> dict[str, Any]:
        """Return what was found out about stacks, as plain data."""
        return {"stack": self.stack.as_state(), "decided": self.finder.stack is not None}

    def as_stored(self, observations: np.ndarray) -> np.ndarray:
        """Return one observation per environment as the plain array would have stored it, in C order."""
        stored = np.ascontiguousarray(observations, self.dtype)
        if stored.shape != self._row_shape:
            stored = np.ascontiguousarray(np.broadcast_to(stored, self._row_shape))
        return stored
