"""An environment whose observations are large and cost nothing to make: it fills a replay buffer quickly."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

SHAPE = (84, 84, 4)
EPISODE = 200


class Frames(gym.Env[np.ndarray, int]):
    """Shows one of a few noisy pictures in turn."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, SHAPE, np.uint8)
        self.action_space = spaces.Discrete(4)
        self._pictures = np.random.default_rng(0).integers(0, 256, (8, *SHAPE), np.uint8)
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._step = 0
        return self._pictures[0], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return self._pictures[self._step % 8], float(action == 0), False, self._step >= EPISODE, {}
