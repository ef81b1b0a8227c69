"""The 30 numbers of `game_state`: what the ninja knows of itself and of what it is looking for, each from -1 to 1.

Places are shares of the world, offsets are shares of its width and height, speeds are shares of the most that physics
allows, flags are 0 or 1. float16 is enough: its step is 1/2048 near 1, half a pixel of the world's width.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.ninja.game import BUFFER_FRAMES, MAX_JUMP_FRAMES, MAX_SPEED, Game
from legroom_workloads.ninja.tiles import HEIGHT, WIDTH

NAMES = (
    "x", "y", "vx", "vy", "facing", "on_ground", "on_wall", "floor_normal_x", "floor_normal_y",
    "jump_frames_left", "jump_held", "jump_buffered", "ground_buffered", "wall_buffered", "last_wall",
    "switch_on", "time",
    "goal_dx", "goal_dy", "goal_distance", "switch_dx", "switch_dy", "exit_dx", "exit_dy",
    "mine_dx", "mine_dy", "mines_live", "gold_dx", "gold_dy", "gold_left",
)  # fmt: skip
LENGTH = len(NAMES)
assert LENGTH == 30


def write_game_state(game: Game, max_frames: int, out: NDArray[Any]) -> None:
    """Write the numbers into `out` [30]; the goal is the switch, and the exit once the switch is on."""
    x, y, level = game.x, game.y, game.level
    switch_dx, switch_dy = (level.switch[0] - x) / WIDTH, (level.switch[1] - y) / HEIGHT
    exit_dx, exit_dy = (level.exit[0] - x) / WIDTH, (level.exit[1] - y) / HEIGHT
    goal_dx, goal_dy = (exit_dx, exit_dy) if game.switch_on else (switch_dx, switch_dy)
    mine_dx, mine_dy = nearest(game.mines, x, y)
    gold_dx, gold_dy = nearest(game.gold, x, y)
    out[:] = (
        2.0 * x / WIDTH - 1.0,
        2.0 * y / HEIGHT - 1.0,
        game.vx / MAX_SPEED,
        game.vy / MAX_SPEED,
        game.facing,
        game.on_ground,
        game.on_wall,
        game.floor_x if game.on_ground else 0.0,
        game.floor_y if game.on_ground else 0.0,
        game.jump_frames / MAX_JUMP_FRAMES,
        game.jump_was_held,
        game.jump_buffer / BUFFER_FRAMES,
        game.ground_buffer / BUFFER_FRAMES,
        game.wall_buffer / BUFFER_FRAMES,
        game.last_wall if game.wall_buffer else 0,
        game.switch_on,
        min(game.frame / max_frames, 1.0),
        goal_dx,
        goal_dy,
        sqrt((goal_dx * goal_dx + goal_dy * goal_dy) / 2.0),
        switch_dx,
        switch_dy,
        exit_dx,
        exit_dy,
        mine_dx,
        mine_dy,
        len(game.mines) / max(len(level.mines), 1),
        gold_dx,
        gold_dy,
        len(game.gold) / max(len(level.gold), 1),
    )


def nearest(places: NDArray[np.float32], x: float, y: float) -> tuple[float, float]:
    """Return the offset to the closest of some places, in shares of the world; (1, 1), the furthest, where none is."""
    if len(places) == 0:
        return 1.0, 1.0
    away = places - np.array((x, y), np.float32)
    dx, dy = away[np.einsum("ij,ij->i", away, away).argmin()].tolist()
    return dx / WIDTH, dy / HEIGHT
