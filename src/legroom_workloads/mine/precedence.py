"""Which column may be dug next: slopes of 45 degrees, by blocks.

A block may be mined once the nine blocks over it are gone: the one above and that one's eight neighbours, those that
exist. So the pit is told completely by one number per column, the *depth* (blocks dug from the top), and the topmost
block left in a column of depth d may be mined exactly if no neighbouring column is shallower than d. Digging a column
changes the answer for nine columns only; the same few array operations serve the whole grid and such a neighbourhood.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FAR_DOWN = np.int32(1 << 30)  # the depth of columns outside the grid: they stand in nobody's way

Depths = NDArray[np.int32]


def diggable(depths: Depths, limits: Depths) -> NDArray[np.bool_]:
    """Return which columns may be dug one block further, [a, b].

    Args:
        depths: [a + 2, b + 2], the columns with one ring of neighbours around them.
        limits: [a, b], the depth at which each column ends.
    """
    own = depths[1:-1, 1:-1]
    shallowest = np.minimum(np.minimum(depths[:-2], depths[1:-1]), depths[2:])
    shallowest = np.minimum(np.minimum(shallowest[:, :-2], shallowest[:, 1:-1]), shallowest[:, 2:])
    return (own < limits) & (shallowest >= own)


def close_upwards(limits: Depths) -> Depths:
    """Return the smallest depths, at least `limits`, that can be reached: a pit this deep is this wide further up."""
    while True:
        around = np.pad(limits, 1)
        wide = np.maximum(np.maximum(around[:-2], around[1:-1]), around[2:])
        wide = np.maximum(np.maximum(wide[:, :-2], wide[:, 1:-1]), wide[:, 2:])
        closed = np.maximum(limits, wide - 1)
        if np.array_equal(closed, limits):
            return closed
        limits = closed


def depths_of(blocks: NDArray[np.bool_]) -> Depths:
    """Return per column how deep the deepest of `blocks` [nx, ny, nz] lies, 0 where there is none."""
    nz = blocks.shape[2]
    deepest = nz - np.argmax(blocks[:, :, ::-1], axis=2)
    return np.where(blocks.any(axis=2), deepest, 0).astype(np.int32)


class Columns:
    """The depths of all columns, and which of them may be dug, kept up to date block by block.

    Args:
        start: [nx, ny], the depth before anything is mined: the air over the ground.
        limits: [nx, ny], how deep each column may become, closed upwards.
    """

    def __init__(self, start: Depths, limits: Depths) -> None:
        nx, ny = start.shape
        self.shape = (nx, ny)
        self._start, self._limits = start, np.pad(limits, 1)
        self._depths = np.full((nx + 4, ny + 4), FAR_DOWN, np.int32)
        self.depths = self._depths[2:-2, 2:-2]
        self._mask = np.zeros((nx + 2, ny + 2), np.bool_)
        self.set(start)

    def set(self, depths: Depths) -> None:
        """Put the columns to these depths."""
        self.depths[...] = depths
        self._mask[...] = diggable(self._depths, self._limits)

    def set_dug(self, columns: NDArray[np.int32]) -> None:
        """Put the columns to where they are after digging these, x * ny + y, in any order.

        Raises:
            ValueError: columns that do not exist, or end before.
        """
        dug = np.bincount(columns, minlength=self._start.size)
        depths = self._start + dug.reshape(self.shape).astype(np.int32)
        if (depths > np.maximum(self._limits[1:-1, 1:-1], self._start)).any():
            raise ValueError("a column is dug deeper than it may be")
        self.set(depths)

    def reset(self) -> None:
        """Fill the pit."""
        self.set(self._start)

    def allowed(self, x: int, y: int) -> bool:
        """Return whether the column may be dug."""
        return bool(self._mask[x + 1, y + 1])

    def dig(self, x: int, y: int) -> int:
        """Take the topmost block of a column and return its z; whether that is allowed is the caller's question."""
        depth = int(self._depths[x + 2, y + 2])
        self._depths[x + 2, y + 2] = depth + 1
        self._mask[x : x + 3, y : y + 3] = diggable(
            self._depths[x : x + 5, y : y + 5], self._limits[x : x + 3, y : y + 3]
        )
        return depth

    def mask(self) -> NDArray[np.bool_]:
        """Return which columns may be dug, [nx * ny], a copy."""
        return self._mask[1:-1, 1:-1].flatten()
