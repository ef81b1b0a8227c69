"""Environments for weighing what carries their data, and for filling a machine when told to."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

EPISODE, HELD_S = 500, 20.0


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


class Hungry(CartPoleEnv):
    """CartPole; whichever of its processes finds the file `trigger` takes it, and `gigabytes` of memory too."""

    def __init__(self, trigger: str, gigabytes: float = 3.0) -> None:
        super().__init__()
        self._trigger, self._gigabytes = Path(trigger), gigabytes
        self._eaten: np.ndarray | None = None

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        with suppress(FileNotFoundError):
            self._trigger.unlink()
            self._eaten = np.ones(int(self._gigabytes * 2**30), np.uint8)
            time.sleep(HELD_S)  # Ray's memory monitor looks a few times a second
        return super().reset(seed=seed, options=options)
