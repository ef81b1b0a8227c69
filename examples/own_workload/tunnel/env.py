"""Dig through a hill, from left to right."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class TunnelEnv(gym.Env[np.ndarray, np.int64]):
    """Observation uint8 [1, height, width], 255 where the rock is gone; action: dig up, ahead or down."""

    def __init__(self, height: int = 24, width: int = 64) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (1, height, width), np.uint8)
        self.action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.dug = np.zeros(self.observation_space.shape, np.uint8)
        self.row, self.column = self.dug.shape[1] // 2, 0
        return self.dug.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.row = int(np.clip(self.row + int(action) - 1, 0, self.dug.shape[1] - 1))
        self.dug[0, self.row, self.column] = 255
        self.column += 1
        through = self.column == self.dug.shape[2]
        return self.dug.copy(), 1.0 if action == 1 else 0.0, through, False, {}
