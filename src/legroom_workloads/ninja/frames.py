"""The two frames of an observation, written in place: around the ninja, and of the whole world made small.

Almost nothing of a frame changes from one step to the next, so almost nothing is drawn in a step:

- A *patch* of 256x256 px around the ninja holds ground, mines, gold, switch and door. Until the ninja has gone 52 px
  (fifteen steps at full speed) or something in the level has changed, the frame around it is a slice of the patch, plus
  the ninja. Searching the level for what is in the window, and drawing that, happens only when a patch is made.
- The small view keeps one such layer of the whole world; a step copies it and draws the ninja.

The two are 64 and 32 KB, all the memory that an environment has of its own for its frames, and obtained on first use;
the static layer below them is shared by all processes and never written. Whether they are still true is decided by
comparing what they show, byte for byte (0.5 µs): a count of changes would be equal in two different games.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom_workloads.ninja import sprites
from legroom_workloads.ninja.level import Level, Place
from legroom_workloads.ninja.static_layer import CANVAS_SHAPE, PAD, SMALL_PER_PX, Grey, static_layer
from legroom_workloads.ninja.tiles import HEIGHT, TILE, WIDTH

WINDOW = 2 * PAD  # px, both sides of the frame around the ninja
PATCH = 256  # px, both sides of the patch
_SLACK = (PATCH - WINDOW) // 2
_MARGIN = 2 * sprites.REACH  # px at the edges of a patch that may lack a part of a sprite
_LAST = PATCH - WINDOW - _MARGIN
_NOWHERE = -PATCH

# Where the ninja is drawn. The playfield is a tile away from the edges of the world, so that it never reaches over one.
_NINJA_PART = (slice(PAD - sprites.NINJA_REACH, PAD + sprites.NINJA_REACH + 1),) * 2
_SMALL_ROWS, _SMALL_COLUMNS = sprites.ninja("stand", 1).small.shape


class Frames:
    """Draws the frames of one environment; `share=False` keeps a static layer of its own."""

    __slots__ = (
        "_kinds",
        "_level",
        "_patch",
        "_patch_left",
        "_patch_top",
        "_places",
        "_seen",
        "_share",
        "_small",
        "_small_is_true",
        "layer",
    )

    def __init__(self, level: Level, share: bool = True) -> None:
        self._share = share
        self._patch: Grey | None = None
        self._small: Grey | None = None
        self.use_level(level)

    def use_level(self, level: Level) -> None:
        """Draw this level from now on; happens by itself for a game in another level."""
        self._level = level
        self.layer = static_layer(level, share=self._share)
        self._seen: tuple[bytes, bytes, bool] | None = None

    def player_frame(self, game: Any, out: NDArray[np.uint8]) -> None:
        """Write the 128x128 px around the ninja, whose middle is pixel 64, 64, into `out` [128, 128, 1]."""
        self._look(game)
        x, y = in_playfield(game)
        top, left = int(y), int(x)  # where the window begins: the canvas has half a window around the world
        down, across = top - self._patch_top, left - self._patch_left
        if not (_MARGIN <= down <= _LAST and _MARGIN <= across <= _LAST):
            self._make_patch(game, top, left)
            down, across = top - self._patch_top, left - self._patch_left
        assert self._patch is not None
        frame = out[:, :, 0]
        frame[...] = self._patch[down : down + WINDOW, across : across + WINDOW]
        part = frame[_NINJA_PART]
        np.maximum(part, sprites.ninja(*sprites.pose_of(game)).grey, out=part)

    def global_view(self, game: Any, out: NDArray[np.uint8]) -> None:
        """Write the whole world into `out` [128, 256, 1]."""
        self._look(game)
        if not self._small_is_true:
            self._make_small(game)
        assert self._small is not None
        frame = out[:, :, 0]
        frame[...] = self._small
        row, column = small_place(in_playfield(game))
        top, left = row - _SMALL_ROWS // 2, column - _SMALL_COLUMNS // 2
        part = frame[top : top + _SMALL_ROWS, left : left + _SMALL_COLUMNS]
        np.maximum(part, sprites.ninja(*sprites.pose_of(game)).small, out=part)

    def _look(self, game: Any) -> None:
        """Find out whether anything but the ninja has changed."""
        if game.level is not self._level:
            self.use_level(game.level)
        seen = (game.mines.tobytes(), game.gold.tobytes(), bool(game.switch_on))
        if seen != self._seen:
            self._seen = seen
            self._places, self._kinds = mines_and_gold(game)
            self._patch_top = self._patch_left = _NOWHERE
            self._small_is_true = False

    def _make_patch(self, game: Any, top: int, left: int) -> None:
        """Put a patch around the window, moved inwards where it would leave the canvas, and draw what is in it."""
        if self._patch is None:
            self._patch = np.empty((PATCH, PATCH), np.uint8)
        self._patch_top = top = min(max(top - _SLACK, 0), CANVAS_SHAPE[0] - PATCH)
        self._patch_left = left = min(max(left - _SLACK, 0), CANVAS_SHAPE[1] - PATCH)
        self._patch[...] = self.layer.canvas[top : top + PATCH, left : left + PATCH]
        # Only what lies in the patch completely; `_MARGIN` is the part that may therefore lack something.
        at = self._places + np.array((PAD - left - sprites.REACH, PAD - top - sprites.REACH), np.int16)
        inside = at.view(np.uint16) < PATCH - 2 * sprites.REACH  # of unsigned numbers, this is an interval
        found = (inside[:, 0] & inside[:, 1]).nonzero()[0]
        sprites.stamp_many(self._patch, sprites.many()[0][self._kinds[found]], at[found] + np.int16(sprites.REACH))
        for sprite, (x, y) in switch_and_door(game):
            sprites.stamp(self._patch, sprite.grey, int(y) + PAD - top, int(x) + PAD - left)

    def _make_small(self, game: Any) -> None:
        """Draw everything but the ninja small. All of it is in the playfield, so nothing reaches over the edge."""
        if self._small is None:
            self._small = np.empty(self.layer.small.shape, np.uint8)
        self._small[...] = self.layer.small
        at = (self._places * np.array(SMALL_PER_PX, np.float32)).astype(np.int16)
        sprites.stamp_many(self._small, sprites.many()[1][self._kinds], at)
        for sprite, place in switch_and_door(game):
            sprites.stamp(self._small, sprite.small, *small_place(place))
        self._small_is_true = True


def mines_and_gold(game: Any) -> tuple[NDArray[np.int16], NDArray[np.intp]]:
    """Return the pixels [n, 2] of x, y, of all mines and gold that are left, and which of `sprites.many` they are."""
    places = np.concatenate((game.mines, game.gold)).astype(np.int16)
    return places, np.repeat((0, 1), (len(game.mines), len(game.gold)))


def switch_and_door(game: Any) -> tuple[tuple[sprites.Sprite, Place], tuple[sprites.Sprite, Place]]:
    """Return their sprites, as they are now, and their places."""
    on = bool(game.switch_on)
    return (sprites.switch(on), game.level.switch), (sprites.door(on), game.level.exit)


def small_place(place: Place) -> tuple[int, int]:
    """Return the row and the column of a place in the small view."""
    return int(place[1] * SMALL_PER_PX[1]), int(place[0] * SMALL_PER_PX[0])


def in_playfield(game: Any) -> Place:
    """Return the ninja's place, or the closest in the playfield: whatever state was set, frames stay on the canvas."""
    x, y = game.x, game.y
    if TILE <= x <= WIDTH - TILE and TILE <= y <= HEIGHT - TILE:
        return x, y
    return min(max(x, TILE), WIDTH - TILE), min(max(y, TILE), HEIGHT - TILE)
