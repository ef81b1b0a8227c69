"""An environment with two mistakes, for the README: it keeps every state, and hands out its own screen."""

import gymnasium
import numpy as np


class Leaky(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self):
        self.screen = np.zeros((84, 84), np.float32)
        self.history = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.screen[:] = 0
        return self.screen, {}

    def step(self, action):
        self.steps += 1
        self.screen[self.steps % 84] = self.np_random.integers(256)
        self.history.append((self.steps, int(action)))
        return self.screen, 0.0, self.steps >= 200, False, {}
