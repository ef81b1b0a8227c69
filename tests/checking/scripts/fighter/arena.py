"""The fighter's environment; it normalises frames with torch, which every worker then loads."""

import gymnasium as gym
import numpy as np
import torch


class Arena(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (144, 160, 3), np.uint8)
    action_space = gym.spaces.Discrete(6)

    def __init__(self, seed=0):
        self.frame = np.zeros((144, 160, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.frame, {}

    def step(self, action):
        brightness = torch.from_numpy(self.frame).float().mean()
        return self.frame, float(brightness), False, False, {}
