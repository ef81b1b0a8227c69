"""How far it still is: the length of the way to switch and exit from every tile, over the coarse graph.

Straight lines lead into walls. The route says for each tile how long the way is, in tiles, and which tile comes next;
vector observations contain both, and `progress_reward` pays for the part of the way that is done. Computed on first use
and kept for the level that is being played.
"""

from __future__ import annotations

import heapq
from math import hypot, inf

from legroom_workloads.ninja.level import Level
from legroom_workloads.ninja.solving import cell_of, reverse_moves
from legroom_workloads.ninja.tiles import WORLD_COLUMNS, WORLD_ROWS

_AROUND = tuple(row * WORLD_COLUMNS + column for row in (-1, 0, 1) for column in (-1, 0, 1) if row or column)


class Way:
    """The way to one tile from every other: its `length` in tiles, infinite if there is none, and the `next` tile."""

    __slots__ = ("length", "next")

    def __init__(self, backwards: dict[int, list[int]], goal: int) -> None:
        self.length = [inf] * (WORLD_COLUMNS * WORLD_ROWS)
        self.next = list(range(WORLD_COLUMNS * WORLD_ROWS))
        self.length[goal] = 0.0
        queue = [(0.0, goal)]
        while queue:
            length, cell = heapq.heappop(queue)
            if length > self.length[cell]:
                continue
            for before in backwards.get(cell, ()):
                longer = length + _distance(before, cell)
                if longer < self.length[before]:
                    self.length[before], self.next[before] = longer, cell
                    heapq.heappush(queue, (longer, before))
        self._fill()

    def _fill(self) -> None:
        """Give tiles in whose middle the ninja does not fit, such as slopes, the way of their best neighbour."""
        known = [(cell, length) for cell, length in enumerate(self.length) if length < inf]
        reached = {cell for cell, _ in known}
        for cell, length in known:
            for offset in _AROUND:  # within the world, since no known tile is in its border
                other = cell + offset
                if other not in reached:
                    longer = length + _distance(cell, other)
                    if longer < self.length[other]:
                        self.length[other], self.next[other] = longer, cell


class Route:
    """The ways of one level to its switch and to its exit."""

    __slots__ = ("level", "to_exit", "to_switch", "whole")

    def __init__(self, level: Level) -> None:
        backwards = reverse_moves(level)
        self.level = level
        self.to_switch, self.to_exit = (Way(backwards, cell_of(place)) for place in (level.switch, level.exit))
        # From start to exit; finite also where the graph knows no way, for it divides.
        whole = self.to_switch.length[cell_of(level.start)] + self.to_exit.length[cell_of(level.switch)]
        self.whole = whole if 0.0 < whole < inf else float(WORLD_COLUMNS)

    def left(self, cell: int, switch_on: bool) -> float:
        """Return the share of the level's way that is left from a tile, at most 2."""
        if switch_on:
            left = self.to_exit.length[cell]
        else:
            left = self.to_switch.length[cell] + self.to_exit.length[cell_of(self.level.switch)]
        return min(left / self.whole, 2.0)


def _distance(a: int, b: int) -> float:
    return hypot(a % WORLD_COLUMNS - b % WORLD_COLUMNS, a // WORLD_COLUMNS - b // WORLD_COLUMNS)
