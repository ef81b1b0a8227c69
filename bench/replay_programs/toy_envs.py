"""Environments that cost next to nothing, so that a replay buffer is full after seconds."""

from __future__ import annotations

import gymnasium as gym
import numpy as np


class Frames(gym.Env):
    """Frames [k, n, n] of noise and four actions; every observation is a new array, as after a frame stack."""

    def __init__(self, stack: int = 4, side: int = 84, length: int = 200) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (stack, side, side), np.uint8)
        self.action_space = gym.spaces.Discrete(4)
        self._length, self._t = length, 0
        self._noise = np.random.default_rng(0).integers(0, 256, (stack + 64, side, side), np.uint8)

    def reset(self, *, seed=None, options=None):
        self._t = 0
        return self._frame(), {}

    def step(self, action):
        self._t += 1
        return self._frame(), 1.0, False, self._t >= self._length, {}

    def _frame(self):
        return self._noise[self._t % 64 : self._t % 64 + self.observation_space.shape[0]].copy()


class Numbers(gym.Env):
    """Random vectors [n] in float32 and four continuous actions."""

    def __init__(self, size: int = 400, length: int = 200) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (size,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (4,), np.float32)
        self._length, self._t, self._rng = length, 0, np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        self._t = 0
        return self._numbers(), {}

    def step(self, action):
        self._t += 1
        return self._numbers(), float(self._rng.random()), False, self._t >= self._length, {}

    def _numbers(self):
        return self._rng.random(self.observation_space.shape, np.float32)


class Mixed(gym.Env):
    """A picture, numbers and a goal, as a Dict."""

    def __init__(self, length: int = 200) -> None:
        self.observation_space = gym.spaces.Dict(
            {
                "image": gym.spaces.Box(0, 255, (3, 64, 64), np.uint8),
                "state": gym.spaces.Box(-1, 1, (512,), np.float32),
                "goal": gym.spaces.Box(-1, 1, (16,), np.float32),
            }
        )
        self.action_space = gym.spaces.Box(-1, 1, (4,), np.float32)
        self._length, self._t, self._rng = length, 0, np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        self._t = 0
        return self._look(), {}

    def step(self, action):
        self._t += 1
        return self._look(), 0.0, False, self._t >= self._length, {}

    def _look(self):
        return {
            "image": self._rng.integers(0, 256, (3, 64, 64), np.uint8),
            "state": self._rng.random(512, np.float32),
            "goal": self._rng.random(16, np.float32),
        }
