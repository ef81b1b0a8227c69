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
from legroom_workloads.mine.blocks import BLOCK_SIZE_M
from legroom_workloads.mine.nested import nested_pits
from legroom_workloads.mine.precedence import FAR_DOWN, Columns, Slopes, close_upwards, slopes

CONE_ROUNDS = 150  # how often cones are ranked anew at most; between two rankings the best few are dug

Order = NDArray[np.int64]
Depths = NDArray[np.int64]


def best_greedy(
    values: ArrayLike,
    pit: ArrayLike,
    discount_factors: ArrayLike,
    *,
    start: ArrayLike | None = None,
    size_m: tuple[float, float, float] = BLOCK_SIZE_M,
) -> tuple[float, Order, str]:
    """Return the largest NPV of all schedules here, its order of columns, and its name; 0 and no column if all lose.

    Args:
        values: [nx, ny, nz], what each block is worth if mined today.
        pit: bool [nx, ny, nz], the ultimate pit.
        discount_factors: [k], what a dollar of the k-th block dug is worth today; nothing is dug after the last.
        start: int [nx, ny], the depth at which each column begins: the blocks above are air and need no digging.
        size_m: the edges of a block, for the slopes.

    Raises:
        BadInput: shapes that do not match, or a pit that cannot be dug.
    """
    ground = Ground.of(values, pit, start, size_m)
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
    size_m: tuple[float, float, float]

    @classmethod
    def of(
        cls,
        values: ArrayLike,
        pit: ArrayLike,
        start: ArrayLike | None = None,
        size_m: tuple[float, float, float] = BLOCK_SIZE_M,
    ) -> Ground:
        """Return the ground of a pit.

        Raises:
            BadInput: shapes that do not match, or a pit that cannot be dug.
        """
        worth, inside = np.asarray(values, np.float64), np.asarray(pit, np.bool_)
        if worth.ndim != 3 or inside.shape != worth.shape or not np.isfinite(worth).all():
            raise BadInput(
                f"values {worth.shape} and pit {inside.shape}", hint="two arrays [nx, ny, nz], values finite"
            )
        floor = inside.sum(axis=2)
        top = np.zeros_like(floor) if start is None else np.asarray(start, np.int64)
        ground = cls(worth, top, np.maximum(floor, top), size_m)
        prefix = inside == (np.arange(worth.shape[2]) < floor[:, :, None])
        if not prefix.all() or (np.maximum(close_upwards(floor, ground.over), top) > ground.floor).any():
            raise BadInput("the pit cannot be dug", hint="all that lies within 45° over its blocks must belong to it")
        return ground

    @property
    def over(self) -> Slopes:
        """Which blocks over a block must be gone before it."""
        nx, ny, nz = self.values.shape
        return slopes((nx, ny, nz), self.size_m)

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
    pits = nested_pits(ground.values, ground.inside, size_m=ground.size_m)
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
        nx, ny, self._nz = ground.values.shape
        rx, ry, _ = np.abs(ground.over).max(axis=0)
        self._padded = np.full((nx + 2 * rx, ny + 2 * ry), FAR_DOWN, np.int64)  # so no cone leaves the array
        self.depths = self._padded[rx : rx + nx, ry : ry + ny]
        self.depths[...] = ground.start
        self._numbers = np.full(self._padded.shape, -1)
        self._numbers[rx : rx + nx, ry : ry + ny] = np.arange(nx * ny).reshape(nx, ny)
        self._inside = np.flatnonzero(self._numbers.ravel() >= 0)
        over = ground.over
        offsets = over[:, 0] * self._padded.shape[1] + over[:, 1]
        self._over = [(int(up), offsets[over[:, 2] == up]) for up in np.unique(over[:, 2])]
        self.order: list[int] = []

    def dig_for(self, targets: NDArray[np.int64]) -> Order:
        """Dig the targets (flat block numbers) one by one, each with what still lies over it; return all dug so far."""
        for target in targets.tolist():
            self.dig(target // self._nz, target % self._nz)
        return np.array(self.order, np.int64)

    def dig(self, column: int, z: int) -> None:
        """Dig one block and what still lies over it, top bench first, on each bench what pays most first."""
        depths, numbers = self._padded.reshape(-1), self._numbers.reshape(-1)
        asked: dict[int, list[NDArray[np.int64]]] = {z: [self._inside[[column]]]}
        benches = []
        while asked:  # what was dug before lies under nothing: only what is dug now asks for more
            bench = max(asked)
            places = np.unique(np.concatenate(asked.pop(bench)))
            places = places[depths[places] <= bench]
            if len(places) == 0:
                continue
            for up, offsets in self._over:
                if up <= bench:
                    asked.setdefault(bench - up, []).append((places[:, None] + offsets).ravel())
            columns = numbers[places]
            if len(columns) > 1:
                best_first = np.argsort(-self.ground.values.reshape(-1)[columns * self._nz + bench], kind="stable")
                places, columns = places[best_first], columns[best_first]
            benches.append((bench, places, columns))
        for bench, places, columns in reversed(benches):
            depths[places] = bench + 1
            self.order.extend(columns.tolist())


def _exposed(ground: Ground) -> Order:
    """Return the order that always digs the most valuable block that may be dug."""
    nx, ny, nz = ground.values.shape
    pit = Columns(ground.start.astype(np.int32), ground.floor.astype(np.int32), ground.over)
    values = ground.values.reshape(-1)
    waiting: list[tuple[float, int, int]] = []
    listed = np.zeros(nx * ny, np.bool_)

    def expose(columns: NDArray[np.int64]) -> None:
        listed[columns] = True
        for block in (columns * nz + pit.depths[columns // ny, columns % ny]).tolist():
            heapq.heappush(waiting, (-float(values[block]), block % nz, block // nz))

    expose(np.flatnonzero(pit.mask()))
    order = []
    while waiting:
        column = heapq.heappop(waiting)[2]
        pit.dig(column // ny, column % ny)
        listed[column] = False
        order.append(column)
        free = pit.around(column // ny, column % ny)
        expose(free[~listed[free]])
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

    A cone is a disc on each bench over its tip, made of rectangles, and the sum over a rectangle is four numbers of
    the bench's running totals along x and y.
    """
    nx, ny, nz = ground.values.shape
    z = np.arange(nz)
    unmined = z >= depths[:, :, None]
    totals = np.zeros((2, nx + 1, ny + 1, nz))
    totals[0, 1:, 1:] = np.where(unmined, ground.values, 0.0).cumsum(axis=0).cumsum(axis=1)
    totals[1, 1:, 1:] = unmined.cumsum(axis=0).cumsum(axis=1)
    x, y, tip = targets // (ny * nz), targets // nz % ny, targets % nz
    sums = np.zeros((2, len(targets)))
    for up in range(int(tip.max()) + 1):
        at = np.flatnonzero(tip >= up)
        bench = tip[at] - up
        for inner, outer, half in _rectangles(up, ground.size_m, (nx, ny)):
            low_y, high_y = np.maximum(y[at] - half, 0), np.minimum(y[at] + half + 1, ny)
            for low, high in ((inner, outer + 1), (-outer, 1 - inner)) if inner else ((-outer, outer + 1),):
                low_x, high_x = np.clip(x[at] + low, 0, nx), np.clip(x[at] + high, 0, nx)
                sums[:, at] += (
                    totals[:, high_x, high_y, bench]
                    - totals[:, low_x, high_y, bench]
                    - totals[:, high_x, low_y, bench]
                    + totals[:, low_x, low_y, bench]
                )
    return sums[0] / sums[1]


def _rectangles(up: int, size_m: tuple[float, float, float], most: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yield the disc of a cone `up` benches over its tip: from and to which column along x, and how far along y."""
    radius = up * size_m[2] * (1 + 1e-9)
    along_x = np.arange(min(int(radius / size_m[0]) + 1, most[0]))
    halves = np.minimum(np.sqrt(radius**2 - (along_x * size_m[0]) ** 2) / size_m[1], most[1]).astype(int)
    inner = 0
    for last in np.append(np.flatnonzero(np.diff(halves)), len(halves) - 1).tolist():
        yield inner, last, int(halves[last])
        inner = last + 1
