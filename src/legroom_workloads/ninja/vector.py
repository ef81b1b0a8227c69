"""The observation as one vector, for small networks: `game_state`, the route, and the tiles around the ninja.

    0-29    game_state
    30-31   where in its tile the ninja is, -1 to 1
    32      length of the way to the goal, in 20 tiles, at most 1
    33-38   offsets to the next three tiles of the way, dx and dy in 4 tiles each, clipped to -1 to 1
    39-101  the 9x7 tiles around the ninja, row by row: the solid share of each; -1 where a live mine is

The route is the coarse graph's, so a policy need not learn to find ways, but it has to learn to go them: the graph says
that a jump is possible, not when to press and how long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.ninja.game import Game
from legroom_workloads.ninja.game_state import LENGTH as STATE_LENGTH
from legroom_workloads.ninja.game_state import write_game_state
from legroom_workloads.ninja.route import Route
from legroom_workloads.ninja.tiles import SHAPES, TILE, WORLD_COLUMNS, WORLD_ROWS, solid_mask

AHEAD = 3
WINDOW_COLUMNS, WINDOW_ROWS = 9, 7
ROUTE_START = STATE_LENGTH + 2
WINDOW_START = ROUTE_START + 1 + 2 * AHEAD
LENGTH = WINDOW_START + WINDOW_COLUMNS * WINDOW_ROWS
_SOLID = np.array([solid_mask(shape).mean() for shape in range(len(SHAPES))], np.float32)
_PAD_COLUMNS, _PAD_ROWS = WINDOW_COLUMNS // 2, WINDOW_ROWS // 2


class Vector:
    """Writes the vector of a game; keeps the solid shares of the level that is played."""

    __slots__ = ("_changes", "_level", "_window")

    def __init__(self) -> None:
        self._level: Any = None
        self._changes = -1

    def write(self, game: Game, route: Route, max_frames: int, out: NDArray[Any]) -> None:
        """Write the vector into `out` [102]."""
        if self._level is not game.level or self._changes != game.changes:
            self._window = _window(game)
            self._level, self._changes = game.level, game.changes
        write_game_state(game, max_frames, out[:STATE_LENGTH])
        column, row = int(game.x // TILE), int(game.y // TILE)
        x, y = game.x / TILE - 0.5, game.y / TILE - 0.5  # in tiles, whole in the middle of one
        way = route.to_exit if game.switch_on else route.to_switch
        cell = row * WORLD_COLUMNS + column
        numbers = [2.0 * (x - column), 2.0 * (y - row), min(way.length[cell] / 20.0, 1.0)]
        for _ in range(AHEAD):
            cell = way.next[cell]
            dx, dy = (cell % WORLD_COLUMNS - x) / 4.0, (cell // WORLD_COLUMNS - y) / 4.0
            numbers.append(-1.0 if dx < -1.0 else 1.0 if dx > 1.0 else dx)
            numbers.append(-1.0 if dy < -1.0 else 1.0 if dy > 1.0 else dy)
        out[STATE_LENGTH:WINDOW_START] = numbers
        view = out[WINDOW_START:].reshape(WINDOW_ROWS, WINDOW_COLUMNS)
        view[...] = self._window[row : row + WINDOW_ROWS, column : column + WINDOW_COLUMNS]


def _window(game: Game) -> NDArray[np.float32]:
    world = np.frombuffer(game.level.world, np.uint8).reshape(WORLD_ROWS, WORLD_COLUMNS)
    solid = _SOLID[world]
    for x, y in game.mines.tolist():
        solid[int(y // TILE), int(x // TILE)] = -1.0
    return np.pad(solid, ((_PAD_ROWS, _PAD_ROWS), (_PAD_COLUMNS, _PAD_COLUMNS)), constant_values=1.0)
