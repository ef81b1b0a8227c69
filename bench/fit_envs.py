"""An environment for the fitting bench: frames of noise that nothing compresses, or that change a little at a time."""

import numpy as np
from gymnasium import spaces

from bench.accuracy_envs import SmallEnv


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
