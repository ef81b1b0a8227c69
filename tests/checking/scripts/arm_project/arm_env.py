import gymnasium as gym
import torch

from levels import LevelDataCache


class ArmEnv(gym.Env):
    metadata = {"render_modes": []}

    def __init__(self, level=0):
        self.map = LevelDataCache.get(level)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = torch.zeros(7, device="cuda")
        return self.state.cpu().numpy(), {}

    def step(self, action):
        self.state += 1
        return self.state.cpu().numpy(), 0.0, False, False, {}
