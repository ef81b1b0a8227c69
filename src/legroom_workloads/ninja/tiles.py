"""The shapes that a tile can have, and the measures of the world.

A level is 42x23 tiles of 24 px, with one tile of solid border around them: the world is 1056x600 px, the origin is the
top left corner of the border, and y points down. A shape is either a convex polygon or a part of a tile that a quarter
circle bounds; both have a cheap exact answer to the only question that physics asks, which of its points is closest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

TILE = 24  # px
COLUMNS, ROWS = 42, 23  # of the playfield, without the border
WORLD_COLUMNS, WORLD_ROWS = COLUMNS + 2, ROWS + 2
WIDTH, HEIGHT = WORLD_COLUMNS * TILE, WORLD_ROWS * TILE  # px
NINJA_RADIUS = 10  # px
_HALF = TILE // 2
_CORNERS = {"top_left": (0, 0), "top_right": (1, 0), "bottom_right": (1, 1), "bottom_left": (0, 1)}

Point = tuple[int, int]


@dataclass(frozen=True)
class Shape:
    """What of a tile is solid, in px from its top left corner.

    `polygon`: corners of a convex solid, clockwise on the screen, empty for none. `arc`: the corner of the tile that
    is the centre of a quarter circle of radius 24; the solid is inside of it, or outside of it if `hollow`.
    """

    name: str
    polygon: tuple[Point, ...] = ()
    arc: Point | None = None
    hollow: bool = False


def _corner_shapes(kind: str) -> list[Shape]:
    """Return the four shapes of a kind, named after the tile's corner that is solid."""
    shapes = []
    for name, (x, y) in _CORNERS.items():
        near, far = (TILE * x, TILE * y), (TILE * (1 - x), TILE * (1 - y))
        corners: tuple[Point, ...]
        if kind == "slope":
            corners = (near, (far[0], near[1]), (near[0], far[1]))
        elif kind == "quarter":
            corners = (near, (_HALF, near[1]), (_HALF, _HALF), (near[0], _HALF))
        elif kind == "gentle":  # half a tile high over its whole width
            corners = (near, (far[0], near[1]), (near[0], _HALF))
        else:
            hollow = kind == "hollow"
            shapes.append(Shape(f"{kind}_{name}", arc=far if hollow else near, hollow=hollow))
            continue
        shapes.append(Shape(f"{kind}_{name}", polygon=_clockwise(corners)))
    return shapes


def _clockwise(corners: tuple[Point, ...]) -> tuple[Point, ...]:
    twice_area = sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(corners, corners[1:] + corners[:1], strict=True))
    return corners if twice_area > 0 else corners[::-1]  # y points down


def _box(name: str, left: int, top: int, right: int, bottom: int) -> Shape:
    return Shape(name, polygon=((left, top), (right, top), (right, bottom), (left, bottom)))


GEOMETRY: tuple[Shape, ...] = (
    Shape("empty"),
    _box("full", 0, 0, TILE, TILE),
    _box("half_top", 0, 0, TILE, _HALF),
    _box("half_right", _HALF, 0, TILE, TILE),
    _box("half_bottom", 0, _HALF, TILE, TILE),
    _box("half_left", 0, 0, _HALF, TILE),
    *_corner_shapes("slope"),  # 45 degrees
    *_corner_shapes("round"),  # a quarter disc around the solid corner
    *_corner_shapes("hollow"),  # what a quarter disc around the opposite corner leaves: a quarter pipe
    *_corner_shapes("quarter"),  # a square of half a tile
    *_corner_shapes("gentle"),  # 26.6 degrees
)
SHAPES: tuple[str, ...] = tuple(shape.name for shape in GEOMETRY)
NUMBER = {name: number for number, name in enumerate(SHAPES)}
EMPTY, FULL = 0, 1


@cache
def solid_mask(shape: int) -> NDArray[np.bool_]:
    """Return which pixels of a tile of this shape are solid, [row, column]; read-only."""
    centre = np.arange(TILE) + 0.5
    x, y = centre[None, :], centre[:, None]
    geometry = GEOMETRY[shape]
    if geometry.arc is not None:
        inside = (x - geometry.arc[0]) ** 2 + (y - geometry.arc[1]) ** 2 <= TILE**2
        mask = ~inside if geometry.hollow else inside
    elif geometry.polygon:
        mask = np.ones((TILE, TILE), bool)
        for (ax, ay), (bx, by) in zip(geometry.polygon, geometry.polygon[1:] + geometry.polygon[:1], strict=True):
            mask &= (bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0
    else:
        mask = np.zeros((TILE, TILE), bool)
    mask.flags.writeable = False
    return mask
