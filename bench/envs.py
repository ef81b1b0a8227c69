"""Environments of the benches: NumPy only, next to no memory of their own, so that what is weighed is not theirs.

They are what a user's own environments look like: a fresh observation array per step, episodes that are cut off. Not
to import torch: workers do not.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


def build_space(spec: dict) -> spaces.Space:
    """Return the gymnasium space that a run file's declaration means."""
    match spec["type"]:
        case "box":
            dtype = np.dtype(spec.get("dtype", "float32"))
            low, high = (0, 255) if dtype == np.uint8 else (-1, 1)
            return spaces.Box(low, high, tuple(spec["shape"]), dtype)
        case "discrete":
            return spaces.Discrete(spec["n"])
        case "multidiscrete":
            return spaces.MultiDiscrete(spec["nvec"])
        case "multibinary":
            return spaces.MultiBinary(spec["n"])
        case "dict":
            return spaces.Dict({key: build_space(sub) for key, sub in spec["spaces"].items()})
    raise ValueError(spec)


class SmallEnv(gymnasium.Env):
    """Shows a counter in every observation; an episode is `episode_steps` long and then truncated."""

    def __init__(self, observation: dict, action: dict, episode_steps: int = 100):
        self.observation_space = build_space(observation)
        self.action_space = build_space(action)
        self.episode_steps = episode_steps
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observe(self.observation_space), {}

    def step(self, action):
        self.t += 1
        return self._observe(self.observation_space), float(self.t % 3), False, self.t >= self.episode_steps, {}

    def action_masks(self):
        return np.ones(self.action_space.n, dtype=bool)

    def _observe(self, space):
        if isinstance(space, spaces.Dict):
            return {key: self._observe(sub) for key, sub in space.spaces.items()}
        if isinstance(space, spaces.Box):
            return np.full(space.shape, self.t % 255 if space.dtype == np.uint8 else self.t / 1e3, dtype=space.dtype)
        return space.sample()


class FrameEnv(SmallEnv):
    """`noise` is the share of every observation that is new and random at each step."""

    def __init__(self, observation: dict, action: dict, episode_steps: int = 100, noise: float = 1.0):
        super().__init__(observation, action, episode_steps)
        self.noise = noise
        self._random = np.random.default_rng(0)
        self._last: dict = {}

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._random = np.random.default_rng(seed)
        return super().reset(seed=seed, options=options)

    def _observe(self, space):
        if not isinstance(space, spaces.Box):
            return super()._observe(space)
        frame = self._last.get(id(space))
        frame = np.zeros(space.shape, space.dtype) if frame is None else frame.copy()
        flat = frame.reshape(-1)
        changed = max(int(self.noise * flat.size), 1)
        start = int(self._random.integers(0, flat.size - changed + 1))
        if space.dtype == np.uint8:
            flat[start : start + changed] = np.frombuffer(self._random.bytes(changed), np.uint8)
        else:
            flat[start : start + changed] = self._random.random(changed, dtype=np.float32)
        self._last[id(space)] = frame
        return frame.copy()


SIZE, SPRITE, SPRITES = 84, 8, 6


class Sprites(gymnasium.Env):
    """Catch the sprites that fall: move a paddle left, right or not at all."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8)
        self.action_space = spaces.Discrete(3)
        pattern = np.add.outer(np.arange(SIZE), np.arange(SIZE)) // 12 % 3 * 20
        self._background = pattern.astype(np.uint8)[:, :, None]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._at = self.np_random.integers(0, SIZE - SPRITE, (SPRITES, 2))
        self._paddle, self._steps = SIZE // 2, 0
        return self._draw(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._paddle = int(np.clip(self._paddle + 4 * (int(action) - 1), 0, SIZE - 16))
        self._at[:, 0] += 3
        landed = self._at[:, 0] >= SIZE - SPRITE
        caught = landed & (np.abs(self._at[:, 1] + 4 - self._paddle - 8) < 12)
        if landed.any():
            self._at[landed] = np.c_[
                np.zeros(landed.sum(), int), self.np_random.integers(0, SIZE - SPRITE, landed.sum())
            ]
        self._steps += 1
        return self._draw(), float(caught.sum()), False, self._steps >= 500, {}

    def _draw(self) -> np.ndarray:
        picture = self._background.copy()
        for y, x in self._at:
            picture[y : y + SPRITE, x : x + SPRITE] = 200
        picture[SIZE - 4 :, self._paddle : self._paddle + 16] = 255
        return picture


class Numbers(gymnasium.Env):
    """A walk by chance of 376 numbers, as many as a humanoid's observation has."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (376,), np.float32)
        self.action_space = spaces.Box(-1, 1, (17,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._now, self._steps = self.np_random.standard_normal(376).astype(np.float32), 0
        return self._now.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._now += 0.05 * self.np_random.standard_normal(376).astype(np.float32)
        self._steps += 1
        return self._now.copy(), float(-np.square(action).sum()), False, self._steps >= 500, {}


class Drift(gymnasium.Env):
    """A point that drifts; pushing it towards the middle is rewarded. Episodes end by chance and by a limit."""

    def __init__(self, continuous: bool = False) -> None:
        self.observation_space = spaces.Box(-10.0, 10.0, (6,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else spaces.Discrete(3)
        self._at = np.zeros(6, np.float32)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._at = self.np_random.normal(size=6).astype(np.float32)
        self._steps = 0
        return self._at.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        push = float(np.asarray(action).reshape(-1)[0]) - (0.0 if isinstance(self.action_space, spaces.Box) else 1.0)
        self._at = np.clip(self._at + self.np_random.normal(size=6) * 0.1 + push * 0.2, -10, 10).astype(np.float32)
        self._steps += 1
        ended = bool(self.np_random.random() < 0.02)
        return self._at.copy(), -float(np.abs(self._at).mean()), ended, self._steps >= 60, {}

    def get_state(self) -> dict[str, Any]:
        return {"at": self._at.copy(), "steps": self._steps}

    def set_state(self, state: dict[str, Any]) -> None:
        self._at, self._steps = np.array(state["at"], np.float32), int(state["steps"])


CELLS = 8  # how many numbers of the observation a step changes


class Still(gymnasium.Env):
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
