"""Where the ninja can get to, on a coarse graph of tiles: walk, fall, jump, jump off walls.

A node is a tile in whose middle the ninja fits without touching a mine; an edge is a move that the physics of `game.py`
allows with room to spare. A full jump rises 74 px, three tiles, and an edge takes at most two; a fall kills from about
ten tiles, and no edge leads to where the next floor is more than nine below. So a path is a promise that the level can
be solved, while no path does not prove the contrary: what the graph refuses, a good player may still do.

It is coarse in one respect that errs the other way: a fall down a staircase of ledges is judged ledge by ledge, not by
the speed that the ninja already has.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.ninja.collision import closest
from legroom_workloads.ninja.level import Level, Place
from legroom_workloads.ninja.tiles import EMPTY, FULL, NINJA_RADIUS, TILE, WORLD_COLUMNS, WORLD_ROWS

JUMP_TILES, JUMP_ASIDE_TILES = 2, 3
MOST_FALL_TILES = 9
MINE_BERTH = 20.0  # px from the middle of a tile; touching is 14
_ROW = WORLD_COLUMNS  # from a tile to the one below, counted in tiles


class Graph(NamedTuple):
    """`nodes` int16 [n, 2]: column and row of tiles, border included; `edges` int32 [m, 2]: from and to, as indices."""

    nodes: NDArray[np.int16]
    edges: NDArray[np.int32]


def coarse_graph(level: Level) -> Graph:
    """Return the moves between tiles that the ninja surely can make."""
    moves = _moves(level)
    numbers = {cell: number for number, cell in enumerate(moves)}
    nodes = [(cell % WORLD_COLUMNS, cell // WORLD_COLUMNS) for cell in moves]
    edges = [(numbers[a], numbers[b]) for a, reached in moves.items() for b in sorted(reached)]
    return Graph(np.array(nodes, np.int16).reshape(-1, 2), np.array(edges, np.int32).reshape(-1, 2))


def solvable(level: Level) -> bool:
    """Return whether the graph has a way from the start to the switch, and from there to the exit."""
    return shortest_path(level) is not None


def shortest_path(level: Level) -> list[tuple[int, int]] | None:
    """Return the tiles (column, row) of a way over the switch to the exit with the fewest moves, None without a way."""
    moves = _moves(level)
    start, switch, door = (cell_of(place) for place in (level.start, level.switch, level.exit))
    first, second = _path(moves, start, switch), _path(moves, switch, door)
    if first is None or second is None:
        return None
    return [(cell % WORLD_COLUMNS, cell // WORLD_COLUMNS) for cell in (*first, *second[1:])]


def cell_of(place: Place) -> int:
    """Return the index of the tile that holds a place in px."""
    return int(place[1] // TILE) * WORLD_COLUMNS + int(place[0] // TILE)


def _path(moves: dict[int, set[int]], start: int, goal: int) -> list[int] | None:
    if start not in moves:
        return None
    came_from, queue = {start: start}, deque([start])
    while queue:
        cell = queue.popleft()
        if cell == goal:
            path = [cell]
            while path[-1] != start:
                path.append(came_from[path[-1]])
            return path[::-1]
        for reached in sorted(moves[cell]):
            if reached not in came_from:
                came_from[reached] = cell
                queue.append(reached)
    return None


def _moves(level: Level) -> dict[int, set[int]]:
    """Return for each tile where the ninja fits the tiles that one move leads to."""
    free = _free(level)
    grounded = {cell for cell in free if _touches(level, cell, 0, 1)}
    walled = {cell for cell in free if _touches(level, cell, -1, 0) or _touches(level, cell, 1, 0)}
    safe = _safe(free, grounded)
    return {
        cell: {
            to
            for to in (
                *_falls(cell, free),
                *(_walks_and_jumps(cell, free) if cell in grounded else ()),
                *(_wall_jumps(cell, free) if cell in walled else ()),
            )
            if to in safe
        }
        for cell in sorted(free)
    }


def _free(level: Level) -> set[int]:
    """Return the tiles in whose middle the ninja touches neither walls nor mines."""
    world, mines = level.world, level.mines_near
    free = set()
    for row in range(1, WORLD_ROWS - 1):
        for column in range(1, WORLD_COLUMNS - 1):
            cell, x, y = row * WORLD_COLUMNS + column, (column + 0.5) * TILE, (row + 0.5) * TILE
            if world[cell] == FULL or closest(world, x, y, NINJA_RADIUS)[0] < NINJA_RADIUS**2:
                continue
            if all((x - mx) ** 2 + (y - my) ** 2 >= MINE_BERTH**2 for _, mx, my in mines.get(cell, ())):
                free.add(cell)
    return free


def _touches(level: Level, cell: int, dx: int, dy: int) -> bool:
    """Return whether going from the middle of a tile by half a tile that way ends at a wall that faces it."""
    own, beside = level.world[cell], level.world[cell + dx + dy * WORLD_COLUMNS]
    if own == EMPTY and beside in (EMPTY, FULL):
        return beside == FULL  # nearly always; the rest is looked at
    x, y = (cell % WORLD_COLUMNS + 0.5) * TILE, (cell // WORLD_COLUMNS + 0.5) * TILE
    for push in range(0, TILE // 2 + 3, 2):  # half tiles and slopes begin later than floors
        distance, wall_x, wall_y = closest(level.world, x + dx * push, y + dy * push, NINJA_RADIUS + 1)
        if distance < 1e9:
            way_x, way_y = wall_x - (x + dx * push), wall_y - (y + dy * push)
            return way_x * dx + way_y * dy > (0.9 if dx else 0.4) * distance**0.5
    return False


def _safe(free: set[int], grounded: set[int]) -> set[int]:
    """Return the tiles from which a straight fall is survived."""
    safe = set()
    for cell in free:
        below = cell
        for _ in range(MOST_FALL_TILES + 1):
            if below in grounded:
                safe.add(cell)
                break
            below += _ROW
            if below not in free:
                break
    return safe


def _falls(cell: int, free: set[int]) -> list[int]:
    below = cell + _ROW
    found = [below] if below in free else []
    for side in (-1, 1):  # drifting aside, around no corner
        if cell + side in free and below + side in free:
            found.append(below + side)
    return found


def _walks_and_jumps(cell: int, free: set[int]) -> list[int]:
    found = [cell + side for side in (-1, 1) if cell + side in free]
    for rise in range(1, JUMP_TILES + 1):
        top = cell - rise * _ROW
        if top not in free:
            break
        found.append(top)
        for side in (-1, 1):
            for aside in range(1, JUMP_ASIDE_TILES + 1):
                if top + side * aside not in free:
                    break
                found.append(top + side * aside)
    return found


def _wall_jumps(cell: int, free: set[int]) -> list[int]:
    """Return where a jump off a wall leads: up along it, over its edge, or away from it."""
    above = cell - _ROW
    if above not in free:
        return []
    return [above, *(above + aside for aside in (-1, 1) if above + aside in free)]


def reverse_moves(level: Level) -> dict[int, list[int]]:
    """Return for each tile, by `cell_of`, from which tiles one move leads to it."""
    backwards: dict[int, list[int]] = {}
    for cell, reached in _moves(level).items():
        for to in sorted(reached):
            backwards.setdefault(to, []).append(cell)
    return backwards
