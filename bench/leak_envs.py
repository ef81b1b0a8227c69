"""Environments with known memory behaviour, for bench/leaks.py: leaks of 64 bytes per step, and what only looks so.

Each takes a seed, which also draws its sizes and periods, so that fifty seeds are fifty different environments.
"""

from __future__ import annotations

import ctypes
import functools
import random
from typing import Any

import gymnasium
import numpy as np

_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]


class Clean(gymnasium.Env):
    """Some arithmetic, a new observation per step, nothing kept."""

    def __init__(self, seed: int = 0) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (16,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(4)
        self.random = random.Random(seed)
        self.length, self.taken, self.age = 100, 0, 0
        self.prepare()

    def prepare(self) -> None:
        pass

    def on_reset(self) -> None:
        pass

    def on_step(self) -> None:
        pass

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.age = 0
        self.on_reset()
        return self.look(), {}

    def look(self) -> np.ndarray:
        return self.np_random.standard_normal(16).astype(np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.age += 1
        self.taken += 1
        self.on_step()
        return self.look(), float(action), self.age >= self.length, False, {"age": self.age}


class PythonLeak(Clean):
    """64 bytes per step in Python objects: a `bytes` of 24 characters takes a block of 64."""

    def prepare(self) -> None:
        self.kept: list[bytes] = [b""] * 200_000  # made beforehand: nothing but the objects themselves is left behind

    def on_step(self) -> None:
        self.kept[self.taken] = bytes(24)  # leaks


class DictLeak(Clean):
    """A dict per step, among others that come and go: Python hands the freed ones on."""

    def prepare(self) -> None:
        self.kept: list[dict[str, int]] = []

    def on_step(self) -> None:
        self.kept.append({"age": self.age})  # leaks


class CLeak(Clean):
    """64 bytes per step from malloc."""

    def on_step(self) -> None:
        _libc.malloc(64)  # leaks


class NumpyLeak(Clean):
    """64 bytes per step in the data of arrays whose objects were made before: `resize` allocates the data only."""

    def prepare(self) -> None:
        self.arrays = [np.empty(0, np.uint8) for _ in range(40_000)]

    def on_step(self) -> None:
        self.arrays[self.taken].resize(64, refcheck=False)  # leaks


class Plateau(Clean):
    """A cache that fills and then is full: of random keys, or of ever new ones up to a limit."""

    def prepare(self) -> None:
        self.limit = self.random.randint(100, 4_000)
        self.by_key = self.random.random() < 0.5
        self.cache: dict[int, np.ndarray] = {}
        self.compute = functools.lru_cache(self.limit)(lambda key: (key, float(key)))

    def on_step(self) -> None:
        if self.by_key:
            key = self.random.randrange(self.limit)
            if key not in self.cache:
                self.cache[key] = np.zeros(16)
        else:
            self.compute(self.taken)


class SawTooth(Clean):
    """A buffer that fills and is dropped, as a rollout."""

    def prepare(self) -> None:
        self.period = self.random.randint(50, 3_000)
        self.buffer: list[tuple[int, np.ndarray]] = []

    def on_step(self) -> None:
        self.buffer.append((self.taken, np.zeros(self.period % 60 + 4)))
        if len(self.buffer) >= self.period:
            self.buffer.clear()


class Varying(Clean):
    """Episodes of very different lengths, each keeping its trajectory to its end; cycles among it."""

    def prepare(self) -> None:
        self.shortest = self.random.randint(3, 60)
        self.trajectory: list[Any] = []

    def on_reset(self) -> None:
        self.trajectory = []
        self.length = int(self.shortest / (self.random.random() + 0.01))

    def on_step(self) -> None:
        entry: dict[str, Any] = {"look": self.look(), "before": self.trajectory[-1:]}
        entry["self"] = entry
        self.trajectory.append(entry)
