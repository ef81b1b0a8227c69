"""The sprites: ninja, mine, gold, switch and door, drawn once per process from discs and strokes.

A sprite is a small grey array of odd sides, brighter than any ground, fading to 0 where it is transparent. Putting one
onto a frame is `maximum`, one call of NumPy instead of a mask and a copy; and since the largest of many does not depend
on their order, a frame that is composed piece by piece equals one drawn at once.

Colour is for pictures only: a sprite names a tint, and `pictures.py` finds the colour of that tint with the same grey.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.ninja.static_layer import SMALL_PER_PX, Grey
from legroom_workloads.ninja.tiles import NINJA_RADIUS

Joints = NDArray[np.float32]  # [joint, 2] of x, y in px from the ninja's middle, looking to the right

NINJA_GREY, GOLD_GREY, MINE_GREY = 255, 205, 158
SWITCH_GREY, DOOR_GREY, OPEN_DOOR_GREY = 178, 140, 215
NINJA_REACH = NINJA_RADIUS + 1  # px from the middle to the edge of the ninja's sprite
REACH = 6  # the same for those that a level has many of, mines and gold

# Joints: head, neck, hip, near hand, far hand, near knee, near foot, far knee, far foot, end of the scarf.
# fmt: off
_POSES: dict[str, Sequence[tuple[float, float]]] = {
    "stand": ((0, -6), (0, -3), (0, 2), (2.5, 2), (-2.5, 2), (1.6, 5.5), (2, 9), (-1.6, 5.5), (-2, 9), (-6, -4)),
    "run_0": ((2.5, -6), (1.5, -3), (0, 2), (6, -1), (-4, 1), (4.5, 3.5), (6.5, 8), (-3, 5), (-8, 6.5), (-7, -6)),
    "run_1": ((2.5, -5.5), (1.5, -2.5), (0, 2.5), (3.5, 1.5), (-1.5, 2), (3.5, 5), (2, 9), (-.5, 6), (-5, 8), (-7, -5)),
    "run_2": ((2.5, -6), (1.5, -3), (0, 2), (-4, 0), (5.5, -1.5), (-3, 5), (-7.5, 7), (4.5, 3), (7, 8), (-7, -6)),
    "run_3": ((2.5, -5.5), (1.5, -2.5), (0, 2.5), (-1.5, 2), (4, 1), (-.5, 6), (-4, 8.5), (3, 5), (2.5, 9), (-7, -5)),
    "rise":  ((1, -6.5), (.5, -3.5), (-.5, 1.5), (4, -7), (-4, -1), (3, 2.5), (1, 6.5), (-2, 5), (-4, 9), (-5, -1)),
    "fall":  ((.5, -5), (0, -2), (0, 2.5), (6, -5.5), (-6, -5.5), (3.5, 4), (3, 8.5), (-3, 5), (-4.5, 8.5), (-4, -9)),
    "wall":  ((2, -6), (2, -3), (1, 2), (8, -6), (7, 1), (5.5, 2.5), (8.5, 6), (1, 6), (6, 9), (-4, -8)),
    "dead":  ((-7, 6), (-4, 7), (1, 7.5), (-2, 9), (-6, 9), (4, 5.5), (7.5, 8.5), (5, 8), (9, 9), (-9, 8)),
    "won":   ((0, -5), (0, -2), (0, 3), (5, -9), (-5, -9), (1.6, 6), (2, 9), (-1.6, 6), (-2, 9), (-6, -2)),
}
# fmt: on
POSES: Mapping[str, Joints] = {name: np.array(joints, np.float32) for name, joints in _POSES.items()}
# Strokes from joint to joint with their half widths.
_LIMBS = ((1, 2, 1.9), (1, 3, 1.0), (1, 4, 1.0), (2, 5, 1.3), (5, 6, 1.1), (2, 7, 1.3), (7, 8, 1.1))
_HEAD_RADIUS, _SCARF_HALF_WIDTH, _SCARF_GREY = 3.0, 0.8, 190
PX_PER_STRIDE = 9  # px of running per picture of the four


@dataclass(frozen=True, eq=False)
class Sprite:
    """`grey` uint8 of odd sides; `small` the same for the small view; `tint`, a name of `pictures.TINTS`."""

    grey: Grey
    small: Grey
    tint: str


NOTHING: Grey = np.zeros((1, 1), np.uint8)  # the small sprite of what only pictures show


def pose_of(game: Any) -> tuple[str, int]:
    """Return the name of the ninja's pose and where it looks, -1 or +1."""
    facing = -1 if game.facing < 0 else 1
    if game.dead:
        return "dead", facing
    if game.won:
        return "won", facing
    if not game.on_ground:
        if game.on_wall:
            return "wall", -1 if game.on_wall < 0 else 1
        return ("rise" if game.vy < 0 else "fall"), facing
    if abs(game.vx) < 0.1:
        return "stand", facing
    return f"run_{int(game.x // PX_PER_STRIDE) % 4}", facing


@cache
def ninja(pose: str, facing: int) -> Sprite:
    """Return the ninja in one of `POSES`."""
    return _sprite(draw_ninja(POSES[pose], facing), "ninja")


def draw_ninja(joints: Joints, facing: int) -> Grey:
    """Draw the ninja with these joints, uint8 [23, 23]; `facing` -1 mirrors it."""
    x, y = _grid(NINJA_REACH)
    body = _disc(x, y, joints[0], _HEAD_RADIUS)
    for start, end, half_width in _LIMBS:
        body = np.maximum(body, _stroke(x, y, joints[start], joints[end], half_width))
    scarf = _stroke(x, y, (joints[0] + joints[1]) / 2, joints[9], _SCARF_HALF_WIDTH)
    grey = _frozen(np.maximum(NINJA_GREY * body, _SCARF_GREY * scarf))
    return grey if facing > 0 else grey[:, ::-1]


@cache
def mine() -> Sprite:
    """Return a mine: a ball with eight spikes and a dark eye."""
    x, y = _grid(REACH)
    ball = _disc(x, y, (0, 0), 3.2)
    for angle in np.arange(8) * np.pi / 4:
        ball = np.maximum(ball, _stroke(x, y, (0, 0), (5.2 * np.cos(angle), 5.2 * np.sin(angle)), 0.45))
    return _sprite(_frozen(MINE_GREY * ball * (1 - 0.3 * _disc(x, y, (0, 0), 1.2))), "mine")


@cache
def gold() -> Sprite:
    """Return a piece of gold: a square on its corner with a bright facet."""
    x, y = _grid(REACH)
    diamond = np.clip(6.2 - np.abs(x) - np.abs(y), 0, 1)
    facet = np.clip(3.2 - np.abs(x) - np.abs(y + 1), 0, 1)
    return _sprite(_frozen(diamond * (GOLD_GREY - 35 + 35 * facet)), "gold")


@cache
def switch(on: bool) -> Sprite:
    """Return the switch that opens the door: a ring with a core, the core gone once it was pressed."""
    x, y = _grid(8)
    ring = _box(x, y, 7, 4.5) * (1 - _box(x, y, 5.6, 3.1))
    core = _box(x, y, 3.6, 1.4)
    grey = 0.75 * ring if on else np.maximum(ring, core)
    return _sprite(_frozen(SWITCH_GREY * grey), "pressed" if on else "switch")


@cache
def door(is_open: bool) -> Sprite:
    """Return the exit: a barred frame, or an open one with light in it."""
    x, y = _grid(12)
    frame = _box(x, y, 11, 11.5) * (1 - _box(x, y, 9, 9.5))
    if is_open:
        light = 0.72 * _box(x, y, 7.5, 8) * np.clip(1.25 - np.hypot(x / 9, y / 10), 0, 1)
        return _sprite(_frozen(OPEN_DOOR_GREY * np.maximum(frame, light)), "open_door")
    bars = np.maximum.reduce([_box(x - at, y, 0.8, 10) for at in (-5, 0, 5)])
    return _sprite(_frozen(DOOR_GREY * np.maximum(frame, 0.85 * bars)), "closed_door")


def stamp(canvas: Grey, grey: Grey, row: int, column: int) -> None:
    """Put a sprite's middle onto a pixel of the canvas, in place; what reaches over its edges is left out."""
    rows, columns = grey.shape
    top, left = row - rows // 2, column - columns // 2
    over_top, over_left = max(-top, 0), max(-left, 0)
    part = canvas[top + over_top : max(top + rows, 0), left + over_left : max(left + columns, 0)]
    if part.shape != grey.shape:
        grey = grey[over_top : over_top + part.shape[0], over_left : over_left + part.shape[1]]
    np.maximum(part, grey, out=part)


@cache
def many() -> tuple[Grey, Grey]:
    """Return the greys of mine and gold as one array [2, rows, columns], and the small ones as another."""
    return np.stack([mine().grey, gold().grey]), np.stack([mine().small, gold().small])


def stamp_many(canvas: Grey, greys: Grey, places: NDArray[np.int16]) -> None:
    """Put sprites [n, rows, columns] onto as many places, [n, 2] of x, y; all of each has to be on the canvas."""
    middles = places[:, 1] * np.intp(canvas.shape[1]) + places[:, 0]
    indices = middles[:, None] + _offsets(greys.shape[1:], canvas.shape[1])
    # Of the ways to write to many places at once, only this one keeps the larger of two sprites that overlap.
    np.maximum.at(canvas.reshape(-1), indices.reshape(-1), greys.reshape(-1))


@cache
def _offsets(shape: tuple[int, ...], columns: int) -> NDArray[np.intp]:
    """Return how far each pixel of a sprite is from its middle, on a canvas with so many columns, in reading order."""
    down, across = (np.arange(side) - side // 2 for side in shape)
    return (down[:, None] * columns + across).reshape(-1)


def _sprite(grey: Grey, tint: str) -> Sprite:
    return Sprite(grey, _small(grey), tint)


def _small(grey: Grey) -> Grey:
    """Return a sprite as the small view shows it: the area average, its middle in the middle of a small pixel.

    Made as bright as the sprite is at its brightest: the average of thin lines, such as a door's bars, is no brighter
    than ground, and the door would be invisible.
    """
    per_px_across, per_px_down = SMALL_PER_PX
    average = _centred(grey.shape[0], per_px_down) @ grey @ _centred(grey.shape[1], per_px_across).T
    return _frozen(average * (grey.max() / average.max()))


def _centred(side: int, per_px: float) -> NDArray[np.float32]:
    """Return [small, side]: the share of each px in the fewest small ones, an odd number, that cover all of them."""
    reach = math.ceil((side * per_px - 1) / 2)
    edges = (np.arange(-reach, reach + 2) - 0.5) / per_px + side / 2  # of the small ones, in px
    px = np.arange(side)
    overlap = np.minimum(edges[1:, None], px + 1) - np.maximum(edges[:-1, None], px)
    return (np.maximum(overlap, 0) * per_px).astype(np.float32)


def _grid(reach: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return x [1, n] and y [n, 1] in px from the middle of a sprite of 2 * reach + 1 px."""
    along = np.arange(-reach, reach + 1, dtype=np.float32)
    return along[None, :], along[:, None]


def _disc(x: Any, y: Any, middle: Any, radius: float) -> Any:
    """Return how much of each pixel a disc covers, 0..1, near enough."""
    return np.clip(radius + 0.5 - np.hypot(x - middle[0], y - middle[1]), 0, 1)


def _stroke(x: Any, y: Any, start: Any, end: Any, half_width: float) -> Any:
    """Return how much of each pixel a stroke with round ends covers, 0..1."""
    along = np.asarray(end, np.float32) - np.asarray(start, np.float32)
    length2 = max(float(along @ along), 1e-6)
    part = np.clip(((x - start[0]) * along[0] + (y - start[1]) * along[1]) / length2, 0, 1)
    return np.clip(half_width + 0.5 - np.hypot(x - start[0] - part * along[0], y - start[1] - part * along[1]), 0, 1)


def _box(x: Any, y: Any, half_width: float, half_height: float) -> Any:
    """Return how much of each pixel a box around the middle covers, 0..1."""
    return np.clip(half_width + 0.5 - np.abs(x), 0, 1) * np.clip(half_height + 0.5 - np.abs(y), 0, 1)


def _frozen(values: Any) -> Grey:
    grey = np.rint(values).astype(np.uint8)
    grey.flags.writeable = False
    return grey
