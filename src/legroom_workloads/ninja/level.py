"""A level: tiles, where the ninja starts, the switch, the exit, mines and gold.

Levels are values: frozen, their arrays read-only, and `key` is a hash of the content. What is derived from a level (the
static layer of its pictures, its graph) is stored under that key, so equal levels share it wherever they came from.
Positions are px in the world of `tiles.py`, border included.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.ninja.tiles import (
    COLUMNS,
    FULL,
    GEOMETRY,
    HEIGHT,
    ROWS,
    SHAPES,
    TILE,
    WIDTH,
    WORLD_COLUMNS,
    WORLD_ROWS,
)

MOST_MINES = 128
MOST_GOLD = 512
TOUCH = 20.0  # px: nothing touches the ninja's centre from further away
Place = tuple[float, float]
Near = dict[int, tuple[tuple[int, float, float], ...]]


@dataclass(frozen=True, eq=False)
class Level:
    """A level; `tiles` uint8 [23, 42] are numbers of `SHAPES`, mines and gold are float32 [n, 2] of x, y.

    Raises:
        BadInput: tiles of another size or number, more mines than 128, something outside of the playfield.
    """

    name: str
    tiles: NDArray[np.uint8]
    start: Place
    switch: Place
    exit: Place
    mines: NDArray[np.float32]
    gold: NDArray[np.float32]

    def __post_init__(self) -> None:
        tiles = np.ascontiguousarray(self.tiles)
        if tiles.shape != (ROWS, COLUMNS):
            raise BadInput(f"level {self.name}: tiles are {tiles.shape}, not {(ROWS, COLUMNS)} rows and columns")
        if tiles.size and not 0 <= int(tiles.min()) <= int(tiles.max()) < len(GEOMETRY):
            row, column = np.argwhere((tiles < 0) | (tiles >= len(GEOMETRY)))[0]
            raise BadInput(
                f"level {self.name}: tile {tiles[row, column]} in row {row}, column {column}",
                hint=f"shapes are numbered 0 to {len(GEOMETRY) - 1}",
            )
        _freeze(self, "tiles", tiles.astype(np.uint8))
        for name in ("start", "switch", "exit"):
            x, y = (float(each) for each in getattr(self, name))
            self._check_inside(name, x, y)
            object.__setattr__(self, name, (x, y))
        for name, most in (("mines", MOST_MINES), ("gold", MOST_GOLD)):
            places = np.array(getattr(self, name), np.float32).reshape(-1, 2)
            if len(places) > most:
                raise BadInput(f"level {self.name}: {len(places)} {name}", hint=f"at most {most}")
            for x, y in places.tolist():
                self._check_inside(name, x, y)
            _freeze(self, name, places)

    def _check_inside(self, what: str, x: float, y: float) -> None:
        if not (TILE <= x <= WIDTH - TILE and TILE <= y <= HEIGHT - TILE):  # also false for NaN
            raise BadInput(
                f"level {self.name}: {what} at {x:g}, {y:g}",
                hint=f"the playfield is {TILE} to {WIDTH - TILE} by {TILE} to {HEIGHT - TILE} px",
            )

    @cached_property
    def key(self) -> str:
        """A hash of the content; the name does not count."""
        digest = hashlib.blake2b(self.tiles.tobytes(), digest_size=16)
        places = (self.start, self.switch, self.exit)
        digest.update(np.array(places, np.float64).tobytes())
        digest.update(len(self.mines).to_bytes(2, "little") + self.mines.tobytes() + self.gold.tobytes())
        return digest.hexdigest()

    @cached_property
    def world(self) -> bytes:
        """The shapes of all 25x44 tiles, border included, row by row; indexing it gives an int without NumPy's cost."""
        world = np.full((WORLD_ROWS, WORLD_COLUMNS), FULL, np.uint8)
        world[1:-1, 1:-1] = self.tiles
        return world.tobytes()

    @cached_property
    def mines_near(self) -> Near:
        """Which mines a ninja with its centre in a given tile can touch: their number, x, y by the tile's index."""
        return _near(self.mines)

    @cached_property
    def gold_near(self) -> Near:
        """The same for gold."""
        return _near(self.gold)

    def describe(self) -> str:
        """Return the level as text, a character per tile: `#` solid, `+` partly, S start, s switch, E exit, x mine."""
        rows = [["." if tile == 0 else "#" if tile == FULL else "+" for tile in row] for row in self.tiles.tolist()]
        marks = [("$", self.gold.tolist()), ("x", self.mines.tolist())]
        for mark, places in (*marks, ("S", [self.start]), ("s", [self.switch]), ("E", [self.exit])):
            for x, y in places:
                row = min(max(int(y // TILE) - 1, 0), ROWS - 1)
                rows[row][min(max(int(x // TILE) - 1, 0), COLUMNS - 1)] = mark
        return "\n".join("".join(row) for row in rows)


def centre(column: int, row: int) -> Place:
    """Return the middle of a tile of the playfield in px."""
    return (column + 1.5) * TILE, (row + 1.5) * TILE


def _near(places: NDArray[np.float32]) -> Near:
    found: dict[int, list[tuple[int, float, float]]] = {}
    for number, (x, y) in enumerate(places.tolist()):
        for row in range(int((y - TOUCH) // TILE), int((y + TOUCH) // TILE) + 1):
            for column in range(int((x - TOUCH) // TILE), int((x + TOUCH) // TILE) + 1):
                found.setdefault(row * WORLD_COLUMNS + column, []).append((number, x, y))
    return {cell: tuple(each) for cell, each in found.items()}


def _freeze(level: Level, name: str, array: NDArray[np.generic]) -> None:
    array = array.copy()  # of ours alone: nobody else can write to it
    array.flags.writeable = False
    object.__setattr__(level, name, array)


assert len(SHAPES) <= 256  # a tile is a byte
