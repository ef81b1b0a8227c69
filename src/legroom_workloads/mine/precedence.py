"""Which column may be dug next: slopes of 45 degrees, whatever the edges of a block.

A block may be mined once all blocks are gone whose centres lie within 45 degrees over its own. Of these it is enough to
ask for a few: what lies further up is asked for by them. So the pit is told completely by one number per column, the
*depth* (blocks dug from the top), and the topmost block left in a column may be mined exactly if no column around it
is too shallow. Digging a column changes the answer for the few columns that ask for it, and for itself. Air asks for
nothing: a cliff that was there before may stay.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput

ANGLE_DEG, WITHIN_DEG = 45.0, 1.0  # no rock stays over a mined block more steeply than the sum of them
MOST_ASKED = 1_000  # each is an arc per block in the search for the ultimate pit
FAR_DOWN = np.int32(1 << 30)  # the depth of columns outside the grid: they stand in nobody's way

Depths = NDArray[np.int32]
Slopes = NDArray[np.int64]  # [n, 3]: blocks along x and y, and benches up


@lru_cache(maxsize=16)
def slopes(shape: tuple[int, int, int], size_m: tuple[float, float, float]) -> Slopes:
    """The blocks that a block asks for, as offsets from it: together they keep the angle on a grid of this shape.

    Bench by bench upwards, the blocks within 45 degrees are added that those below do not ask for already, until what
    they ask for is right, to within a degree, over the deepest block there is. Offsets are found in one quarter and
    mirrored, so that the way from a block to one that it needs never leaves the grid.

    Raises:
        BadInput: blocks so tall that one needs a thousand others.
    """
    (nx, ny, nz), (edge_x, edge_y, height) = shape, size_m
    along_x = np.arange(min(nx, int(nz * height / edge_x) + 1)) * edge_x
    along_y = np.arange(min(ny, int(nz * height / edge_y) + 1)) * edge_y
    benches = np.hypot(along_x[:, None], along_y) / height  # at 45 degrees, from the middle of a block outwards
    wanted = np.maximum(np.ceil(benches * math.tan(math.radians(ANGLE_DEG)) - 1e-9), 1)
    at_least = np.ceil(benches * math.tan(math.radians(ANGLE_DEG + WITHIN_DEG)) - 1e-9)
    found = [(0, 0, 1)]

    def asked(cones: list[NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """The cone on the next bench, made of those below it."""
        cone = np.zeros_like(cones[0])
        for x, y, up in found:
            if up <= len(cones):
                below = cones[-up]
                cone[x:, y:] |= below[: below.shape[0] - x, : below.shape[1] - y]
        return cone

    cones = [benches == 0]
    for up in range(1, nz):
        missing = (wanted <= up) & ~asked(cones)
        found += [(int(x), int(y), up) for x, y in np.argwhere(missing)]
        cones.append(asked(cones))
        deeper = list(cones)
        while len(deeper) < nz and not ((at_least <= len(deeper)) & ~asked(deeper)).any():
            deeper.append(asked(deeper))
        if len(deeper) == nz:
            break
    mirrored = {(x * east, y * north, up) for x, y, up in found for east in (-1, 1) for north in (-1, 1)}
    if len(mirrored) > MOST_ASKED:
        edges = "×".join(f"{edge:g}" for edge in size_m)
        message = f"blocks of {edges} m: at {ANGLE_DEG:.0f}° one needs {len(mirrored):,} others"
        raise BadInput(message, hint="a grid with more benches, or wider blocks")
    return np.array(sorted(mirrored, key=lambda offset: offset[::-1]), np.int64)


def close_upwards(limits: Depths, over: Slopes) -> Depths:
    """Return the smallest depths, at least `limits`, that can be reached: a pit this deep is this wide further up."""
    (nx, ny), (rx, ry, _) = limits.shape, np.abs(over).max(axis=0)
    while True:
        around = np.pad(limits, ((rx, rx), (ry, ry)))
        wide = [around[rx - x : rx - x + nx, ry - y : ry - y + ny] - up for x, y, up in over.tolist()]
        closed = np.maximum(limits, np.max(wide, axis=0)).astype(limits.dtype)
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
        over: the slopes, see `slopes`.
    """

    def __init__(self, start: Depths, limits: Depths, over: Slopes) -> None:
        nx, ny = start.shape
        rx, ry = 2 * np.abs(over[:, :2]).max(axis=0)  # so far a column that asks for a dug one looks
        self.shape, self._inside = (nx, ny), (slice(rx, rx + nx), slice(ry, ry + ny))
        self._start, self._width, self._corner = start, ny + 2 * ry, rx * (ny + 2 * ry) + ry
        others = over[over[:, :2].any(axis=1)]  # its own column is dug from the top anyway
        self._offsets, self._up = others[:, 0] * self._width + others[:, 1], others[:, 2] - 1
        self._asking = np.append(-self._offsets, 0)
        self._limits = np.zeros((nx + 2 * rx, self._width), np.int32)
        self._limits[self._inside] = limits
        self._depths = np.full(self._limits.shape, FAR_DOWN)
        self.depths = self._depths[self._inside]
        self._mask = np.zeros(self._limits.shape, np.bool_)
        self._numbers = np.arange(self._limits.size).reshape(self._limits.shape)[self._inside].ravel()
        self.set(start)

    def _diggable(self, columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these columns, by number in the padded grid, may be dug one block further."""
        flat = self._depths.reshape(-1)
        own = flat[columns]
        shallowest = np.full_like(own, FAR_DOWN)
        for offset, up in zip(self._offsets.tolist(), self._up.tolist(), strict=True):
            np.minimum(shallowest, flat[columns + offset] + up, out=shallowest)
        return (own < self._limits.reshape(-1)[columns]) & (shallowest >= own)

    def set(self, depths: Depths) -> None:
        """Put the columns to these depths."""
        self.depths[...] = depths
        self._mask[self._inside] = self._diggable(self._numbers).reshape(self.shape)

    def set_dug(self, columns: NDArray[np.int32]) -> None:
        """Put the columns to where they are after digging these, x * ny + y, in any order.

        Raises:
            ValueError: columns that do not exist, or end before.
        """
        dug = np.bincount(columns, minlength=self._start.size)
        depths = self._start + dug.reshape(self.shape).astype(np.int32)
        if (depths > np.maximum(self._limits[self._inside], self._start)).any():
            raise ValueError("a column is dug deeper than it may be")
        self.set(depths)

    def reset(self) -> None:
        """Fill the pit."""
        self.set(self._start)

    def allowed(self, x: int, y: int) -> bool:
        """Return whether the column may be dug."""
        return bool(self._mask.item(self._corner + x * self._width + y))

    def dig(self, x: int, y: int) -> int:
        """Take the topmost block of a column and return its z; whether that is allowed is the caller's question."""
        flat, column = self._depths.reshape(-1), self._corner + x * self._width + y
        depth = int(flat[column])
        flat[column] = depth + 1
        asking = column + self._asking
        own = flat[asking]
        free = (flat[asking[:, None] + self._offsets] + self._up >= own[:, None]).all(axis=1)
        self._mask.reshape(-1)[asking] = free & (own < self._limits.reshape(-1)[asking])
        return depth

    def around(self, x: int, y: int) -> NDArray[np.int64]:
        """Return which columns may be dug, x * ny + y, of those that a dug column may have set free, and itself."""
        asking = self._corner + x * self._width + y + self._asking
        free = asking[self._mask.reshape(-1)[asking]] - self._corner
        return free // self._width * self.shape[1] + free % self._width

    def mask(self) -> NDArray[np.bool_]:
        """Return which columns may be dug, [nx * ny], a copy."""
        return self._mask[self._inside].flatten()
