"""Movement made smooth, for pictures only: poses that pass into each other, and light that fades behind the ninja.

This is memory that each environment has for itself, as animated environments do: a layer of light as large as the world
(0.6 MB), since traces have to be kept until they have faded, and the in-between poses, drawn when first needed (0.5 KB
each, at most the pairs of poses times five). Frames that a policy sees are not animated, so a training switches it off
and saves all of that, and the 0.1 ms that fading takes in every frame.

Nothing here has an influence on the game, nor uses its random numbers: sparks fly by a pattern.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from legroom_workloads.ninja import sprites
from legroom_workloads.ninja.static_layer import Grey
from legroom_workloads.ninja.tiles import HEIGHT, NINJA_RADIUS, WIDTH

IN_BETWEEN = 6  # frames from one pose to the next
_MOST_SPARKS = 96
_SPARK_FRAMES = 24
_SPARK_GRAVITY = 0.06  # px per frame and frame
_TRAIL_GREY = 118
_FAST = 1.2  # px per frame from which on the ninja leaves a trail
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))  # spreads any number of sparks evenly
_GOLDEN_SHARE = (math.sqrt(5) - 1) / 2  # and their speeds
_SPARK = np.array([[0, 140, 0], [140, 255, 140], [0, 140, 0]], np.uint8)


class Animation:
    """The animation of one environment: `glow` uint8 [600, 1056] is the light in the world, 0 for none."""

    def __init__(self) -> None:
        self.glow: Grey = np.zeros((HEIGHT, WIDTH), np.uint8)
        self._in_between: dict[tuple[str, str, int, int], sprites.Sprite] = {}
        self._sparks: deque[list[float]] = deque(maxlen=_MOST_SPARKS)  # x, y, vx, vy, frames left
        self.restart()

    def restart(self) -> None:
        """Forget all traces."""
        self.glow[...] = 0
        self._sparks.clear()
        self._lit = (HEIGHT, WIDTH, 0, 0)  # top, left, bottom, right of what is not dark
        self._before = self._pose = "stand"
        self._since = IN_BETWEEN
        self._saw: tuple[bool, int, bool, bool] | None = None
        self._frame = 0

    def advance(self, game: Any) -> None:
        """Let one frame pass: light fades, sparks fly, poses move on, and what has just happened throws sparks."""
        if game.frame < self._frame:
            self.restart()
        self._frame = game.frame
        self._fade()
        self._throw(game)
        self._fly()
        if math.hypot(game.vx, game.vy) > _FAST and not (game.dead or game.won):
            self._shine(_TRAIL, int(game.x), int(game.y))
        pose = sprites.pose_of(game)[0]
        if pose != self._pose:
            self._before, self._pose, self._since = self._pose, pose, 0
        self._since = min(self._since + 1, IN_BETWEEN)

    def ninja(self, game: Any) -> sprites.Sprite:
        """Return the ninja somewhere between its last pose and this one."""
        pose, facing = sprites.pose_of(game)
        if pose != self._pose or self._since >= IN_BETWEEN:
            return sprites.ninja(pose, facing)
        key = (self._before, pose, self._since, facing)
        if key not in self._in_between:
            part = self._since / IN_BETWEEN
            joints = sprites.POSES[self._before] * np.float32(1 - part) + sprites.POSES[pose] * np.float32(part)
            self._in_between[key] = sprites.Sprite(sprites.draw_ninja(joints, facing), sprites.NOTHING, "ninja")
        return self._in_between[key]

    def _fade(self) -> None:
        """Take an eighth of all light away, where there is any."""
        top, left, bottom, right = self._lit
        if bottom > top:
            lit = self.glow[top:bottom, left:right]
            lit -= (lit >> 3) + (lit > 0)
            if not lit.any():
                self._lit = (HEIGHT, WIDTH, 0, 0)

    def _throw(self, game: Any) -> None:
        """Throw sparks for a landing, a jump, a wall slide, gold, and an end."""
        now = (bool(game.on_ground), len(game.gold), bool(game.dead), bool(game.won))
        before, self._saw = self._saw or now, now
        feet = game.y + NINJA_RADIUS
        if now[0] != before[0]:
            self._burst(6, game.x, feet, 0.7, upwards=True)
        if game.on_wall and not game.on_ground and game.vy > 0:
            self._burst(1, game.x + game.on_wall * NINJA_RADIUS, game.y, 0.5, upwards=True)
        if now[1] < before[1]:
            self._burst(14, game.x, game.y, 1.4)
        if now[2] > before[2]:
            self._burst(48, game.x, game.y, 2.6)
        if now[3] > before[3]:
            self._burst(32, game.x, game.y, 1.8)

    def _burst(self, count: int, x: float, y: float, speed: float, *, upwards: bool = False) -> None:
        for number in range(count):
            angle = (number + self._frame) * _GOLDEN_ANGLE
            reach = speed * (0.3 + 0.7 * (number * _GOLDEN_SHARE % 1))
            vx, vy = reach * math.cos(angle), reach * math.sin(angle)
            self._sparks.append([x, y, vx, -abs(vy) if upwards else vy, _SPARK_FRAMES - number % 5])

    def _fly(self) -> None:
        for spark in self._sparks:
            spark[0] += spark[2]
            spark[1] += spark[3]
            spark[3] += _SPARK_GRAVITY
            spark[4] -= 1
            if spark[4] > 0:
                self._shine(_SPARK, int(spark[0]), int(spark[1]))
        while self._sparks and self._sparks[0][4] <= 0:
            self._sparks.popleft()

    def _shine(self, light: Grey, x: int, y: int) -> None:
        """Put a light there, and remember that it is not dark around it."""
        if not (0 <= x < WIDTH and 0 <= y < HEIGHT):
            return
        sprites.stamp(self.glow, light, y, x)
        reach = light.shape[0] // 2
        top, left, bottom, right = self._lit
        self._lit = (
            min(top, max(y - reach, 0)),
            min(left, max(x - reach, 0)),
            max(bottom, min(y + reach + 1, HEIGHT)),
            max(right, min(x + reach + 1, WIDTH)),
        )


def _soft_disc(reach: int, grey: int) -> Grey:
    away = np.arange(-reach, reach + 1)
    return np.rint(grey * np.clip(1 - np.hypot(away[None, :], away[:, None]) / reach, 0, 1) ** 0.7).astype(np.uint8)


_TRAIL = _soft_disc(6, _TRAIL_GREY)
