"""The ultimate pit: of all pits that can be dug, the one that is worth most, undiscounted, found by maximum flow.

A pit is a set of blocks that contains, with each block, all that must go before it (a *closed* set). The closed set of
the largest sum is a minimum cut (Picard 1976): the source feeds the blocks that pay, the sink takes what the others
cost, and an arc of unlimited capacity runs from each block to every block over it. What the source can still reach
after a maximum flow is the pit: those blocks pay more than all the waste over them can swallow.

scipy's maximum flow counts in 32-bit integers, money does not. So the flow is found in passes: the first in a unit so
coarse that the whole flow stays under 2³⁰, each next one in the residual network of the one before, in a unit as fine
as what is left to send allows. The flow sent is always feasible, hence `all that pays - flow` is always an upper bound
of every pit's value, and the passes end when the pit found reaches that bound to 1e-9 of all that pays: two passes for
200,000 blocks, and the result is optimal to some cents in billions. Units are powers of two, so values that are whole
numbers are treated exactly. Of pits worth the same the smallest is returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from legroom.extend import BadInput
from legroom_workloads.mine.blocks import BLOCK_SIZE_M
from legroom_workloads.mine.precedence import Slopes, slopes

LARGEST_CAPACITY = 2**30 - 1  # a full arc against a full flow is still a 32-bit number, also inside of scipy
GOOD_ENOUGH = 1e-9  # of the money that moves
MAX_PASSES = 6  # two or three are normal; each gains nine digits over the number of blocks


@dataclass(frozen=True, eq=False)
class Closure:
    """A closed set of blocks of largest value.

    Attributes:
        inside: bool [n].
        value: the sum of the values inside.
        bound: no closed set is worth more; `bound - value` is how exact the result is.
    """

    inside: NDArray[np.bool_]
    value: float
    bound: float


def ultimate_pit(values: ArrayLike, size_m: tuple[float, float, float] = BLOCK_SIZE_M) -> NDArray[np.bool_]:
    """Return which blocks [nx, ny, nz] belong to the pit of largest value under 45° slopes, z = 0 the top bench.

    A block needs those of the blocks over it that exist (`precedence`).

    Raises:
        BadInput: values that are not three-dimensional or not finite.
    """
    values = _finite(values, dimensions=3)
    nx, ny, nz = values.shape
    over = slopes((nx, ny, nz), size_m)
    candidates = _worth_a_look(values, over)
    inside = np.zeros(values.shape, np.bool_)
    inside[candidates] = closure(values[candidates], precedence_among(candidates, over))
    return inside


def closure(values: ArrayLike, precedence: csr_array) -> NDArray[np.bool_]:
    """Return which blocks [n] form the closed set of largest value; row b of `precedence` names what must precede b.

    Raises:
        BadInput: values or a precedence graph of the wrong shape, or values that are not finite.
    """
    return solve_closure(values, precedence).inside


def solve_closure(values: ArrayLike, precedence: csr_array) -> Closure:
    """Return what `closure` returns together with its value and the bound that proves it."""
    values = _finite(values, dimensions=1)
    n = len(values)
    if precedence.shape != (n, n):
        raise BadInput(f"precedence graph {precedence.shape} of {n} blocks", hint=f"it must be {n} x {n}")
    paying, costing = float(values[values > 0].sum()), float(-values[values < 0].sum())
    residual, bound, left = _network(values, precedence), paying, min(paying, costing)
    inside = _reachable(residual, n)[:n]  # all that anyone could want; if nothing of it costs, that is the answer
    for _ in range(MAX_PASSES if left > 0 else 0):
        unit = _unit(left)
        # truncation keeps the flow feasible, and an unlimited arc never fills up, since the whole flow is smaller
        capacities = residual.copy()
        capacities.data = np.minimum(residual.data / unit, LARGEST_CAPACITY).astype(np.int32)
        flow = maximum_flow(capacities, n, n + 1).flow
        inside = _reachable(capacities - flow, n)[:n]
        bound -= unit * float(flow[[n]].sum())
        left = bound - float(values[inside].sum())
        if left <= GOOD_ENOUGH * paying:
            break
        residual = csr_array(residual - unit * flow)
    value = float(values[inside].sum())
    return Closure(inside, value, max(bound, value))


def _network(values: NDArray[np.float64], precedence: csr_array) -> csr_array:
    """Return the capacities [n + 2, n + 2]: source n feeds what pays, sink n + 1 takes what costs."""
    n = len(values)
    arcs = coo_array(precedence)
    paying, costing = np.flatnonzero(values > 0), np.flatnonzero(values < 0)
    tails = np.concatenate([arcs.coords[0], np.full(len(paying), n), costing]).astype(np.int32)
    heads = np.concatenate([arcs.coords[1], paying, np.full(len(costing), n + 1)]).astype(np.int32)
    capacities = np.concatenate([np.full(arcs.nnz, np.inf), values[paying], -values[costing]])
    return csr_array(coo_array((capacities, (tails, heads)), shape=(n + 2, n + 2)))


def _unit(flow: float) -> float:
    """Return the finest power of two in which `flow` is still a 32-bit number."""
    return float(2.0 ** np.ceil(np.log2(flow / (LARGEST_CAPACITY - 1))))


def _reachable(capacities: csr_array, source: int) -> NDArray[np.bool_]:
    """Return which nodes the source reaches over arcs with capacity left."""
    open_arcs = csr_array((capacities.data > 0, capacities.indices, capacities.indptr), shape=capacities.shape)
    open_arcs.eliminate_zeros()
    reached = np.zeros(capacities.shape[0], np.bool_)
    reached[breadth_first_order(open_arcs.astype(np.int8), source, return_predecessors=False)] = True
    return reached


def _worth_a_look(values: NDArray[np.float64], over: Slopes) -> NDArray[np.bool_]:
    """Return which blocks pay or lie over one that does; no smallest pit contains any other."""
    wanted = values > 0
    for z in range(values.shape[2] - 1, 0, -1):
        for x, y, up in over.tolist():
            if up <= z:
                here, there = _shifted(wanted, x, y)
                there[:, :, z - up] |= here[:, :, z]
    return wanted


def _shifted(blocks: NDArray[Any], x: int, y: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the blocks that have a block x, y columns further, and those, as two views of one shape."""
    ranges = [(max(-by, 0), n - max(by, 0), by) for n, by in zip(blocks.shape, (x, y), strict=False)]
    (x0, x1, _), (y0, y1, _) = ranges
    return blocks[x0:x1, y0:y1], blocks[x0 + x : x1 + x, y0 + y : y1 + y]


def precedence_among(blocks: NDArray[np.bool_], over: Slopes) -> csr_array:
    """Return the 45° precedence graph of the blocks marked, numbered in the order of the array."""
    n = int(blocks.sum())
    numbers = np.full(blocks.shape, -1, np.int32)
    numbers[blocks] = np.arange(n, dtype=np.int32)
    tails, heads = [], []
    for x, y, up in over.tolist():
        here, there = _shifted(numbers, x, y)
        below, above = here[:, :, up:], there[:, :, : here.shape[2] - up]
        both = (below >= 0) & (above >= 0)
        tails.append(below[both])
        heads.append(above[both])
    ends = np.concatenate(tails), np.concatenate(heads)
    return csr_array(coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(n, n)))


def grid_precedence(shape: tuple[int, int, int], size_m: tuple[float, float, float] = BLOCK_SIZE_M) -> csr_array:
    """Return the 45° precedence graph [n, n] of a whole grid, blocks numbered (x * ny + y) * nz + z."""
    return precedence_among(np.ones(shape, np.bool_), slopes(shape, size_m))


def _finite(values: ArrayLike, *, dimensions: int) -> NDArray[np.float64]:
    """Return the values as float64, or refuse them."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions:
        raise BadInput(f"block values of shape {array.shape}", hint=f"{dimensions} dimensions are needed")
    if not np.isfinite(array).all():
        raise BadInput(f"{np.count_nonzero(~np.isfinite(array)):,} block values are not finite")
    return array
