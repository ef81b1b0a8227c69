"""From one value per cell to a set of K cells: what an action of the wildfire agent is.

The set of the K best cells has C(2500, 10) = 10²⁷ members to choose from, but its value is taken to be the mean of its
cells' values, and the best mean is that of the K highest: a sort finds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput


def top_cells(values: NDArray[np.floating], mask: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Return the allowed cells with the highest values, best first, of equals the first; fewer where fewer are allowed.

    Raises:
        BadInput: not one value per cell, or one that is not a number.
    """
    values, mask = np.asarray(values).ravel(), mask.ravel()
    if values.shape != mask.shape:
        raise BadInput(f"{values.size} values for {mask.size} cells")
    if np.isnan(values).any():
        raise BadInput("a value is not a number", hint="the network has diverged")
    allowed = np.flatnonzero(mask)
    return allowed[np.argsort(-values[allowed], kind="stable")[:count]]


def cells_of(action: Any, mask: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Return the cells that an action names: whole numbers are cells, others one value per cell to choose by.

    Raises:
        BadInput: neither, too many cells, or one outside the raster.
    """
    given = np.asarray(action)
    if given.dtype.kind == "f":
        return top_cells(given, mask, count)
    cells = given.ravel()
    if cells.dtype.kind not in "iu" or not 1 <= cells.size <= count:
        raise BadInput(f"an action of {cells.size} {cells.dtype}", hint=f"{count} cells, or one value per cell")
    if cells.min() < 0 or cells.max() >= mask.size:
        wrong = int(cells.min() if cells.min() < 0 else cells.max())
        raise BadInput(f"cell {wrong}", hint=f"0 to {mask.size - 1}")
    return cells.astype(np.int64)
