"""Find the regular grid on which a list of block centres lies.

Block models come as lists of centres, in metres or counted, in any order, sometimes rounded to whole metres. The grid
is read off the coordinates: along each axis the blocks stand where different coordinates occur, and the spacing is the
usual distance between two of them; planes without any block are allowed, since they are found as absent blocks later.
z is an elevation and grows upwards, as is usual in mining, hence the highest z becomes index 0, the top bench.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.mine.blocks import BLOCK_SIZE_M

SAME_PLACE = 1e-6  # of the axis' extent: coordinates closer than this are one, written with different rounding
OFF_GRID = 0.1  # of a block: centres rounded to whole metres are off by less


@dataclass(frozen=True, eq=False)
class Placement:
    """Where every row lies.

    Attributes:
        shape: blocks along x, y, z.
        size_m: the edges of a block; the default where coordinates count blocks (a spacing of 1) or do not tell.
        index: int64 [n, 3], z counted from the top bench.
        off_grid: bool [n], rows whose centre is not where a block's centre should be.
        centres: for each axis the coordinates of the planes, in the order of the index.
    """

    shape: tuple[int, int, int]
    size_m: tuple[float, float, float]
    index: NDArray[np.int64]
    off_grid: NDArray[np.bool_]
    centres: tuple[NDArray[np.float64], ...]

    @property
    def n_cells(self) -> int:
        """Places on the grid, in Python's unlimited integers: bad coordinates can make it astronomical."""
        nx, ny, nz = self.shape
        return nx * ny * nz

    @property
    def flat(self) -> NDArray[np.int64]:
        """Each row's block as one number, (x * ny + y) * nz + z."""
        _, ny, nz = self.shape
        return (self.index[:, 0] * ny + self.index[:, 1]) * nz + self.index[:, 2]

    def centre_of(self, cell: int) -> tuple[float, float, float]:
        """Return the coordinates of a block given as one number."""
        _, ny, nz = self.shape
        x, y, z = cell // (ny * nz), cell // nz % ny, cell % nz
        return float(self.centres[0][x]), float(self.centres[1][y]), float(self.centres[2][z])


def place(coordinates: NDArray[np.float64]) -> Placement:
    """Return where rows with these finite centres [n, 3], n at least 1, lie."""
    counts, spacings, indices = [], [], []
    centres: list[NDArray[np.float64]] = []
    off_grid = np.zeros(len(coordinates), np.bool_)
    for axis in range(3):
        along = coordinates[:, axis]
        first, spacing, count = _planes(np.unique(along))
        index = np.rint((along - first) / (spacing or 1.0)).astype(np.int64)
        off_grid |= np.abs(along - first - index * (spacing or 1.0)) > OFF_GRID * (spacing or 1.0)
        planes = first + np.arange(count, dtype=np.float64) * (spacing or 1.0)
        upwards = axis == 2
        counts.append(count)
        spacings.append(spacing)
        indices.append(count - 1 - index if upwards else index)
        centres.append(planes[::-1] if upwards else planes)
    counted = all(spacing in (None, 1.0) for spacing in spacings)
    sizes = [
        size if counted or spacing is None else spacing for size, spacing in zip(BLOCK_SIZE_M, spacings, strict=True)
    ]
    return Placement(
        (counts[0], counts[1], counts[2]),
        (sizes[0], sizes[1], sizes[2]),
        np.stack(indices, axis=1),
        off_grid,
        tuple(centres),
    )


def _planes(places: NDArray[np.float64]) -> tuple[float, float | None, int]:
    """Return the first of the planes at these sorted coordinates, their spacing (None for a single one) and number."""
    first, extent = float(places[0]), float(places[-1] - places[0])
    steps = np.diff(places)
    steps = steps[steps > SAME_PLACE * extent]
    if len(steps) == 0:
        return first, None, 1
    typical = np.sort(steps)[(len(steps) - 1) // 2]  # absent planes make steps longer, stray centres shorter
    spacing = float(steps[np.abs(steps - typical) < 0.25 * typical].mean())
    return first, spacing, round(extent / spacing) + 1
