"""Levels made from a seed: a hall with an uneven floor, platforms, mines and gold, always solvable.

A level is drawn, and kept if the coarse graph has a way over the switch to the exit (`solving`); else another one is
drawn from the same stream of random numbers. So a seed, a size and a difficulty name a level, on every machine.

Difficulty 0 is a floor with low steps and nothing that kills. As it rises to 1, steps get higher, platforms and mines
more, and switch and exit move away from the floor and from each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.ninja.level import MOST_MINES, Level, centre
from legroom_workloads.ninja.solving import shortest_path
from legroom_workloads.ninja.tiles import COLUMNS, EMPTY, FULL, NUMBER, ROWS, TILE

ATTEMPTS = 500
MINE_BERTH_TILES = 2  # around start, switch and exit
_MINE_OFF_MIDDLE = TILE / 2 - 4.0  # px: a mine sits on the floor or under the ceiling
_FLOOR_MINES = 0.5  # of all mines; the others hang
_STOREY_ROWS = (4, 6)
_CLEARED = (TILE * 1.0, TILE * 2.0, TILE * 4.0)  # px around a way: jumps pass beside the tiles that it names
_FLOAT_SHARE = 0.4  # at difficulty 1, how often switch and exit hang in the air


@dataclass(frozen=True)
class Size:
    """Bounds of a hall, in tiles, and what it holds at difficulty 1."""

    columns: tuple[int, int]
    rows: tuple[int, int]
    platforms: int
    mines: int
    gold: int


SIZES = {
    "small": Size((9, 14), (5, 7), platforms=2, mines=3, gold=4),
    "medium": Size((20, 28), (9, 13), platforms=8, mines=16, gold=20),
    "large": Size((COLUMNS, COLUMNS), (ROWS, ROWS), platforms=40, mines=MOST_MINES, gold=60),
}


def generate(seed: int, size: str = "small", difficulty: float = 0.3) -> Level:
    """Return the level of a seed.

    Raises:
        BadInput: a size or difficulty that there is not.
    """
    if size not in SIZES:
        raise BadInput(f"size of levels {size!r}", hint=f"one of {', '.join(SIZES)}")
    if not 0.0 <= difficulty <= 1.0:
        raise BadInput(f"difficulty {difficulty!r}", hint="a number from 0 to 1")
    rng = np.random.default_rng([seed, list(SIZES).index(size), round(difficulty * 1000)])
    for attempt in range(ATTEMPTS):
        # After many vain attempts easier ones: there is always a level in the end.
        level = _draw(f"{size}-{seed}", rng, SIZES[size], difficulty * (1 - attempt / ATTEMPTS))
        if level is not None:
            return level
    raise BadInput(f"no solvable level in {ATTEMPTS} attempts for seed {seed}, {size}", hint="a lower difficulty")


def _draw(name: str, rng: np.random.Generator, size: Size, difficulty: float) -> Level | None:
    """Return one drawn level, None where it is no good."""
    columns, rows = (int(rng.integers(low, high + 1)) for low, high in (size.columns, size.rows))
    left = int(rng.integers(0, COLUMNS - columns + 1))
    top = int(rng.integers(0, ROWS - rows + 1))
    tiles = np.full((ROWS, COLUMNS), FULL, np.uint8)
    hall = tiles[top : top + rows, left : left + columns]
    hall[...] = EMPTY
    storeys = _storeys(hall, rng)
    for storey in storeys:
        _raise_floor(storey, rng, difficulty)
        _hang_platforms(storey, rng, round(size.platforms * difficulty * storey.size / hall.size))
        _smooth(storey, rng)
    _open_floors(hall, storeys, rng)
    floor = _empty_cells(hall, left, top, beside=1)
    if len(floor) < 4:
        return None
    picks = rng.permutation(len(floor))
    start = floor[picks[0]]
    switch, door = (_lift(tiles, floor[pick], rng, difficulty) for pick in picks[1:3])
    apart = 2 + round(difficulty * columns * 0.4)
    if min(_distance(a, b) for a, b in ((start, switch), (switch, door), (start, door))) < apart:
        return None
    keep_clear = (start, switch, door)
    others = [cell for cell in floor if min(_distance(cell, one) for one in keep_clear) > MINE_BERTH_TILES]
    mines = _some(others, rng, round(size.mines * difficulty * _FLOOR_MINES))
    gold = _some([cell for cell in floor if cell not in (*mines, *keep_clear)], rng, round(size.gold * difficulty))
    ceiling = [cell for cell in _empty_cells(hall, left, top, beside=-1) if cell not in floor]
    hanging = _some(ceiling, rng, max(round(size.mines * difficulty) - len(mines), 0))
    level = Level(
        name,
        tiles,
        start=centre(*start),
        switch=centre(*switch),
        exit=centre(*door),
        mines=np.concatenate([_places(mines, _MINE_OFF_MIDDLE), _places(hanging, -_MINE_OFF_MIDDLE)]),
        gold=_places(gold, 0.0),
    )
    return _clear_a_way(level)


def _clear_a_way(level: Level) -> Level | None:
    """Return the level with those mines taken away that close its shortest way, None where it has none anyway."""
    if shortest_path(level) is not None:
        return level
    path = shortest_path(replace(level, mines=_places([], 0.0)))
    if path is None:
        return None
    middles = np.array(path, np.float32) * TILE + TILE / 2
    for berth in _CLEARED:
        away = np.hypot(*(level.mines[:, None, :] - middles[None]).transpose(2, 0, 1)).min(axis=1)
        cleared = replace(level, mines=level.mines[away > berth])
        if shortest_path(cleared) is not None:
            return cleared
    return None


def _storeys(hall: NDArray[np.uint8], rng: np.random.Generator) -> list[NDArray[np.uint8]]:
    """Divide a high hall by floors with gaps, and return its storeys: a fall through all of it would kill."""
    rows = len(hall)
    storeys, top = [], 0
    while rows - top > 2 * _STOREY_ROWS[0]:
        height = int(rng.integers(_STOREY_ROWS[0], _STOREY_ROWS[1] + 1))
        if rows - top - height - 1 < _STOREY_ROWS[0]:
            break
        hall[top + height] = FULL
        storeys.append(hall[top : top + height])
        top += height + 1
    storeys.append(hall[top:])
    return storeys


def _open_floors(hall: NDArray[np.uint8], storeys: list[NDArray[np.uint8]], rng: np.random.Generator) -> None:
    """Break gaps into the floors between storeys, down to the air below; their sides can be climbed."""
    top = 0
    for storey in storeys[:-1]:
        floor = top + len(storey)
        for _ in range(max(hall.shape[1] // 12, 1)):
            width = int(rng.integers(2, 4))
            column = int(rng.integers(0, hall.shape[1] - width + 1))
            hall[top + 1 : floor + 2, column : column + width] = EMPTY
        top = floor + 1


def _raise_floor(hall: NDArray[np.uint8], rng: np.random.Generator, difficulty: float) -> None:
    rows, columns = hall.shape
    most_step = 1 + round(difficulty)
    height = int(rng.integers(0, max(rows // 3, 1)))
    column = 0
    while column < columns:
        run = int(rng.integers(2, 6))
        if height:
            hall[rows - height :, column : column + run] = FULL
        column += run
        step = int(rng.integers(1, most_step + 1)) * (1 if rng.random() < 0.5 else -1)
        height = int(np.clip(height + step, 0, rows - 4))


def _hang_platforms(hall: NDArray[np.uint8], rng: np.random.Generator, count: int) -> None:
    rows, columns = hall.shape
    for _ in range(count):
        length = int(rng.integers(2, 5))
        row, column = int(rng.integers(2, rows - 1)), int(rng.integers(0, max(columns - length, 1)))
        hall[row, column : column + length] = FULL if rng.random() < 0.7 else NUMBER["half_top"]


def _smooth(hall: NDArray[np.uint8], rng: np.random.Generator) -> None:
    """Put ramps before some steps of one tile, and round off some of the hall's corners."""
    rows, columns = hall.shape
    for column in range(1, columns - 1):
        for row in range(1, rows - 1):
            if hall[row, column] != EMPTY or hall[row + 1, column] != FULL or hall[row - 1, column] != EMPTY:
                continue
            for side, ramps in (
                (1, ("slope_bottom_right", "gentle_bottom_right", "round_bottom_right", "hollow_bottom_right")),
                (-1, ("slope_bottom_left", "gentle_bottom_left", "round_bottom_left", "hollow_bottom_left")),
            ):
                beside = hall[row, column + side] == FULL and hall[row - 1, column + side] == EMPTY
                if beside and hall[row, column] == EMPTY and rng.random() < 0.4:
                    hall[row, column] = NUMBER[ramps[int(rng.integers(len(ramps)))]]
    for column, corner in ((0, "hollow_top_left"), (columns - 1, "hollow_top_right")):
        if hall[0, column] == EMPTY and rng.random() < 0.5:
            hall[0, column] = NUMBER[corner]


def _empty_cells(hall: NDArray[np.uint8], left: int, top: int, *, beside: int) -> list[tuple[int, int]]:
    """Return the empty tiles of the hall with a full one below (`beside` 1) or above (-1); around it all is full."""
    around = np.pad(hall, ((1, 1), (0, 0)), constant_values=FULL)
    rows, columns = np.nonzero((hall == EMPTY) & (around[1 + beside : len(around) - 1 + beside] == FULL))
    return [(left + column, top + row) for row, column in zip(rows.tolist(), columns.tolist(), strict=True)]


def _lift(
    tiles: NDArray[np.uint8], cell: tuple[int, int], rng: np.random.Generator, difficulty: float
) -> tuple[int, int]:
    """Return the tile, or one up to two above it."""
    column, row = cell
    for _ in range(int(rng.integers(1, 3)) if rng.random() < _FLOAT_SHARE * difficulty else 0):
        if row > 0 and tiles[row - 1, column] == EMPTY:
            row -= 1
    return column, row


def _some(cells: list[tuple[int, int]], rng: np.random.Generator, count: int) -> list[tuple[int, int]]:
    return [cells[pick] for pick in rng.permutation(len(cells))[:count]]


def _distance(one: tuple[int, int], other: tuple[int, int]) -> int:
    return max(abs(one[0] - other[0]), abs(one[1] - other[1]))


def _places(cells: list[tuple[int, int]], below_middle: float) -> NDArray[np.float32]:
    places = [(x, y + below_middle) for x, y in (centre(*cell) for cell in cells)]
    return np.array(places, np.float32).reshape(-1, 2)
