"""SB3's DQN on vectors with a network of its own."""

import argparse

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--width", type=int, default=1_024)
parser.add_argument("--timesteps", type=int, default=132)
args = parser.parse_args()


class Numbers(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (60,), np.float32)
    action_space = gym.spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(60, np.float32), {}

    def step(self, action):
        self.at += 1
        return np.zeros(60, np.float32), 1.0, False, self.at == 50, {}


class Wide(BaseFeaturesExtractor):
    def __init__(self, space, width):
        super().__init__(space, features_dim=width)
        self.first = nn.Sequential(nn.Linear(60, width), nn.LayerNorm(width), nn.GELU())
        self.second = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())

    def forward(self, observations):
        hidden = self.first(observations)
        return hidden + self.second(hidden)


torch.manual_seed(0)
model = DQN(
    "MlpPolicy", Numbers(), batch_size=args.batch_size, buffer_size=1_000, learning_starts=100, train_freq=4,
    target_update_interval=40, device="cuda",
    policy_kwargs={"features_extractor_class": Wide, "features_extractor_kwargs": {"width": args.width}},
)  # fmt: skip
model.learn(args.timesteps)
