"""Which point of the walls is closest: all that a round ninja needs to know about them.

The ninja is a circle of radius 10 that never moves 10 px in a frame, so its centre never gets into a wall and nothing
needs to be swept: the point of the walls that is closest to the centre says how deep the circle is in them and which
way is out. Taking the closest point of *all* tiles first also settles the seams of a floor made of tiles, since the
corner of the next tile is never closer than the floor itself.

Everything is plain floats and tables built once: a call is a few microseconds, less than NumPy takes to begin.
"""

from __future__ import annotations

from math import inf, sqrt

from legroom_workloads.ninja.tiles import FULL, GEOMETRY, TILE, WORLD_COLUMNS, WORLD_ROWS, Shape

_EMPTY, _BOX, _TRIANGLE, _ROUND, _HOLLOW = range(5)
_Segment = tuple[float, float, float, float, float]  # a corner, the way to the next one, 1 / its length squared


def _kind(shape: Shape) -> int:
    if shape.arc is not None:
        return _HOLLOW if shape.hollow else _ROUND
    return {0: _EMPTY, 3: _TRIANGLE, 4: _BOX}[len(shape.polygon)]


def _box(shape: Shape) -> tuple[float, float, float, float]:
    xs, ys = zip(*(shape.polygon or ((0, 0),)), strict=True)
    return float(min(xs)), float(min(ys)), float(max(xs)), float(max(ys))


def _segments(shape: Shape) -> tuple[_Segment, ...]:
    corners = shape.polygon
    return tuple(
        (float(ax), float(ay), float(bx - ax), float(by - ay), 1.0 / ((bx - ax) ** 2 + (by - ay) ** 2))
        for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True)
    )


_KINDS = tuple(_kind(shape) for shape in GEOMETRY)
_BOXES = tuple(_box(shape) for shape in GEOMETRY)
_TRIANGLES = tuple(_segments(shape) for shape in GEOMETRY)
# The arc's centre, and in which direction the tile lies from it.
_ARCS = tuple(
    (float(x), float(y), 1.0 if x == 0 else -1.0, 1.0 if y == 0 else -1.0)
    for x, y in (shape.arc or (0, 0) for shape in GEOMETRY)
)


def nearest_in_tile(shape: int, x: float, y: float) -> tuple[float, float]:
    """Return the point of the solid of a tile that is closest to x, y, all in px from the tile's top left corner.

    A point inside of the solid is its own closest point.
    """
    kind = _KINDS[shape]
    if kind == _BOX:
        left, top, right, bottom = _BOXES[shape]
        return (left if x < left else right if x > right else x), (top if y < top else bottom if y > bottom else y)
    if kind == _TRIANGLE:
        return _nearest_in_triangle(_TRIANGLES[shape], x, y)
    if kind == _EMPTY:
        return inf, inf
    arc_x, arc_y, way_x, way_y = _ARCS[shape]
    u, v = (x - arc_x) * way_x, (y - arc_y) * way_y  # from the arc's centre, the tile in the quadrant u, v > 0
    u, v = _nearest_in_round(u, v) if kind == _ROUND else _nearest_in_hollow(u, v)
    return arc_x + way_x * u, arc_y + way_y * v


def _nearest_in_triangle(segments: tuple[_Segment, ...], x: float, y: float) -> tuple[float, float]:
    best, best_x, best_y, inside = inf, x, y, True
    for from_x, from_y, way_x, way_y, inverse in segments:
        dx, dy = x - from_x, y - from_y
        if way_x * dy - way_y * dx >= 0.0:
            continue  # on the inner side of this edge: another one is closer
        inside = False
        along = (dx * way_x + dy * way_y) * inverse
        along = 0.0 if along < 0.0 else 1.0 if along > 1.0 else along
        point_x, point_y = from_x + along * way_x, from_y + along * way_y
        distance = (x - point_x) ** 2 + (y - point_y) ** 2
        if distance < best:
            best, best_x, best_y = distance, point_x, point_y
    return (x, y) if inside else (best_x, best_y)


def _nearest_in_round(u: float, v: float) -> tuple[float, float]:
    if u <= 0.0 or v <= 0.0:  # beside one of the straight sides
        return (0.0 if u < 0.0 else TILE if u > TILE else u), (0.0 if v < 0.0 else TILE if v > TILE else v)
    distance = sqrt(u * u + v * v)
    return (u, v) if distance <= TILE else (u * TILE / distance, v * TILE / distance)


def _nearest_in_hollow(u: float, v: float) -> tuple[float, float]:
    if u <= 0.0 and v <= 0.0:  # seen over the arc's centre, one of its ends
        return (0.0, TILE) if v > u else (TILE, 0.0)
    if u > 0.0 and v > 0.0:
        distance = sqrt(u * u + v * v)
        if distance < TILE:
            return u * TILE / distance, v * TILE / distance
        return (TILE if u > TILE else u), (TILE if v > TILE else v)
    if u <= 0.0:
        return 0.0, TILE  # only the end of the arc on this side
    return TILE, 0.0


def closest(world: bytes, x: float, y: float, reach: float) -> tuple[float, float, float]:
    """Return the closest point of the walls within `reach` (at most 24 px) as distance squared, x, y.

    The distance is infinite where there is none. `world` is `Level.world`.
    """
    best, best_x, best_y = inf, x, y
    last_column, last_row = int((x + reach) // TILE), int((y + reach) // TILE)
    for row in range(max(int((y - reach) // TILE), 0), min(last_row, WORLD_ROWS - 1) + 1):
        for column in range(max(int((x - reach) // TILE), 0), min(last_column, WORLD_COLUMNS - 1) + 1):
            shape = world[row * WORLD_COLUMNS + column]
            if not shape:
                continue
            left, top = column * TILE, row * TILE
            if shape == FULL:
                right, bottom = left + TILE, top + TILE
                point_x = left if x < left else right if x > right else x
                point_y = top if y < top else bottom if y > bottom else y
            else:
                point_x, point_y = nearest_in_tile(shape, x - left, y - top)
                point_x += left
                point_y += top
            distance = (x - point_x) ** 2 + (y - point_y) ** 2
            if distance < best:
                best, best_x, best_y = distance, point_x, point_y
    return (best, best_x, best_y) if best <= reach * reach else (inf, x, y)


def contacts(world: bytes, x: float, y: float, reach: float) -> list[tuple[float, float]]:
    """Return the directions (unit vectors) from each tile within `reach` to the point x, y: the normals it rests on."""
    found = []
    last_column, last_row = int((x + reach) // TILE), int((y + reach) // TILE)
    for row in range(max(int((y - reach) // TILE), 0), min(last_row, WORLD_ROWS - 1) + 1):
        for column in range(max(int((x - reach) // TILE), 0), min(last_column, WORLD_COLUMNS - 1) + 1):
            shape = world[row * WORLD_COLUMNS + column]
            if shape:
                left, top = column * TILE, row * TILE
                point_x, point_y = nearest_in_tile(shape, x - left, y - top)
                dx, dy = x - left - point_x, y - top - point_y
                distance = dx * dx + dy * dy
                if 0.0 < distance <= reach * reach:
                    length = sqrt(distance)
                    found.append((dx / length, dy / length))
    return found
