"""Pictures as a game has them: a textured room, another one each episode, and things that move in it."""

import gymnasium as gym
import numpy as np


class Room(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (1, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        tiles = self.np_random.integers(0, 256, (8, 7, 7), np.uint8)
        self._room = np.block([[tiles[self.np_random.integers(8)] for _ in range(12)] for _ in range(12)])
        self._things = self.np_random.integers(0, 76, (5, 2))
        self._speed = self.np_random.integers(-3, 4, (5, 2))
        self.t = 0
        return self._picture(), {}

    def step(self, action):
        self.t += 1
        self._things = (self._things + self._speed + (int(action) - 1)) % 76
        return self._picture(), float(self._things[0, 0] < 20), False, self.t >= 250, {}

    def _picture(self):
        picture = self._room.copy()
        for number, (row, column) in enumerate(self._things):
            picture[row : row + 8, column : column + 8] = 40 * number + 30
        return picture[None]
