"""Mines as an observation, in three sizes: all 128 of them, the 16 closest, or only counts.

- `full`, 769 numbers: how many mines live, as a share of 128, then 128 rows of 6: x, y, offset dx, dy and distance in
  shares of the world, and 1 for "live". Rows are the live mines, in the level's order, without gaps; the rest are 0.
- `compact`, 49 numbers: the same share, then the 16 closest live mines, the closest first, as dx, dy, distance.
- `counts`, 4 numbers: shares of 128 mines that live and that were defused, share of the gold that is left, the switch.

All from the game's compact array of live mines: no mine that is gone costs anything but the zeros of its row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.ninja.game import Game
from legroom_workloads.ninja.level import MOST_MINES
from legroom_workloads.ninja.tiles import HEIGHT, WIDTH

PER_MINE, CLOSEST = 6, 16
LENGTHS = {"full": 1 + MOST_MINES * PER_MINE, "compact": 1 + CLOSEST * 3, "counts": 4}
_WORLD = np.array((WIDTH, HEIGHT), np.float32)


def write_entity_states(game: Game, kind: str, out: NDArray[Any]) -> None:
    """Write the numbers of a kind of `LENGTHS` into `out`."""
    mines = game.mines
    live = len(mines)
    if kind == "counts":
        level = game.level
        defused, gold = (len(level.mines) - live) / MOST_MINES, len(game.gold) / max(len(level.gold), 1)
        out[:] = (live / MOST_MINES, defused, gold, game.switch_on)
        return
    out[0] = live / MOST_MINES
    if live == 0:
        out[1:] = 0.0
        return
    offsets = mines / _WORLD - np.array((game.x / WIDTH, game.y / HEIGHT), np.float32)
    distances = np.sqrt(np.einsum("ij,ij->i", offsets, offsets) / 2)
    if kind == "full":
        rows = out[1:].reshape(MOST_MINES, PER_MINE)
        rows[:live, 0:2] = mines / _WORLD
        rows[:live, 2:4] = offsets
        rows[:live, 4] = distances
        rows[:live, 5] = 1.0
        rows[live:] = 0.0
    else:
        order = np.argsort(distances, kind="stable")[:CLOSEST]
        rows = out[1:].reshape(CLOSEST, 3)
        rows[: len(order), 0:2] = offsets[order]
        rows[: len(order), 2] = distances[order]
        rows[len(order) :] = 0.0
