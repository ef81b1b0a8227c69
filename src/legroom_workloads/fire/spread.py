"""Fire growth over a raster: which cell burns when, from every ignition, by minimum travel time.

Each cell has an ellipse. Its long axis points where wind and slope together push (the vector sum of Rothermel's two
factors on the sloping ground), its head rate is R0·(1 + |sum|), and its length to width follows from the effective
wind, the wind that alone would do the same. The fire stands in the ellipse's rear focus, so the rate at an angle θ off
the head is head·(1 - e)/(1 - e·cos θ).

The front reaches a cell along the quickest of all ways over a graph of 8 or 16 neighbours (the knight's moves make
fronts rounder), which is Dijkstra's algorithm, once per ignition. Half of a way counts at the rate of the cell it
leaves and half at that of the one it enters; a knight's move crosses two more cells and counts a quarter in each.

What does not burn stops it, also where two such cells touch by their corners only: no fire squeezes between them, or a
diagonal fuel break would be none. The graph's shape never changes; a break makes edges infinitely long, so one set of
index arrays serves all simulations of a size. Distances are those of the map, not of the sloping ground.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from legroom.extend import BadInput
from legroom_workloads.fire.rothermel import FT_PER_M, FireBed, along_slope

MPH_PER_M_MIN = 60.0 / 1609.344
MOST_LENGTH_TO_WIDTH = 8.0
DAY_MIN = 24 * 60.0
# Rows go south and columns east.
NEIGHBOURS_8 = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
KNIGHTS = ((-2, 1), (-1, 2), (1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1))
Cells = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ellipses:
    """How fire grows from every cell; arrays [H, W].

    Attributes:
        head_m_min: rate in the direction of maximum spread; 0 where nothing burns.
        direction_rad: of the head, clockwise from north.
        eccentricity: 0 is a circle.
    """

    head_m_min: Cells
    direction_rad: Cells
    eccentricity: Cells

    def rate_m_min(self, azimuth_rad: float) -> Cells:
        """Return the rate of spread towards `azimuth_rad`, clockwise from north."""
        e = self.eccentricity
        return self.head_m_min * (1.0 - e) / (1.0 - e * np.cos(self.direction_rad - azimuth_rad))


def ellipses(
    bed: FireBed, *, wind_m_min: Cells | float, wind_to_rad: Cells | float, slope_rise_run: Cells, upslope_rad: Cells
) -> Ellipses:
    """Return the ellipses of cells under a midflame wind that blows towards `wind_to_rad` (clockwise from north)."""
    rise_downwind = slope_rise_run * np.cos(wind_to_rad - upslope_rad)  # less than nothing where it blows downslope
    on_ground_wind, on_ground_slope = along_slope(rise_downwind), along_slope(slope_rise_run)
    # both factors are vectors on the sloping ground; here are their parts on the map
    wind = bed.wind_factor(wind_m_min * on_ground_wind) / on_ground_wind
    slope = bed.slope_factor(slope_rise_run) / on_ground_slope
    east = wind * np.sin(wind_to_rad) + slope * np.sin(upslope_rad)
    north = wind * np.cos(wind_to_rad) + slope * np.cos(upslope_rad)
    both = np.sqrt(east**2 + north**2 + (wind * rise_downwind + slope * slope_rise_run) ** 2)
    ratio = length_to_width(bed.wind_m_min_of(both))
    head = bed.rate_ft_min * (1.0 + both) / FT_PER_M
    return Ellipses(head, np.arctan2(east, north), np.sqrt(ratio**2 - 1.0) / ratio)


def length_to_width(effective_wind_m_min: Cells) -> Cells:
    """Return an ellipse's length to width by the effective midflame wind, after Anderson (1983): 1 in still air."""
    mph = np.minimum(
        effective_wind_m_min * MPH_PER_M_MIN, 100.0
    )  # e^0.11x overflows long after the ratio has its limit
    ratio = 0.936 * np.exp(0.1147 * mph) + 0.461 * np.exp(-0.0692 * mph) - 0.397
    return np.clip(ratio, 1.0, MOST_LENGTH_TO_WIDTH)


@dataclass(frozen=True, eq=False)
class _Graph:
    """The edges of an H×W raster in the order of a CSR matrix; arrays over edges.

    Attributes:
        through: [E, 2] the cells between, each the edge's own start where there are none.
        corner: [E] of the edges between which two cells meet in a corner (diagonals).
        direction: index of the neighbour in the list of directions.
    """

    pointers: NDArray[np.int32]
    start: NDArray[np.int32]
    end: NDArray[np.int32]
    through: NDArray[np.int32]
    direction: NDArray[np.int8]
    corner: NDArray[np.bool_]
    knight: NDArray[np.bool_]


def _directions(neighbours: int) -> tuple[tuple[int, int], ...]:
    if neighbours not in (8, 16):
        raise BadInput(f"neighbours is {neighbours!r}", hint="8 or 16")
    return NEIGHBOURS_8 if neighbours == 8 else NEIGHBOURS_8 + KNIGHTS


@lru_cache(maxsize=8)
def _graph(height: int, width: int, neighbours: int) -> _Graph:
    cells = np.arange(height * width, dtype=np.int32).reshape(height, width)
    parts = []
    for number, (down, right) in enumerate(_directions(neighbours)):
        rows = slice(max(0, -down), height - max(0, down))
        columns = slice(max(0, -right), width - max(0, right))
        start = cells[rows, columns].ravel()
        along = _between(down, right)
        through = [start + r * width + c for r, c in along] if along else [start, start]
        end = start + down * width + right
        parts.append(np.stack([start, end, *through, np.full_like(start, number)]))
    edges = np.concatenate(parts, axis=1)
    start, end, first, second, direction = edges[:, np.lexsort((edges[1], edges[0]))]
    lengths = [abs(down) + abs(right) for down, right in _directions(neighbours)]
    kind = np.array(lengths)[direction]
    pointers = np.concatenate([[0], np.cumsum(np.bincount(start, minlength=cells.size))]).astype(np.int32)
    through_cells = np.stack([first, second], axis=1)
    return _Graph(pointers, start, end, through_cells, direction.astype(np.int8), kind == 2, kind == 3)


def _between(down: int, right: int) -> list[tuple[int, int]]:
    """Return the two cells that a diagonal passes by, or that a knight's move passes through; none for a straight."""
    if abs(down) + abs(right) == 1:
        return []
    if abs(down) == abs(right):
        return [(down, 0), (0, right)]
    if abs(down) == 2:
        return [(down // 2, 0), (down // 2, right)]
    return [(0, right // 2), (down, right // 2)]


class Landscape:
    """A raster ready to burn: travel times over all its edges, in which breaks can be cut.

    Args:
        growth: the ellipses of its cells.
        cell_m: the edge of a cell.
        neighbours: 8 or 16.

    Raises:
        BadInput: another number of neighbours, or a raster without cells.
    """

    def __init__(self, growth: Ellipses, *, cell_m: float = 30.0, neighbours: int = 8) -> None:
        self.shape: tuple[int, int] = growth.head_m_min.shape
        if min(self.shape) < 1:
            raise BadInput(f"a raster of {self.shape[0]}x{self.shape[1]} cells", hint="at least one")
        self.burnable = growth.head_m_min.ravel() > 0
        self._graph = graph = _graph(*self.shape, neighbours)
        directions = _directions(neighbours)
        with np.errstate(divide="ignore"):
            slowness = np.stack(  # minutes per metre, [directions, cells]; infinite where nothing burns
                [1.0 / growth.rate_m_min(math.atan2(right, -down)).ravel() for down, right in directions]
            )
        metres = cell_m * np.array([math.hypot(*direction) for direction in directions])[graph.direction]
        ends = (slowness[graph.direction, graph.start] + slowness[graph.direction, graph.end]) / 2
        inner = slowness[graph.direction[:, None], graph.through].mean(axis=1)
        minutes = metres * np.where(graph.knight, (ends + inner) / 2, ends)
        minutes[graph.corner & ~self.burnable[graph.through].any(axis=1)] = np.inf
        self._minutes = minutes

    def arrival_min(
        self, ignitions: NDArray[np.integer], *, breaks: NDArray[np.bool_] | None = None, limit_min: float = DAY_MIN
    ) -> Cells:
        """Return when each cell burns, [ignitions, H, W] in minutes, infinite where it does not within the limit.

        Args:
            ignitions: cells by number, row * W + column; one that does not burn starts no fire.
            breaks: [H, W], where fuel has been taken away.
        """
        open_cells, matrix = self._passable(breaks)
        arrivals = np.full((len(ignitions), open_cells.size), np.inf)
        lit = open_cells[ignitions]
        if lit.any():
            different, where = np.unique(ignitions[lit], return_inverse=True)
            arrivals[lit] = dijkstra(matrix, indices=different, limit=limit_min)[where]
        return arrivals.reshape(len(ignitions), *self.shape)

    def _passable(self, breaks: NDArray[np.bool_] | None) -> tuple[NDArray[np.bool_], csr_array]:
        """Return which cells burn, and the minutes from cell to cell, infinite where no fire passes."""
        graph, cells = self._graph, self.burnable.size
        open_cells, minutes = self.burnable, self._minutes
        if breaks is not None and breaks.any():
            open_cells = self.burnable & ~breaks.ravel()
            start, end, beside = (open_cells[index] for index in (graph.start, graph.end, graph.through))
            shut = ~(start & end) | (graph.knight & ~beside.all(axis=1)) | (graph.corner & ~beside.any(axis=1))
            minutes = np.where(shut, np.inf, minutes)
        return open_cells, csr_array((minutes, graph.end, graph.pointers), shape=(cells, cells))

    def burned_beyond(
        self, ignitions: NDArray[np.integer], *, breaks: NDArray[np.bool_] | None = None, limit_min: float = DAY_MIN
    ) -> Cells:
        """Return how many cells the fires reach by way of each cell, itself included, [H, W], summed over ignitions.

        This is betweenness as fires have it: a cell that many of the quickest ways lead through is where a break cuts
        most of them off. It is the heuristic that a trained agent is measured against.
        """
        open_cells, matrix = self._passable(breaks)
        beyond = np.zeros(open_cells.size)
        lit = ignitions[open_cells[ignitions]]
        if len(lit) == 0:
            return beyond.reshape(self.shape)
        arrivals, parents = dijkstra(matrix, indices=lit, limit=limit_min, return_predecessors=True)
        for arrival, parent in zip(arrivals, parents, strict=True):
            reached = np.flatnonzero(np.isfinite(arrival))
            count = np.isfinite(arrival).astype(np.float64).tolist()
            for cell in reached[np.argsort(-arrival[reached], kind="stable")].tolist():  # from the last to the first
                if (source := int(parent[cell])) >= 0:
                    count[source] += count[cell]
            beyond += count
        return beyond.reshape(self.shape)

    def burned(
        self, ignitions: NDArray[np.integer], *, breaks: NDArray[np.bool_] | None = None, limit_min: float = DAY_MIN
    ) -> NDArray[np.bool_]:
        """Return what each ignition burns within the limit, [ignitions, H, W]."""
        return np.isfinite(self.arrival_min(ignitions, breaks=breaks, limit_min=limit_min))
