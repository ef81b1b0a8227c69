"""Small environments for the accuracy bench: numpy only, next to no memory of their own, every space SB3 knows.

They are what a user's own environments look like to SB3: a fresh observation array per step, episodes that are cut off
after a fixed number of steps.
"""

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
