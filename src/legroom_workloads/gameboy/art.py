"""The pictures of the fighter game, drawn as limbs and turned into the Game Boy's tiles of two bits per pixel.

A pose is 24x32 pixels, looking right, with its body around column 8; the arm or leg that strikes reaches into the third
column of tiles. Poses that a player must tell apart differ in their outline by several pixels, so that they can still
be told apart when the picture is made four times smaller. Colour 0 of a sprite is see-through.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH = 32, 24
BAR_TILES = 9  # nothing to eight of eight pixels full
Points = tuple[tuple[float, float], ...]

# Of each pose, in the order of the game's states: head, shoulder, hip; then arms and legs as polygonal lines.
HEAD_RADIUS = 3.6
POSES: tuple[tuple[Points, tuple[Points, ...]], ...] = (
    # standing: fists low
    (((8, 5), (8, 11), (8, 20)), (((8, 12), (12, 15), (14, 12)), ((8, 20), (5, 31)), ((8, 20), (11, 31)))),
    # walking: legs apart
    (((8, 5), (8, 11), (8, 20)), (((8, 12), (12, 15), (14, 12)), ((8, 20), (2, 31)), ((8, 20), (14, 31)))),
    # winding up a punch: leaning back, fist far behind
    (((5, 6), (4, 12), (8, 20)), (((4, 12), (0, 15), (0, 8)), ((8, 20), (3, 31)), ((8, 20), (13, 31)))),
    # punching: arm straight ahead
    (((11, 6), (10, 12), (8, 20)), (((10, 12), (23, 11)), ((8, 20), (2, 31)), ((8, 20), (14, 31)))),
    # winding up a kick: crouching
    (((6, 14), (6, 19), (7, 25)), (((6, 19), (12, 18)), ((7, 25), (3, 31)), ((7, 25), (13, 27), (11, 31)))),
    # kicking: leg straight ahead
    (((4, 7), (5, 13), (8, 20)), (((5, 13), (1, 17)), ((8, 20), (6, 31)), ((8, 20), (23, 20)))),
    # recovering: bent over
    (((13, 12), (10, 15), (8, 21)), (((10, 15), (14, 23)), ((8, 21), (4, 31)), ((8, 21), (11, 31)))),
    # blocking: both forearms upright before the head
    (
        ((7, 6), (7, 12), (7, 21)),
        (((7, 12), (14, 15), (14, 2)), ((12, 17), (12, 3)), ((7, 21), (3, 31)), ((7, 21), (11, 31))),
    ),
    # hurt: thrown back
    (((2, 9), (5, 14), (9, 21)), (((5, 14), (11, 10)), ((9, 21), (8, 31)), ((9, 21), (15, 29)))),
    # down: on the floor
    (((3, 28), (7, 29), (14, 29)), (((7, 29), (10, 25)), ((14, 29), (22, 30)))),
    # cheering: arms up
    (((8, 7), (8, 13), (8, 21)), (((8, 13), (2, 3)), ((8, 13), (14, 3)), ((8, 21), (5, 31)), ((8, 21), (11, 31)))),
)  # fmt: skip
DIGITS = (  # three columns, five rows, a row as three bits
    "75557", "26227", "71747", "71717", "55711", "74717", "74757", "71111", "75757", "75717",
)  # fmt: skip


def pose_tiles() -> bytes:
    """Return the tiles of all poses: twelve each, as six sprites of 8x16, three above three."""
    parts = []
    for body, limbs in POSES:
        picture = _draw(body, limbs)
        for top in (0, 16):
            for left in (0, 8, 16):
                parts += [_tile(picture[y : y + 8, left : left + 8]) for y in (top, top + 8)]
    return b"".join(parts)


def background_tiles() -> bytes:
    """Return the tiles of the background: nine of a bar, ten digits, sky, rope, floor."""
    parts = []
    for full in range(BAR_TILES):
        picture = np.zeros((8, 8), np.uint8)
        picture[1:7] = 1
        picture[1:7, :full] = 3
        parts.append(_tile(picture))
    for rows in DIGITS:
        picture = np.zeros((8, 8), np.uint8)
        for y, row in enumerate(rows, 1):
            for x in range(3):
                picture[y, 1 + 2 * x : 3 + 2 * x] = 3 * (int(row) >> (2 - x) & 1)
        parts.append(_tile(picture))
    sky, rope, floor = (np.zeros((8, 8), np.uint8) for _ in range(3))
    rope[3:5] = 1
    floor[0], floor[1:] = 3, 2
    floor[4::4, ::4] = 1
    return b"".join([*parts, _tile(sky), _tile(rope), _tile(floor)])


def _draw(body: Points, limbs: tuple[Points, ...]) -> NDArray[np.uint8]:
    """Return a pose, uint8 [32, 24] of colours 0 to 3."""
    picture = np.zeros((HEIGHT, WIDTH), np.uint8)
    head, shoulder, hip = body
    for limb in limbs:
        for one, other in pairwise(limb):
            picture[_distance(one, other) <= 1.6] = 3
    picture[_distance(shoulder, hip) <= 3.2] = 2
    picture[_distance(head, head) <= HEAD_RADIUS] = 3
    return picture


def _distance(one: tuple[float, float], other: tuple[float, float]) -> NDArray[np.float64]:
    """Return every pixel's distance from the line between two points."""
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    dx, dy = other[0] - one[0], other[1] - one[1]
    along = ((x - one[0]) * dx + (y - one[1]) * dy) / max(dx * dx + dy * dy, 1e-9)
    along = np.clip(along, 0.0, 1.0)
    return np.hypot(x - one[0] - along * dx, y - one[1] - along * dy)


def _tile(picture: NDArray[np.uint8]) -> bytes:
    """Return 8x8 colours as the Game Boy has them: per row the low bits, then the high bits."""
    low, high = np.packbits(picture & 1, axis=1), np.packbits(picture >> 1, axis=1)
    return np.hstack([low, high]).tobytes()
