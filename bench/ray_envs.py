"""An environment that costs nothing to step and shows as much as it is told to: for weighing what carries its data."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

EPISODE = 500


class Flat(gym.Env):
    """`size` random bytes per step."""

    def __init__(self, size: int = 7056) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (size,), np.uint8)
        self.action_space = gym.spaces.Discrete(3)
        self._size, self._steps = size, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._steps += 1
        return self._seen(), 0.0, False, self._steps >= EPISODE, {}

    def _seen(self) -> np.ndarray:
        return self.np_random.integers(0, 255, self._size, dtype=np.uint8)
