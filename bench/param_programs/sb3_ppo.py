"""SB3's PPO on pictures with a features extractor of its own."""

import argparse

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--n-steps", type=int, default=64)
parser.add_argument("--width", type=int, default=32)
args = parser.parse_args()
N_ENVS = 16
if args.n_steps * N_ENVS % args.batch_size:
    raise ValueError(f"a rollout of {args.n_steps * N_ENVS} is not a multiple of batch_size={args.batch_size}")
torch.distributions.Distribution.set_default_validate_args(False)


class Pictures(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (3, 64, 64), np.uint8)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.picture(), {}

    def step(self, action):
        self.at += 1
        return self.picture(), 1.0, False, self.at == 50, {}

    def picture(self):
        return np.full(self.observation_space.shape, self.at, np.uint8)


class Extractor(BaseFeaturesExtractor):
    def __init__(self, space, width):
        super().__init__(space, features_dim=256)
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.ELU(), nn.Conv2d(width, width, 3, padding=1), nn.ELU(),
            nn.Conv2d(width, 2 * width, 3, stride=2), nn.ELU(), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Linear(2 * width * 31 * 31, 256), nn.ELU())

    def forward(self, observations):
        return self.head(self.body(observations))


model = PPO(
    "CnnPolicy", make_vec_env(Pictures, N_ENVS), n_steps=args.n_steps, batch_size=args.batch_size, n_epochs=1,
    device="cuda",
    policy_kwargs={"features_extractor_class": Extractor, "features_extractor_kwargs": {"width": args.width}},
)  # fmt: skip
model.learn(2 * args.n_steps * N_ENVS)
