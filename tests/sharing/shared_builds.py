"""Functions that processes of the tests of `legroom.share` call. Imported by them, so without torch."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import legroom


def build(log: str, *, wait_s: float = 0.0) -> dict[str, np.ndarray]:
    """Note who builds, take a while, and return 8 MB."""
    with Path(log).open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(wait_s)
    return {"numbers": np.arange(1_000_000, dtype="float64")}


def use(log: str, wait_s: float = 0.0) -> tuple[float, str, bool]:
    """Share the arrays and return their sum, the run's folder, and whether they are a mapped file."""
    numbers = legroom.share("numbers", lambda: build(log, wait_s=wait_s))["numbers"]
    address = f"{numbers.ctypes.data:x}"
    maps = Path("/proc/self/maps").read_text().splitlines()
    mapped = any(line.endswith(".arrays") and _holds(line, int(address, 16)) for line in maps)
    return float(numbers.sum()), os.environ["LEGROOM_SHARED"], mapped


def _holds(line: str, address: int) -> bool:
    first, _, last = line.split()[0].partition("-")
    return int(first, 16) <= address < int(last, 16)


def use_and_put(queue: Any, log: str, wait_s: float = 0.0) -> None:
    queue.put(use(log, wait_s))


class Sharing(gym.Env):
    """An environment whose data is shared."""

    observation_space = gym.spaces.Box(0, np.inf, (1,), "float64")
    action_space = gym.spaces.Discrete(2)

    def __init__(self, log: str) -> None:
        self.log = log
        self.numbers = legroom.share("numbers", lambda: build(log, wait_s=0.1))["numbers"]

    def reset(self, **_: Any) -> Any:
        return self.numbers[-1:], {}

    def step(self, action: Any) -> Any:
        return self.numbers[-1:], 0.0, False, False, {}

    def using(self) -> Any:
        return use(self.log)
