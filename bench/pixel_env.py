"""Sprites that move over a background: a pixel environment that costs about as much to step as an Atari game."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

SIZE, SPRITE, SPRITES = 84, 8, 6


class Sprites(gym.Env):
    """Catch the sprites that fall: move a paddle left, right or not at all."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8)
        self.action_space = gym.spaces.Discrete(3)
        pattern = np.add.outer(np.arange(SIZE), np.arange(SIZE)) // 12 % 3 * 20
        self._background = pattern.astype(np.uint8)[:, :, None]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._at = self.np_random.integers(0, SIZE - SPRITE, (SPRITES, 2))
        self._paddle, self._steps = SIZE // 2, 0
        return self._draw(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._paddle = int(np.clip(self._paddle + 4 * (int(action) - 1), 0, SIZE - 16))
        self._at[:, 0] += 3
        landed = self._at[:, 0] >= SIZE - SPRITE
        caught = landed & (np.abs(self._at[:, 1] + 4 - self._paddle - 8) < 12)
        if landed.any():
            self._at[landed] = np.c_[
                np.zeros(landed.sum(), int), self.np_random.integers(0, SIZE - SPRITE, landed.sum())
            ]
        self._steps += 1
        return self._draw(), float(caught.sum()), False, self._steps >= 500, {}

    def _draw(self) -> np.ndarray:
        picture = self._background.copy()
        for y, x in self._at:
            picture[y : y + SPRITE, x : x + SPRITE] = 200
        picture[SIZE - 4 :, self._paddle : self._paddle + 16] = 255
        return picture


class Numbers(gym.Env):
    """A walk by chance of 376 numbers, as many as a humanoid's observation has."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (376,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (17,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._now, self._steps = self.np_random.standard_normal(376).astype(np.float32), 0
        return self._now.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._now += 0.05 * self.np_random.standard_normal(376).astype(np.float32)
        self._steps += 1
        return self._now.copy(), float(-np.square(action).sum()), False, self._steps >= 500, {}
