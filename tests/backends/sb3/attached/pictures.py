"""An environment of pictures, in a module that imports no torch, as that of a user may be."""

import gymnasium as gym
import numpy as np


class Pictures(gym.Env):
    """A square that is pushed about, drawn as three planes; its start is random, its episodes are cut off."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    action_space = gym.spaces.Discrete(3)

    def __init__(self, size=40, length=23, render_mode=None):
        self.observation_space = gym.spaces.Box(0, 255, (3, size, size), np.uint8)
        self.size, self.length, self.render_mode = size, length, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.at = 0, int(self.np_random.integers(self.size - 4))
        return self._picture(), {}

    def step(self, action):
        self.t += 1
        self.at = (self.at + int(action) - 1) % (self.size - 4)
        return self._picture(), float(self.at % 7 == 0) / 3, self.at == 1, self.t >= self.length, {"at": self.at}

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)

    def _picture(self):
        picture = np.zeros(self.observation_space.shape, np.uint8)
        picture[:, self.at : self.at + 4, 10:14] = 200
        picture[0, 0, self.t % self.size] = 90
        return picture
