"""Small environments for the tests of workers. Must not import torch or SB3: workers import this module."""

from __future__ import annotations

import ctypes
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import gymnasium as gym
import numpy as np
from gymnasium import spaces

if TYPE_CHECKING:
    from legroom import LeanVecEnv


class Walk(gym.Env):
    """A random walk whose observations, rewards and episode ends all depend on seed, actions and time.

    Episodes end by termination or, after `limit` steps, by truncation. Every third step has an info.
    """

    def __init__(self, kind: str = "box", limit: int = 13, table_address: int = 0) -> None:
        self.kind, self.limit, self.table_address = kind, limit, table_address
        self.render_mode = "rgb_array"
        self.action_space = spaces.Discrete(4)
        self.observation_space = SPACES[kind]
        self.last_options: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.last_options = options
        self.position, self.time = self.np_random.normal(size=6), 0
        return self._observation(), {"began": self.time, "options": options}

    def step(self, action: Any) -> Any:
        self.time += 1
        self.position = self.position + 0.1 * self.np_random.normal(size=6)
        self.position[int(action)] += 0.25
        terminated = bool(self.np_random.random() < 0.05)
        truncated = self.time >= self.limit
        info = {"time": self.time} if self.time % 3 == 0 else {}
        return self._observation(), float(self.position[0]), terminated, truncated, info

    def _observation(self) -> Any:
        vector = self.position.astype("float32")
        picture = np.resize((np.abs(self.position) * 50).astype("uint8"), (6, 8, 3))
        return {
            "box": lambda: vector,
            "float64 given": lambda: self.position.copy(),  # not the dtype of the space
            "image": lambda: picture,
            "dict": lambda: {"vector": vector, "picture": picture, "number": self.time % 5},
            "small dict": lambda: {"vector": vector, "number": self.time % 5},
            "tuple": lambda: (vector, picture),
            "discrete": lambda: self.time % 5,
            "multi": lambda: np.array([self.time % 3, int(action_like(self.position))]),
        }[self.kind]()

    def action_masks(self) -> np.ndarray:
        return np.arange(4) != self.time % 4

    def render(self) -> np.ndarray:
        return np.full((4, 4, 3), self.time, dtype="uint8")

    def get_state(self) -> dict[str, Any]:
        return {"position": self.position, "time": self.time}

    def set_state(self, state: dict[str, Any]) -> None:
        self.position, self.time = state["position"], state["time"]

    def fail(self, text: str) -> None:
        raise OwnError(text, 7)

    def add(self, *numbers: int, bonus: int = 0) -> int:
        return sum(numbers) + bonus


def action_like(position: np.ndarray) -> int:
    return abs(int(position[0] * 10)) % 4


_BOX = spaces.Box(-np.inf, np.inf, (6,), "float32")
_IMAGE = spaces.Box(0, 255, (6, 8, 3), "uint8")
SPACES: dict[str, spaces.Space] = {
    "box": _BOX,
    "float64 given": _BOX,
    "image": _IMAGE,
    "dict": spaces.Dict({"vector": _BOX, "picture": _IMAGE, "number": spaces.Discrete(5)}),
    "small dict": spaces.Dict({"vector": _BOX, "number": spaces.Discrete(5)}),
    "tuple": spaces.Tuple([_BOX, _IMAGE]),
    "discrete": spaces.Discrete(5),
    "multi": spaces.MultiDiscrete([3, 4]),
    "text": spaces.Text(5),
}


class OwnError(Exception):
    """An exception with two arguments, which pickles."""


class Unpicklable(Exception):
    """An exception that cannot be rebuilt from its `args`."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


class Fragile(Walk):
    """Goes wrong at step 5, in the way it is told to."""

    def __init__(self, how: str) -> None:
        super().__init__(limit=1000)
        self.how = how

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if self.time == 5:
            if self.how == "own":
                raise OwnError("the fifth step", 5)
            if self.how == "unpicklable":
                raise Unpicklable("the fifth step", "again")
            if self.how == "info":
                return (*result[:4], {"generator": (number for number in range(3))})
        return (*result[:2], False, *result[3:])


class Sleepy(Walk):
    """Takes a long time for a step with action 3."""

    def step(self, action: Any) -> Any:
        if action == 3:
            time.sleep(30)
        return super().step(action)


class Telling(Walk):
    """Tells about its process."""

    def loaded(self) -> list[str]:
        return sorted({name.partition(".")[0] for name in sys.modules})

    def variables(self) -> tuple[Any, Any]:
        return os.environ.get("OMP_NUM_THREADS"), os.environ.get("OPENBLAS_NUM_THREADS")


class Global(Walk):
    """Tells what the generators that a whole process shares would draw."""

    def draw(self) -> tuple[float, float]:
        return random.random(), float(np.random.random())

    def crash(self) -> None:
        ctypes.string_at(0)

    def leave(self, code: int) -> None:
        sys.stderr.write("about to leave\n")
        raise SystemExit(code)


class Steered(gym.Env):
    """Continuous actions; observes the action it got, in the action's own dtype and one number more."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), "float64")
    action_space = spaces.Box(-1, 1, (3,), "float64")

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.kept = []
        return self.np_random.normal(size=4), {}

    def step(self, action: Any) -> Any:
        self.kept.append(action)
        told = np.array([*(action / 3), len(str(action.dtype))], dtype="float64")
        return told, float(np.sum(action / 3)), False, len(self.kept) >= 9, {}

    def all_kept(self) -> np.ndarray:
        return np.array(self.kept)


class InPlace(gym.Env):
    """A board that is changed cell by cell, in place; in the slots of a VecEnv where it is given them.

    Unbound it returns copies.
    """

    observation_space = spaces.Box(0, 255, (3, 40, 40), "uint8")
    action_space = spaces.Discrete(3)

    def __init__(self, limit: int = 17) -> None:
        self.limit = limit
        self.board = np.zeros(self.observation_space.shape, "uint8")
        self.slots: list[np.ndarray] | None = None
        self.bound = 0

    def bind_observation(self, slots: list[np.ndarray]) -> None:
        assert len(slots) == 2
        self.slots, self.owed = slots, [None, None]
        self.bound += 1

    def write_to(self, slot: int) -> None:
        self.slot = slot

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.board[...] = self.np_random.integers(0, 9, self.board.shape)
        self.owed = [None, None]  # everything
        return self._show(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        for _ in range(5):
            where = (int(action), *self.np_random.integers(0, 40, 2))
            self.board[where] += 40
            for owed in self.owed:
                if owed is not None:
                    owed.append(where)
        terminated = bool(self.np_random.random() < 0.03)
        return self._show(), float(self.board[0, :5, :5].mean()), terminated, self.time >= self.limit, {}

    def _show(self) -> np.ndarray:
        if self.slots is None:
            return self.board.copy()
        slot, owed = self.slots[self.slot], self.owed[self.slot]
        if owed is None:
            slot[...] = self.board
        else:
            for where in owed:
                slot[where] = self.board[where]
        self.owed[self.slot] = []
        return slot


class Wide(Walk):
    """Returns what its space does not say: float64 observations, and rewards of another kind every few steps."""

    def __init__(self, reward: Any = float, dtype: str = "float64") -> None:
        super().__init__()
        self._reward, self._dtype = reward, dtype

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return observation.astype(self._dtype) / 3, info

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation.astype(self._dtype) / 3, self._reward(reward), *rest


class Number(gym.Env):
    """One number as its observation, a Python int."""

    observation_space, action_space = gym.spaces.Discrete(9), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.at = 0
        return self.at, {}

    def step(self, action: Any) -> Any:
        self.at += 1 + int(action)
        return self.at % 9, np.float32(self.at) / 3, self.at > 6, False, {}


class Scaled(gym.Wrapper):
    """A reward wrapper that overrides `step`: nobody can know that it leaves observations alone."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        return observation, 2 * float(reward), *rest


def close_kindly(env: LeanVecEnv) -> None:
    """Close environments; fail if a worker had to be killed, however busy the machine is."""
    with mock.patch("legroom.sharing.crew.CLOSE_WITHIN_S", 60.0), warnings.catch_warnings(action="error"):
        env.close()


def pids(env: LeanVecEnv) -> list[int]:
    return [worker.pid for worker in env._crew.workers]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()
