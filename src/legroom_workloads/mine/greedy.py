"""Schedules that need no learning: what an agent's NPV is measured against.

Every schedule here digs inside the ultimate pit and decides by a simple rule what to go for next. The rules name
*targets*, blocks that pay; what lies over a target is dug when, and only when, a target needs it, since money that is
spent later costs less, too. A schedule stops where going on would lose money.

- `exposed`: always the most valuable block that lies open; it never pays for waste before it has to.
- `benches`: bench by bench from the top, as the simplest plans do.
- `cones`: the block with the waste over it that brings most per block dug, then again.
- `shells`: one nested pit after another (see `nested`), bench by bench in each: how mines are planned.
- `shell cones`: the same, and in each shell the best cones first.

A schedule is the order of columns to dig, x * ny + y, since a column can only be dug from the top; the environment can
replay it as its actions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from legroom.extend import BadInput
from legroom_workloads.mine.nested import nested_pits

CONE_ROUNDS = 150  # how often cones are ranked anew at most; between two rankings the best few are dug

Order = NDArray[np.int64]
Depths = NDArray[np.int64]


def best_greedy(
    values: ArrayLike, pit: ArrayLike, discount_factors: ArrayLike, *, start: ArrayLike | None = None
) -> tuple[float, Order, str]:
    """Return the largest NPV of all schedules here, its order of columns, and its name; 0 and no column if all lose.

    Args:
        values: [nx, ny, nz], what each block is worth if mined today.
        pit: bool [nx, ny, nz], the ultimate pit.
        discount_factors: [k], what a dollar of the k-th block dug is worth today; nothing is dug after the last.
        start: int [nx, ny], the depth at which each column begins: the blocks above are air and need no digging.

    Raises:
        BadInput: shapes that do not match, or a pit that cannot be dug.
    """
    ground = Ground.of(values, pit, start)
    factors = np.asarray(discount_factors, np.float64)
    best: tuple[float, Order, str] = 0.0, np.empty(0, np.int64), "nothing"
    for name, order in schedules(ground):
        npvs = running_npv(ground, order, factors)
        if len(npvs) and npvs.max() > best[0]:
            best = float(npvs.max()), order[: int(npvs.argmax()) + 1], name
    return best


@dataclass(frozen=True, eq=False)
class Ground:
    """What is to be scheduled: values [nx, ny, nz], and per column the depth to begin at and the depth of the pit."""

    values: NDArray[np.float64]
    start: Depths
    floor: Depths

    @classmethod
    def of(cls, values: ArrayLike, pit: ArrayLike, start: ArrayLike | None = None) -> Ground:
        """Return the ground of a pit.

        Raises:
            BadInput: shapes that do not match, or a pit that cannot be dug.
        """
        worth, inside = np.asarray(values, np.float64), np.asarray(pit, np.bool_)
        if worth.ndim != 3 or inside.shape != worth.shape or not np.isfinite(worth).all():
            raise BadInput(
                f"values {worth.shape} and pit {inside.shape}", hint="two arrays [nx, ny, nz], values finite"
            )
        nz = worth.shape[2]
        floor = inside.sum(axis=2)
        top = np.zeros_like(floor) if start is None else np.asarray(start, np.int64)
        around = np.pad(np.maximum(floor, top), 1, mode="edge")
        nx, ny = floor.shape
        shallowest = np.min([around[dx : dx + nx, dy : dy + ny] for dx in range(3) for dy in range(3)], axis=0)
        prefix = inside == (np.arange(nz) < floor[:, :, None])
        if not prefix.all() or (shallowest < floor - 1).any():
            raise BadInput("the pit cannot be dug", hint="over each of its blocks the nine above must belong to it")
        return cls(worth, top, np.maximum(floor, top))

    @property
    def inside(self) -> NDArray[np.bool_]:
        """The blocks to dig, [nx, ny, nz]."""
        z = np.arange(self.values.shape[2])
        return (z >= self.start[:, :, None]) & (z < self.floor[:, :, None])


def schedules(ground: Ground) -> Iterator[tuple[str, Order]]:
    """Yield every schedule with its name; each digs all that any paying block of the pit needs."""
    yield "exposed", _exposed(ground)
    paying = np.flatnonzero((ground.inside & (ground.values > 0)).ravel())
    bench, value = paying % ground.values.shape[2], ground.values.ravel()[paying]
    yield "benches", _Digging(ground).dig_for(paying[np.lexsort((-value, bench))])
    yield "cones", _cones(ground, [paying])
    pits = nested_pits(ground.values, ground.inside)
    shell = pits.shells.ravel()[paying]
    yield "shells", _Digging(ground).dig_for(paying[np.lexsort((-value, bench, shell))])
    yield "shell cones", _cones(ground, [paying[shell == number] for number in np.unique(shell)])


def running_npv(ground: Ground, order: Order, discount_factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the NPV after each block of a schedule, as far as there are factors.

    Raises:
        BadInput: the order digs a column deeper than the grid.
    """
    order = np.asarray(order, np.int64)[: len(discount_factors)]
    nz = ground.values.shape[2]
    # the n-th time that a column comes up its n-th block is dug: count the times among equals, in order
    by_column = np.argsort(order, kind="stable")
    first = np.searchsorted(order[by_column], order[by_column])
    depth = np.empty(len(order), np.int64)
    depth[by_column] = np.arange(len(order)) - first
    depth += ground.start.ravel()[order]
    if (depth >= nz).any():
        raise BadInput(f"the schedule digs column {order[np.argmax(depth >= nz)]} deeper than its {nz} blocks")
    return np.cumsum(ground.values.ravel()[order * nz + depth] * discount_factors[: len(order)])


class _Digging:
    """A pit being dug: depths per column, and the order in which columns were dug so far."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.depths = ground.start.copy()
        self.order: list[int] = []

    def dig_for(self, targets: NDArray[np.int64]) -> Order:
        """Dig the targets (flat block numbers) one by one, each with what still lies over it; return all dug so far."""
        _, ny, nz = self.ground.values.shape
        for target in targets.tolist():
            self.dig(target // (ny * nz), target // nz % ny, target % nz)
        return np.array(self.order, np.int64)

    def dig(self, x: int, y: int, z: int) -> None:
        """Dig one block and the cone over it, top bench first, on each bench what pays most first."""
        ny = self.ground.values.shape[1]
        benches = []
        for bench in range(z, -1, -1):
            reach = z - bench
            low_x, low_y = max(x - reach, 0), max(y - reach, 0)
            window = slice(low_x, x + reach + 1), slice(low_y, y + reach + 1)
            xs, ys = np.nonzero(self.depths[window] <= bench)
            if len(xs) == 0:  # then nothing lies over this bench either, or it could not be dug out
                break
            xs, ys = xs + low_x, ys + low_y
            if len(xs) > 1:
                best_first = np.argsort(-self.ground.values[xs, ys, bench], kind="stable")
                xs, ys = xs[best_first], ys[best_first]
            benches.append((bench, xs, ys))
        for bench, xs, ys in reversed(benches):
            self.depths[xs, ys] = bench + 1
            self.order.extend((xs * ny + ys).tolist())


def _exposed(ground: Ground) -> Order:
    """Return the order that always digs the most valuable block that may be dug."""
    nx, ny, _ = ground.values.shape
    depths, floor = ground.start.tolist(), ground.floor.tolist()
    values = ground.values
    around = [[[(i, j) for i in (x - 1, x, x + 1) for j in (y - 1, y, y + 1) if 0 <= i < nx and 0 <= j < ny]
               for y in range(ny)] for x in range(nx)]  # fmt: skip
    waiting: list[tuple[float, int, int, int]] = []

    def expose(x: int, y: int) -> None:
        depth = depths[x][y]
        if depth < floor[x][y] and all(depths[i][j] >= depth for i, j in around[x][y]):
            heapq.heappush(waiting, (-float(values[x, y, depth]), depth, x, y))

    for x in range(nx):
        for y in range(ny):
            expose(x, y)
    order = []
    while waiting:
        _, depth, x, y = heapq.heappop(waiting)
        depths[x][y] = depth + 1
        order.append(x * ny + y)
        for i, j in around[x][y]:
            # a neighbour as deep as this block was has been waiting for it, unless another still stands in its way
            if depths[i][j] == depth + 1:
                expose(i, j)
    return np.array(order, np.int64)


def _cones(ground: Ground, phases: list[NDArray[np.int64]]) -> Order:
    """Return the order that, in each phase, digs the target whose cone brings most per block, again and again."""
    digging = _Digging(ground)
    total = sum(len(targets) for targets in phases)
    for targets in phases:
        left = targets
        while len(left):
            means = _cone_means(ground, digging.depths, left)
            few = max(total // CONE_ROUNDS, 1)
            best = left[np.argsort(-means, kind="stable")[:few]]
            digging.dig_for(best)
            left = left[digging.depths.ravel()[left // ground.values.shape[2]] <= left % ground.values.shape[2]]
    return np.array(digging.order, np.int64)


def _cone_means(ground: Ground, depths: Depths, targets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return for each target the mean value of what must be dug for it, itself included.

    A cone is a square window on each bench over its tip, and the sum over a window is four numbers of the bench's
    running totals along x and y.
    """
    nx, ny, nz = ground.values.shape
    z = np.arange(nz)
    unmined = z >= depths[:, :, None]
    totals = np.zeros((2, nx + 1, ny + 1, nz))
    totals[0, 1:, 1:] = np.where(unmined, ground.values, 0.0).cumsum(axis=0).cumsum(axis=1)
    totals[1, 1:, 1:] = unmined.cumsum(axis=0).cumsum(axis=1)
    x, y, tip = targets // (ny * nz), targets // nz % ny, targets % nz
    sums = np.zeros((2, len(targets)))
    for reach in range(int(tip.max()) + 1):
        at = np.flatnonzero(tip >= reach)
        bench = tip[at] - reach
        low_x, high_x = np.maximum(x[at] - reach, 0), np.minimum(x[at] + reach + 1, nx)
        low_y, high_y = np.maximum(y[at] - reach, 0), np.minimum(y[at] + reach + 1, ny)
        sums[:, at] += (
            totals[:, high_x, high_y, bench]
            - totals[:, low_x, high_y, bench]
            - totals[:, high_x, low_y, bench]
            + totals[:, low_x, low_y, bench]
        )
    return sums[0] / sums[1]
