"""Environments for `bench.workers`: they cost nothing but their observations. Must not import torch: workers do not."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from legroom_workloads.mine.env import MineEnv

CELLS = 8  # how many numbers of the observation a step changes


class Still(gym.Env):
    """An observation that a step changes in a few places; whoever needs a copy of it makes one."""

    def __init__(self, shape: tuple[int, ...], dtype: str, limit: int) -> None:
        self.observation_space = spaces.Box(0, 100, shape, dtype)
        self.action_space = spaces.Discrete(4)
        self.limit = limit
        self.board = np.zeros(shape, dtype)
        self.flat = self.board.reshape(-1)
        self.time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.board[...] = 1
        return self.board, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        first = (self.time * 31 + int(action)) % (self.flat.size - CELLS)
        self.flat[first : first + CELLS] = self.time % 100
        return self.board, 1.0, False, self.time >= self.limit, {}


class Digging(gym.ActionWrapper):
    """The mine, whatever the action: it is taken as a number among the columns that may be dug."""

    def __init__(self) -> None:
        super().__init__(MineEnv())

    def action(self, action: Any) -> Any:
        return np.flatnonzero(self.env.action_masks())[int(action)]  # type: ignore[attr-defined]


class InPlace(Still):
    """The same, written into the slots of the vector environment where that offers them."""

    def bind_observation(self, slots: list[np.ndarray]) -> None:
        self.slots = [slot.reshape(-1) for slot in slots]
        self.owed: list[list[int] | None] = [None, None]

    def write_to(self, slot: int) -> None:
        self.slot = slot

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        seen = super().reset(seed=seed)
        if hasattr(self, "slots"):
            self.owed = [None, None]
            self._pay()
        return seen

    def step(self, action: Any) -> Any:
        seen = super().step(action)
        if hasattr(self, "slots"):
            first = (self.time * 31 + int(action)) % (self.flat.size - CELLS)
            for owed in self.owed:
                if owed is not None:
                    owed.append(first)
            self._pay()
        return seen

    def _pay(self) -> None:
        slot, owed = self.slots[self.slot], self.owed[self.slot]
        if owed is None:
            slot[...] = self.flat
        else:
            for first in owed:
                slot[first : first + CELLS] = self.flat[first : first + CELLS]
        self.owed[self.slot] = []
