"""Environments that fork, and others whose observations are not of their space. Must not import torch or SB3."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

SPACE = spaces.Box(-9, 9, (4,), np.float32)
PARTS = spaces.Dict({"a": SPACE, "b": spaces.Discrete(3)})


class Still(gym.Env):
    """Shows the number of its step."""

    observation_space: Any = SPACE
    action_space: Any = spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.seen("reset"), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.seen("step"), 1.0, False, self.steps % 5 == 0, {}

    def seen(self, call: str) -> Any:
        return np.full(4, self.steps, np.float32)


class Forking(Still):
    """Forks at every step; its child ends in the given way."""

    def __init__(self, way: str) -> None:
        self.way = way

    def step(self, action: Any) -> Any:
        if self.way == "process":
            child = multiprocessing.get_context("fork").Process(target=print, args=("hello",))
            child.start()
            child.join()
        elif self.way == "system":
            os.system("true")
        else:
            self._fork()
        return super().step(action)

    def _fork(self) -> None:
        pid = os.fork()
        if pid:
            if self.way != "lives":
                os.waitpid(pid, 0)
            return
        match self.way:
            case "exits":
                os._exit(3)
            case "sys.exit":
                sys.exit(3)
            case "raises":
                raise RuntimeError("in the child")
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "wrong":
                self.steps = 77  # and returns


WAYS = ("exits", "sys.exit", "raises", "dies", "returns", "wrong", "lives", "process", "system")


class Unlike(Still):
    """Returns something else than its space says, in one of its calls."""

    FORMS: ClassVar[dict[str, Any]] = {
        "one number": np.zeros(1, np.float32),
        "too long": np.zeros(5, np.float32),
        "ragged": [[1, 2], [3]],
        "text": np.array(["a", "b", "c", "d"]),
    }

    def __init__(self, form: str, call: str, at: int = 3) -> None:
        self.form, self.call, self.at = form, call, at

    def seen(self, call: str) -> Any:
        wrong = call == self.call and (call == "reset" or self.steps == self.at)
        return self.FORMS[self.form] if wrong else super().seen(call)


class UnlikeParts(Still):
    """A Dict of observations with one part that is not as it should be."""

    observation_space = PARTS

    def __init__(self, parts: dict[str, Any]) -> None:
        self.parts = parts

    def seen(self, call: str) -> Any:
        return {"a": np.zeros(4, np.float32), "b": 1} if call == "reset" else self.parts


class Numbers(Still):
    """Shows values of another dtype than its space's."""

    observation_space = spaces.Box(0, 255, (4,), np.uint8)

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def seen(self, call: str) -> Any:
        return np.array(self.values)
