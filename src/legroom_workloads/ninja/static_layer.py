"""What never changes in a level's pictures, drawn once: the world in grey, and the same world made small.

Every frame is a copy of a part of this layer with a few sprites on top, so that no step draws a tile. A layer is 0.9 MB
and depends on nothing but the level: it goes through `share`, and all processes of a run map the same read-only pages.

The canvas is the world with 64 px of solid around it. A window of 128 px around any place of the world is then a slice
of the canvas, and no frame has to treat the edges of the world separately.

The small one is *stretched* to 128x256 (a tile is 5.8 px wide and 5.1 high) instead of letterboxed: the world is 1.76
times as wide as high, a letterbox would leave an eighth of every stored observation without content, and networks read
places, not proportions. It is the area average of the canvas, so that nothing thin disappears between two samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import share as share_arrays
from legroom_workloads.ninja.level import Level
from legroom_workloads.ninja.tiles import FULL, HEIGHT, TILE, WIDTH, WORLD_COLUMNS, solid_mask

Grey = NDArray[np.uint8]

PAD = 64  # px around the world on the canvas: half a window
CANVAS_SHAPE = (HEIGHT + 2 * PAD, WIDTH + 2 * PAD)
SMALL_ROWS, SMALL_COLUMNS = 128, 256
SMALL_PER_PX = (SMALL_COLUMNS / WIDTH, SMALL_ROWS / HEIGHT)  # x, y

# Sprites are brighter than all of these: a sprite is put onto a frame by taking the larger of the two.
BACKGROUND = np.uint8(22)
_RIM_STEP, _INNER_STEP = 5, 2  # greys per sixteenth: of the rim above the background, of solid ground below its rim
RIM = BACKGROUND + np.uint8(16 * _RIM_STEP)
SOLID = RIM - np.uint8(16 * _INNER_STEP)
RIM_PX = 2  # thickness of the lighter edge of solid ground


@dataclass(frozen=True)
class StaticLayer:
    """`canvas` uint8 [728, 1184]: the world in px with `PAD` around it; `small` uint8 [128, 256]: the world alone."""

    canvas: Grey
    small: Grey

    @property
    def world(self) -> Grey:
        """The world of 600x1056 px, a view."""
        return self.canvas[PAD : PAD + HEIGHT, PAD : PAD + WIDTH]


def static_layer(level: Level, *, share: bool = True) -> StaticLayer:
    """Return the layer of a level, read-only; with `share` it is the same memory in all processes of a run."""
    if share:
        arrays = share_arrays(f"ninja/layer/{level.key}", lambda: draw_layer(level))
        return StaticLayer(arrays["canvas"], arrays["small"])
    drawn = draw_layer(level)
    for array in drawn.values():
        array.flags.writeable = False
    return StaticLayer(**drawn)


def draw_layer(level: Level) -> dict[str, Grey]:
    """Draw the two arrays of a level's layer (10 ms, all in bytes: a level may be new in every episode)."""
    solid = np.ones(CANVAS_SHAPE, np.uint8)
    for index, shape in enumerate(level.world):
        if shape != FULL:
            row, column = divmod(index, WORLD_COLUMNS)
            top, left = PAD + row * TILE, PAD + column * TILE
            solid[top : top + TILE, left : left + TILE] = solid_mask(shape)
    inner = solid
    for _ in range(RIM_PX):
        inner = _eroded(inner)
    # Ground is as bright as its rim, and what is inside of the rim is darker.
    canvas = BACKGROUND + _softened(solid) * np.uint8(_RIM_STEP) - _softened(inner) * np.uint8(_INNER_STEP)
    world = canvas[PAD : PAD + HEIGHT, PAD : PAD + WIDTH]
    return {"canvas": canvas, "small": shrunk(world, SMALL_ROWS, SMALL_COLUMNS)}


def shrunk(grey: Grey, rows: int, columns: int) -> Grey:
    """Return the area average of a picture over rows x columns, any ratio."""
    across = _averaged(_averaged(grey, rows).T, columns).T
    return np.ascontiguousarray(np.rint(across), np.uint8)


def _averaged(values: NDArray[Any], rows: int) -> NDArray[np.float32]:
    """Return the averages of old rows that fewer new ones are, one term of all sums at a time: each has but a few."""
    edges = np.linspace(0, len(values), rows + 1)
    first, most = edges[:-1].astype(np.intp), math.ceil(len(values) / rows) + 1
    total = np.zeros((rows, values.shape[1]), np.float32)
    for old in (first + step for step in range(most)):
        share = np.minimum(edges[1:], old + 1) - np.maximum(edges[:-1], old)
        share = np.maximum(share, 0).astype(np.float32)[:, None] * np.float32(rows / len(values))
        total += values[np.minimum(old, len(values) - 1)] * share
    return total


def _eroded(mask: Grey) -> Grey:
    """Return a mask without the pixels that touch its edge. The edge of the canvas is solid ground and stays."""
    inner = mask.copy()
    inner[1:] &= mask[:-1]
    inner[:-1] &= mask[1:]
    inner[:, 1:] &= mask[:, :-1]
    inner[:, :-1] &= mask[:, 1:]
    return inner


def _softened(mask: Grey) -> Grey:
    """Return a mask in sixteenths, blurred by a pixel, which turns the stairs of a slope into a line."""
    down = mask * np.uint8(2)
    down[1:] += mask[:-1]
    down[:-1] += mask[1:]
    down[[0, -1]] += mask[[0, -1]]  # beyond the edge there is more of the same
    soft = down * np.uint8(2)
    soft[:, 1:] += down[:, :-1]
    soft[:, :-1] += down[:, 1:]
    soft[:, [0, -1]] += down[:, [0, -1]]
    return soft
