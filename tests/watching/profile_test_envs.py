"""Environments for the tests of observations and of copies side by side, importable by a fresh process."""

import fcntl
import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

Observation = Any


class Shows(gymnasium.Env):
    """Shows what `look` returns; episodes of 20 steps."""

    action_space = Discrete(3)
    observation_space: gymnasium.Space = Box(0, 255, (8,), np.uint8)

    def __init__(self) -> None:
        self.age = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.age = 0
        return self.look(), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.age += 1
        return self.look(), 0.0, self.age >= 20, False, {}

    def look(self) -> Observation:
        return np.full(8, self.age, np.uint8)


class LiveBuffer(Shows):
    """Hands out its own screen."""

    def __init__(self) -> None:
        super().__init__()
        self.screen = np.zeros(8, np.uint8)

    def look(self) -> Observation:
        self.screen[:] = self.age
        return self.screen


class LiveView(LiveBuffer):
    """Hands out a view of a part of it."""

    observation_space = Box(0, 255, (3,), np.uint8)

    def look(self) -> Observation:
        return super().look()[2:5]


class TakesTurns(Shows):
    """Has three buffers that take turns: an observation is safe for two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers = [np.zeros(8, np.uint8) for _ in range(3)]
        self.turn = 0

    def look(self) -> Observation:
        self.turn += 1
        buffer = self.buffers[self.turn % 3]
        buffer[:] = self.turn % 251
        return buffer


class NewState(Shows):
    """Hands out its state, but makes a new one at every step."""

    def look(self) -> Observation:
        self.state = np.full(8, self.age, np.uint8)
        return self.state


class ConstantMap(Shows):
    """Has a map that nobody can write to."""

    observation_space = Dict({"map": Box(0, 1, (4,), np.float32), "age": Box(0, 1e3, (1,), np.float32)})

    def __init__(self) -> None:
        super().__init__()
        self.map = np.ones(4, np.float32)
        self.map.flags.writeable = False

    def look(self) -> Observation:
        return {"map": self.map, "age": np.array([self.age], np.float32)}


class Wide(Shows):
    """Has keys that could be smaller, and some that only look so."""

    observation_space = Dict(
        {
            "pixels": Box(0, 255, (6,), np.float32),  # whole numbers
            "flags": Box(0, 1, (2,), np.float64),  # 0 and 1
            "halves": Box(-np.inf, np.inf, (2,), np.float32),  # multiples of 0.5
            "single": Box(-np.inf, np.inf, (2,), np.float64),  # round-trip through float32, not through float16
            "exact": Box(-np.inf, np.inf, (2,), np.float64),  # do not
            "counter": Box(0, 10_000, (1,), np.int64),  # below 255 as far as seen, but may be more
        }
    )

    def look(self) -> Observation:
        age = self.age
        return {
            "pixels": np.arange(6, dtype=np.float32) * age % 256,
            "flags": np.array([age % 2, 1.0]),
            "halves": np.array([age / 2, -age], np.float32),
            "single": np.array([float(np.float32(age / 3)), 1.0]),
            "exact": np.array([age / 3, 1.0]),
            "counter": np.array([age], np.int64),
        }


class OtherDtype(Shows):
    """Returns float64 where its space says float32."""

    observation_space = Box(-1, 1, (4,), np.float32)

    def look(self) -> Observation:
        return np.full(4, self.age / 100)


class EightMegabytes(Shows):
    """Has eight megabytes of its own and fills them."""

    def __init__(self) -> None:
        super().__init__()
        self.own = np.ones(8 << 20, np.uint8)


class Masked(Shows):
    """Allows one action in each step and says so when another is taken."""

    def action_masks(self) -> np.ndarray:
        return np.arange(3) == self.age % 3

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        assert action == self.age % 3, "that was not allowed"
        return super().step(action)


class OnlyOnce(Shows):
    """Is there once: a second one cannot have its file."""

    def __init__(self) -> None:
        super().__init__()
        self.file = os.open(__file__, os.O_RDONLY)
        fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Nested(Shows):
    """Has a space that no vector environment of SB3's takes."""

    observation_space = Dict({"a": Dict({"b": Box(0, 255, (3,), np.uint8)})})

    def look(self) -> Observation:
        return {"a": {"b": np.zeros(3, np.uint8)}}
