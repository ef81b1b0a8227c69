"""CartPole with short episodes, whose reward is NaN from a step of each environment on."""

from typing import Any

import gymnasium as gym
import numpy as np


class Spoiled(gym.Wrapper):
    def __init__(self, nan_at: int = 0) -> None:
        super().__init__(gym.make("CartPole-v1", max_episode_steps=25))
        self.nan_at, self.steps = nan_at, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        seen, reward, *more = self.env.step(action)
        return seen, np.nan if self.nan_at and self.steps >= self.nan_at else reward, *more
