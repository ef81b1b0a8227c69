"""Nested pits: how much money the best pit of each size holds, and what no schedule can exceed.

Charge every block dug a fee and look for the best pit again: the higher the fee, the smaller the pit, and each lies
inside the next, as the pits for rising metal prices do by which mines are planned. The smallest is where the money is
densest, hence where digging should begin; the shells between them are the *phases* of the mine.

Plotted as value over number of blocks, these pits are the corners of a concave curve over which no pit of any kind
lies. They are found from the outside in: between two neighbouring corners the fee is set to the slope of the line
through them, and either a pit over that line turns up, or the line is proven to be part of the curve.

The curve bounds schedules, too. After k blocks a schedule has dug some pit of k blocks, so its undiscounted money
lies under the curve all the way; and since a dollar is worth less the later it comes, the discounted sum is at most
that of a schedule that followed the curve itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legroom.extend import BadInput
from legroom_workloads.mine.blocks import BLOCK_SIZE_M
from legroom_workloads.mine.pit import precedence_among, solve_closure, ultimate_pit
from legroom_workloads.mine.precedence import slopes

SHELLS = 40  # the curve is not refined where a shell holds less than this share of the pit


@dataclass(frozen=True, eq=False)
class NestedPits:
    """The best pits of growing size, smallest first, and the curve over all pits.

    Attributes:
        shells: int32 [nx, ny, nz], 1 in the smallest pit, n in the outermost shell, 0 outside all pits.
        sizes: int64 [n], blocks of each pit.
        values: float64 [n], what each pit is worth.
        fees: float64 [m], fees that were tried, and
        surpluses: float64 [m], what the best pit keeps after paying each fee: an upper bound of every pit's.
    """

    shells: NDArray[np.int32]
    sizes: NDArray[np.int64]
    values: NDArray[np.float64]
    fees: NDArray[np.float64]
    surpluses: NDArray[np.float64]

    def most_within(self, blocks: ArrayLike) -> NDArray[np.float64]:
        """Return what no pit of so many blocks, or fewer, can be worth more than."""
        counts = np.asarray(blocks, np.float64)
        bound = np.full(counts.shape, np.inf)
        for fee, surplus in zip(self.fees, self.surpluses, strict=True):
            np.minimum(bound, surplus + fee * counts, out=bound)
        return bound


def nested_pits(
    values: ArrayLike,
    pit: ArrayLike | None = None,
    *,
    start: ArrayLike | None = None,
    size_m: tuple[float, float, float] = BLOCK_SIZE_M,
    shells: int = SHELLS,
) -> NestedPits:
    """Return the best pits of all sizes, as finely as `shells` of about the same size allow.

    Args:
        values: [nx, ny, nz], what each block is worth if mined today.
        pit: bool [nx, ny, nz], the ultimate pit, if it is known already.
        start: int [nx, ny], the depth at which each column begins: the blocks above are air and dug by nobody.
        size_m: the edges of a block, for the slopes.
    """
    worth = np.asarray(values, np.float64)
    outer = ultimate_pit(worth, size_m) if pit is None else np.array(pit, np.bool_)
    nx, ny, nz = worth.shape
    over = slopes((nx, ny, nz), size_m)
    if start is not None:
        outer &= np.arange(worth.shape[2]) >= np.asarray(start)[:, :, None]
    total = float(worth[outer].sum())
    fees, surpluses = [0.0], [max(total, 0.0)]
    smallest = max(int(outer.sum()) // shells, 1)
    corners = [outer] if outer.any() else []
    between = [(np.zeros_like(outer), outer)]
    while between:
        inner, outside = between.pop()
        region = outside & ~inner
        count = int(region.sum())
        if count == 0 or (count <= smallest and inner.any()):
            continue
        fee = float(worth[region].sum()) / count
        if fee <= 0:  # given a pit that is not the best one, there may be a shell that loses
            continue
        found = solve_closure(worth[region] - fee, precedence_among(region, over))
        fees.append(fee)
        surpluses.append(float(worth[inner].sum()) - fee * int(inner.sum()) + found.bound)
        added = int(found.inside.sum())
        if 0 < added < count and found.value > 0:
            corner = inner.copy()
            corner[region] = found.inside
            corners.append(corner)
            between += [(inner, corner), (corner, outside)]
    corners.sort(key=np.count_nonzero)
    layers = np.zeros(worth.shape, np.int32)
    for number, corner in reversed(list(enumerate(corners, start=1))):
        layers[corner] = number
    return NestedPits(
        layers,
        np.array([np.count_nonzero(corner) for corner in corners], np.int64),
        np.array([worth[corner].sum() for corner in corners]),
        np.array(fees),
        np.array(surpluses),
    )


def npv_bound(pits: NestedPits, discount_factors: ArrayLike) -> float:
    """Return what the NPV of no schedule can exceed, if the k-th block dug brings its value times the k-th factor.

    Holds for pits found in the whole deposit or its ultimate pit.

    Raises:
        BadInput: factors that grow or are negative: later money is worth no more.
    """
    factors = np.asarray(discount_factors, np.float64)
    if factors.ndim != 1 or not np.isfinite(factors).all() or (np.diff(factors, append=0.0) > 0).any():
        raise BadInput("discount factors must be finite, never negative and never grow from one block to the next")
    curve = pits.most_within(np.arange(1, len(factors) + 1))
    return float((curve * -np.diff(factors, append=0.0)).sum())  # the sum of value × factor, summed by parts
