"""How far the ninja is from where it has to go, over the coarse graph of `solving.py`: eight features.

Distances to the next goal (the switch, or the door once it is open) are worked out for a whole level at once, backwards
from the goal, when somebody first asks; a step then looks its tile up. What was worked out is kept for a few levels
only, the least recently used forgotten first: a curriculum goes through thousands of levels, and a cache without a
bound is a leak that no test of an hour finds.

The fields of a level are small (11 KB for its two goals). The graph that they come from is not: working it out leaves
0.6 MB behind in the Python heap. So levels that other processes play too are worked out once for all (`share`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom.extend import share as share_arrays
from legroom_workloads.ninja.level import Level
from legroom_workloads.ninja.solving import cell_of, coarse_graph
from legroom_workloads.ninja.tiles import COLUMNS, HEIGHT, ROWS, TILE, WIDTH, WORLD_COLUMNS, WORLD_ROWS

FEATURES = (
    "moves_to_goal",  # on the graph, 1 for 100 and more, and where there is no way
    "way_known",  # 1 if the graph has a way from here to the goal
    "next_x",  # direction of the next tile on that way, -1 .. 1: unit vector, 0 where there is none
    "next_y",
    "goal_x",  # straight to the goal, in widths and heights of the world
    "goal_y",
    "moves_from_start",  # as moves_to_goal, of a shortest way from the start to here
    "reachable_share",  # how much of the playfield the graph reaches from the start
)
MANY_MOVES = 100
_UNREACHED = -1
GRAPH = 1  # part of the key of shared fields: those of another graph are other content


@dataclass(frozen=True, eq=False)
class Field:
    """What is known of a level with one goal, per tile of the world [25 * 44]; -1 where there is nothing to know.

    `to_goal`, `from_start`: int16 moves. `next_tile`: int16, the tile that is next on the way to the goal.
    """

    to_goal: NDArray[np.int16]
    next_tile: NDArray[np.int16]
    from_start: NDArray[np.int16]
    reachable_share: float

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return self.to_goal.nbytes + self.next_tile.nbytes + self.from_start.nbytes


class Reachability:
    """Features of games, with the fields of at most `max_levels` levels kept for later.

    Raises:
        BadInput: `max_levels` below one.
    """

    def __init__(self, max_levels: int = 8) -> None:
        if max_levels < 1:
            raise BadInput(f"max_levels {max_levels}", hint="at least 1: the level that is being played")
        self._max_levels = max_levels
        self._fields: OrderedDict[str, tuple[Field, Field]] = OrderedDict()  # by the level's key; switch off, on

    def __len__(self) -> int:
        return len(self._fields)

    @property
    def nbytes(self) -> int:
        """Memory of all fields that are kept."""
        return sum(off.nbytes + on.nbytes for off, on in self._fields.values())

    def features(self, game: Any, *, share: bool = False) -> NDArray[np.float32]:
        """Return float32 [8], in the order of `FEATURES`, the caller's own; `share` as in `field`."""
        field = self.field(game.level, bool(game.switch_on), share=share)
        goal_x, goal_y = game.level.exit if game.switch_on else game.level.switch
        column = min(max(int(game.x // TILE), 0), WORLD_COLUMNS - 1)
        row = min(max(int(game.y // TILE), 0), WORLD_ROWS - 1)
        tile = _tile_on_graph(field, row, column)
        moves, following = int(field.to_goal[tile]), int(field.next_tile[tile])
        next_x = next_y = 0.0
        if following != _UNREACHED:
            next_row, next_column = divmod(following, WORLD_COLUMNS)
            next_x, next_y = (next_column + 0.5) * TILE - game.x, (next_row + 0.5) * TILE - game.y
        elif moves == 0:  # in the tile of the goal
            next_x, next_y = goal_x - game.x, goal_y - game.y
        length = max((next_x**2 + next_y**2) ** 0.5, 1e-6)
        return np.array(
            (
                _share_of_many(moves),
                moves != _UNREACHED,
                next_x / length,
                next_y / length,
                (goal_x - game.x) / WIDTH,
                (goal_y - game.y) / HEIGHT,
                _share_of_many(int(field.from_start[tile])),
                field.reachable_share,
            ),
            np.float32,
        )

    def field(self, level: Level, switch_on: bool, *, share: bool = False) -> Field:
        """Return the field of a level with this goal, worked out if it is not among those kept.

        Args:
            share: work it out once for all processes of the run, which keep it until it ends.
        """
        fields = self._fields.get(level.key)
        if fields is None:
            fields = self._fields[level.key] = shared_fields(level) if share else work_out(level)
            while len(self._fields) > self._max_levels:
                self._fields.popitem(last=False)
        else:
            self._fields.move_to_end(level.key)
        return fields[switch_on]


def shared_fields(level: Level) -> tuple[Field, Field]:
    """Return what `work_out` does, the same memory in all processes of a run."""

    def build() -> dict[str, NDArray[Any]]:
        off, on = work_out(level)
        ways = (off.to_goal, off.next_tile, on.to_goal, on.next_tile, off.from_start)
        return {"ways": np.array(ways), "reachable_share": np.array([off.reachable_share])}

    arrays = share_arrays(f"ninja/reachability/{GRAPH}/{level.key}", build)
    to_switch, next_to_switch, to_door, next_to_door, from_start = arrays["ways"]
    share = float(arrays["reachable_share"][0])
    return Field(to_switch, next_to_switch, from_start, share), Field(to_door, next_to_door, from_start, share)


def work_out(level: Level) -> tuple[Field, Field]:
    """Return the fields of a level with the switch as the goal, and with the door; the graph is most of the work."""
    nodes, edges = coarse_graph(level)
    tiles = nodes[:, 1].astype(np.intp) * WORLD_COLUMNS + nodes[:, 0]
    forwards: dict[int, list[int]] = {tile: [] for tile in tiles.tolist()}
    backwards: dict[int, list[int]] = {tile: [] for tile in tiles.tolist()}
    for start, end in tiles[edges].tolist():
        forwards[start].append(end)
        backwards[end].append(start)
    from_start, _ = _spread(forwards, cell_of(level.start))
    share = float((from_start != _UNREACHED).sum()) / (COLUMNS * ROWS)
    to_switch, to_door = (_spread(backwards, cell_of(goal)) for goal in (level.switch, level.exit))
    return Field(*to_switch, from_start, share), Field(*to_door, from_start, share)


def _spread(neighbours: dict[int, list[int]], origin: int) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Return how many moves each tile is from the origin, breadth first, and from which tile it was reached."""
    moves = np.full(WORLD_ROWS * WORLD_COLUMNS, _UNREACHED, np.int16)
    came_from = moves.copy()
    if origin not in neighbours:
        return moves, came_from
    moves[origin] = 0
    queue = deque([origin])
    while queue:
        tile = queue.popleft()
        for reached in neighbours[tile]:
            if moves[reached] == _UNREACHED:
                moves[reached] = moves[tile] + 1
                came_from[reached] = tile
                queue.append(reached)
    return moves, came_from


def _tile_on_graph(field: Field, row: int, column: int) -> int:
    """Return the ninja's tile, or one beside it with a way to the goal: it often stands between two, over a corner."""
    tile = row * WORLD_COLUMNS + column
    if field.to_goal[tile] != _UNREACHED:
        return tile
    for down, right in ((-1, 0), (0, -1), (0, 1), (1, 0)):
        beside_row, beside_column = row + down, column + right
        if 0 <= beside_row < WORLD_ROWS and 0 <= beside_column < WORLD_COLUMNS:
            beside = beside_row * WORLD_COLUMNS + beside_column
            if field.to_goal[beside] != _UNREACHED:
                return beside
    return tile


def _share_of_many(moves: int) -> float:
    return 1.0 if moves == _UNREACHED else min(moves / MANY_MOVES, 1.0)
