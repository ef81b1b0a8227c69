"""The whole world in colour, for `rgb_array` and the window: what people look at.

A picture shows what the frames show: its grey (`to_grey`) is, pixel for pixel, what a policy sees. That is made so, not
hoped for: everything is composed in grey first, and a *tint* is a table that gives for each grey a colour of exactly
that grey. So nobody debugs a policy by looking at something that it never saw.

With animation (`RenderConfig(enable_animation=True)`) movement is smoothed and leaves traces, which no policy sees; an
`Animation` then belongs to each environment, with its memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput
from legroom_workloads.ninja import sprites
from legroom_workloads.ninja.animation import Animation
from legroom_workloads.ninja.frames import in_playfield, mines_and_gold, switch_and_door
from legroom_workloads.ninja.game import FRAMES_PER_S, Game
from legroom_workloads.ninja.level import Level
from legroom_workloads.ninja.static_layer import Grey, static_layer

# The most saturated colour of each tint; darker greys are this one dimmed, brighter ones mixed with white.
TINTS: Mapping[str, tuple[int, int, int]] = {
    "ground": (60, 76, 112),
    "ninja": (226, 240, 255),
    "mine": (255, 62, 72),
    "gold": (255, 200, 40),
    "switch": (70, 200, 255),
    "pressed": (90, 120, 140),
    "closed_door": (196, 110, 70),
    "open_door": (90, 240, 140),
    "trace": (120, 190, 255),
}
SUFFIXES = (".png", ".svg", ".pdf")
_LUMA = (77, 150, 29)  # of 256: the usual weights of red, green and blue


class Pictures:
    """Draws the pictures of one environment.

    Args:
        config: `enable_animation` of it counts; None for none.
        share: one static layer for all processes, as for frames.
    """

    def __init__(self, level: Level, config: Any = None, *, share: bool = True) -> None:
        self._share = share
        self.animation = Animation() if getattr(config, "enable_animation", False) else None
        self.use_level(level)

    def use_level(self, level: Level) -> None:
        """Draw this level from now on; happens by itself for a game in another level."""
        self._level = level
        self._layer = static_layer(level, share=self._share)
        if self.animation is not None:
            self.animation.restart()

    def advance(self, game: Any) -> None:
        """Let a frame of the animation pass; to be called after each frame of the game, and free without animation."""
        if self.animation is not None:
            self.animation.advance(game)

    def picture(self, game: Any) -> NDArray[np.uint8]:
        """Return the world as it is now, uint8 [600, 1056, 3], the caller's own."""
        if game.level is not self._level:
            self.use_level(game.level)
        grey = self._layer.world.copy()
        colours = np.take(_colours("ground"), grey, axis=0)  # five times as fast as an index
        if self.animation is not None:
            _put(colours, grey, self.animation.glow, "trace", (0, 0))
        places, kinds = mines_and_gold(game)
        for (x, y), kind in zip(places.tolist(), kinds.tolist(), strict=True):
            _put_sprite(colours, grey, (sprites.mine, sprites.gold)[kind](), x, y)
        for sprite, (x, y) in switch_and_door(game):
            _put_sprite(colours, grey, sprite, int(x), int(y))
        ninja = sprites.ninja(*sprites.pose_of(game)) if self.animation is None else self.animation.ninja(game)
        x, y = in_playfield(game)
        _put_sprite(colours, grey, ninja, int(x), int(y))
        return colours


def picture(game: Any, config: Any = None) -> NDArray[np.uint8]:
    """Return a picture of a game as it stands, uint8 [600, 1056, 3]; for many, keep a `Pictures`."""
    return Pictures(game.level, config, share=False).picture(game)


def draw(episode: Any, path: str | Path) -> None:
    """Draw the last episode that a NinjaEnv finished (the env, or its `last_episode`); nothing before the first.

    The level as it was at the end, and the way of the ninja from dark to bright. The game is exact, so it is played
    again from what was pressed.

    Raises:
        BadInput: a file name whose kind of picture is not known, or a folder that cannot be written.
    """
    from matplotlib.figure import Figure

    last = episode if isinstance(episode, Mapping) else getattr(episode, "unwrapped", episode).last_episode
    if last is None:
        return
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"cannot draw {path.name}", hint=f"a name that ends in {', '.join(SUFFIXES)}")
    game, way = play_again(last)
    shown = picture(game)
    rows, columns = np.nonzero((shown != shown[0, 0]).any(axis=2))  # a small level leaves most of the world solid
    figure = Figure(figsize=(11.0, 6.6), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shown, interpolation="nearest")
    axes.set_xlim(columns.min(initial=0), columns.max(initial=0) + 1)
    axes.set_ylim(rows.max(initial=0) + 1, rows.min(initial=0))
    axes.scatter(way[:, 0], way[:, 1], c=np.arange(len(way)), cmap="plasma", s=3)
    axes.set_axis_off()
    how = "reached the exit" if game.won else "died" if game.dead else "ran out of time"
    switch = "" if game.won else f", the switch {'on' if game.switch_on else 'off'}"
    figure.suptitle(f"{game.level.name}: {how} after {game.frame / FRAMES_PER_S:.1f} s{switch}")
    try:
        figure.savefig(path, dpi=100)
    except OSError as failed:
        raise BadInput(f"cannot write the picture: {failed.strerror or failed}", path=path) from None


def play_again(last: Mapping[str, Any]) -> tuple[Game, NDArray[np.int64]]:
    """Return the game at the end of an episode, and where in the picture the ninja was after each frame, [n, 2]."""
    game = Game(last["level"])
    if last["began"] is not None:
        game.set_state(last["began"])
    way = [in_playfield(game)]
    for each in last["inputs"]:
        game.step(each)
        way.append(in_playfield(game))
    return game, np.array(way).astype(np.int64)


def to_grey(picture: NDArray[np.uint8]) -> Grey:
    """Return the grey of a picture, uint8 without its last axis."""
    return ((picture.astype(np.int32) @ np.array(_LUMA) + 128) >> 8).astype(np.uint8)


def _put_sprite(colours: NDArray[np.uint8], grey: Grey, sprite: sprites.Sprite, x: int, y: int) -> None:
    rows, columns = sprite.grey.shape
    _put(colours, grey, sprite.grey, sprite.tint, (y - rows // 2, x - columns // 2))


def _put(colours: NDArray[np.uint8], grey: Grey, what: Grey, tint: str, corner: tuple[int, int]) -> None:
    """Put something grey onto both, in its tint where it is the brighter one. Things are a tile away from the edges."""
    rows, columns = (slice(start, start + side) for start, side in zip(corner, what.shape, strict=True))
    shows = what > grey[rows, columns]
    grey[rows, columns][shows] = what[shows]
    colours[rows, columns][shows] = _colours(tint)[what[shows]]


@cache
def _colours(tint: str) -> NDArray[np.uint8]:
    """Return uint8 [256, 3]: for each grey the colour of this tint whose grey it is."""
    full = np.array(TINTS[tint], np.float64)
    brightness = float(full @ _LUMA) / 256
    grey = np.arange(256.0)[:, None]
    dimmed = full * (grey / brightness)
    mixed = 255 - (255 - full) * ((255 - grey) / (255 - brightness))
    # Rounding moves the grey of a colour by less than half a step, so that it rounds back to the one asked for.
    return np.rint(np.where(grey <= brightness, dimmed, mixed)).astype(np.uint8)
