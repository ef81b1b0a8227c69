"""Environments for the tests of leak verdicts, in a module that a fresh process can import."""

import ctypes
import os
import time
from typing import Any

import gymnasium
import numpy as np

_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]


class Still(gymnasium.Env):
    """Keeps nothing."""

    def __init__(self, length: int = 40) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.length, self.age, self.taken = length, 0, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.age = 0
        return np.zeros(4, np.float32), {}

    def on_step(self) -> None:
        pass

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.age += 1
        self.taken += 1
        self.on_step()
        return np.zeros(4, np.float32), 0.0, self.age >= self.length, False, {}


class KeepsObjects(Still):
    """64 bytes per step in Python objects."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [b""] * 100_000

    def on_step(self) -> None:
        self.kept[self.taken] = bytes(24)  # the leaking line


class KeepsDicts(Still):
    """A dict per step, among others that come and go: Python hands freed ones on, and with them the blame."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = []

    def on_step(self) -> None:
        self.kept.append({"age": self.age})  # the leaking line


ARRAYS: dict = {}


class KeepsArrays(Still):
    """In a dict of a module, which Python's collector does not track: arrays hold no other objects."""

    def on_step(self) -> None:
        ARRAYS[len(ARRAYS)] = np.ones(100)


class KeepsMalloc(Still):
    """112 bytes per step (96 and the allocator's 16) that only malloc knows of."""

    def on_step(self) -> None:
        _libc.malloc(96)  # the leaking line


class Masked(Still):
    """Allows one action in each step and says so when another is taken."""

    def action_masks(self) -> np.ndarray:
        return np.arange(3) == self.age % 3

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if action != self.age % 3:
            raise AssertionError(f"action {action} was not allowed")
        return super().step(action)


class Raises(Still):
    """Fails in its 30th step."""

    def on_step(self) -> None:
        if self.taken == 30:
            raise RuntimeError("the reactor\nis out")


class Dies(Still):
    """Ends its process in its 30th step."""

    def on_step(self) -> None:
        if self.taken == 30:
            os.abort()


class Hangs(Still):
    """Never comes back from its first step."""

    def on_step(self) -> None:
        time.sleep(3_600)


class OldApi(Still):
    """Returns four values, as gym once did."""

    def step(self, action: int) -> Any:
        return np.zeros(4, np.float32), 0.0, False, {}


def make_objects_keeper() -> KeepsObjects:
    return KeepsObjects()
