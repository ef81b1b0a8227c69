"""Put a deposit on another grid, coarser or finer, without gaining or losing rock or metal.

The new blocks fill the same box of ground. Each takes from every old block the share of it that lies inside, which
along one axis is a small matrix of overlaps, and in space the product of three; so 49 blocks go into 20 as well as into
50. Tonnes are added up. What is a share of the rock (grades, minerals, clays, hardness) is averaged by tonnes, so that
tonnes × grade, the metal, is the sum of the parts. Recovery is a share of the *copper* and is therefore averaged by
copper: averaged by tonnes, poor rock would spoil the recovery of rich rock, and copper that can be sold would get lost.

Slopes are 45° by the edges of a block (`precedence`), so the same ground has about the same ultimate pit on every
grid. A pit that came with the data is carried over by the majority of the tonnes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.mine.blocks import COLUMNS, BlockModel, checked_grid


def resample(model: BlockModel, grid: Sequence[int]) -> BlockModel:
    """Return the deposit on a grid of nx, ny, nz blocks over the same ground.

    Raises:
        BadInput: a grid that cannot be.
    """
    shape = checked_grid(grid)
    if shape == model.shape:
        return model
    overlaps = [_overlap(old, new) for old, new in zip(model.shape, shape, strict=True)]
    old = {name: model.column(name).astype(np.float64) for name in COLUMNS}
    tonnes = _spread(old["ton"], overlaps)
    copper = _spread(old["ton"] * old["cu"], overlaps)

    new = {"ton": tonnes}
    for name in COLUMNS:
        if name in new:
            continue
        by_tonnes = _ratio(_spread(old["ton"] * old[name], overlaps), tonnes)
        if name == "rec":
            by_copper = _ratio(_spread(old["ton"] * old["cu"] * old["rec"], overlaps), copper)
            new[name] = np.where(copper > 0, by_copper, by_tonnes)
        else:
            new[name] = np.rint(by_tonnes) if name == "upl" else by_tonnes
    channels = np.stack([new[name] for name in COLUMNS]).astype(np.float32)
    edges = [size * before / after for size, before, after in zip(model.size_m, model.shape, shape, strict=True)]
    values = None if model.values_usd is None else _spread(model.values_usd, overlaps)
    return BlockModel(channels, model.name, (edges[0], edges[1], edges[2]), values)


def _overlap(old: int, new: int) -> NDArray[np.float64]:
    """Return [new, old]: which share of each old block lies in each new one, along one axis; columns add up to 1.

    Edges are compared as whole numbers, in units of 1 / (old * new) of the axis: no share is a rounding error.
    """
    old_edges, new_edges = np.arange(old + 1) * new, np.arange(new + 1) * old
    low = np.maximum(new_edges[:-1, None], old_edges[None, :-1])
    high = np.minimum(new_edges[1:, None], old_edges[None, 1:])
    return np.maximum(high - low, 0) / new


def _spread(amounts: NDArray[np.float64], overlaps: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the amounts [nx, ny, nz] added up over the new blocks."""
    # always the first axis, which then goes last: after three turns all are where they were
    return reduce(lambda field, overlap: np.tensordot(field, overlap, axes=(0, 1)), overlaps, amounts)


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return part / whole, 0 where there is nothing."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
