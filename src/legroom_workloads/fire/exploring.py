"""Random fire lines: how the wildfire agent tries things out.

Breaks work together. Ten cells strewn over the raster save little more than themselves, and a gap of one cell lets the
fire through a line of fifty; so cells drawn one by one never show what a *line* is worth. Here a set of cells is part
of a straight line: it goes on where a line ends, or begins at the edge, at water or rock, or at another line,
and runs until it meets something that does not burn. Where lines belong is not known here: all of it is drawn.

The lines follow from the observation alone, so that nothing has to be remembered between steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DIRECTIONS = ((-1, 0), (0, 1), (1, 0), (0, -1), (-1, 1), (1, 1), (1, -1), (-1, -1))  # (down, right)
GOING_ON = 200.0  # how much likelier a line goes on at its end than another begins in one given cell
STRAIGHT = 4.0  # how much likelier along rows and columns than across: a diagonal of n cells closes off less


def line_cells(allowed: NDArray[np.bool_], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return `count` different allowed cells (all, where there are fewer) along straight lines, as row * W + column.

    Args:
        allowed: [H, W], where a break can be cut.
    """
    free = np.pad(allowed, 2)
    width = allowed.shape[1]
    chosen: list[int] = []
    wanted = min(count, int(allowed.sum()))
    while len(chosen) < wanted:
        row, column, direction = _begin(free, rng)
        down, right = DIRECTIONS[direction]
        while free[row, column] and len(chosen) < wanted:
            free[row, column] = False
            chosen.append((row - 2) * width + column - 2)
            row, column = row + down, column + right
    return np.array(chosen, np.int64)


def _begin(free: NDArray[np.bool_], rng: np.random.Generator) -> tuple[int, int, int]:
    """Draw where a line begins or goes on, and into which of the directions, in the padded raster."""
    inner = free[2:-2, 2:-2]
    weights = np.zeros((len(DIRECTIONS), *inner.shape), np.float32)
    for number, (down, right) in enumerate(DIRECTIONS):
        behind, before = ~_moved(free, -down, -right), ~_moved(free, -2 * down, -2 * right)
        # the end of a line is thin: what lies beside it is free
        beside = (_moved(free, -down + right, -right - down), _moved(free, -down - right, -right + down))
        end = behind & before & beside[0] & beside[1]
        weights[number] = inner * (behind + GOING_ON * end) * (STRAIGHT if number < 4 else 1.0)
    # some weight is over 0: the northernmost free cell has nothing free behind it on its way south
    total = weights.ravel().cumsum(dtype=np.float64)
    drawn = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
    direction, cell = divmod(drawn, inner.size)
    row, column = divmod(cell, inner.shape[1])
    return row + 2, column + 2, direction


def _moved(free: NDArray[np.bool_], down: int, right: int) -> NDArray[np.bool_]:
    """Return for each cell of the raster whether the cell that lies so far from it is free."""
    height, width = free.shape
    return free[2 + down : height - 2 + down, 2 + right : width - 2 + right]
