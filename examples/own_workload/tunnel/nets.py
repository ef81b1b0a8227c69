"""The tunnel's network; `workload.layers` says the same as sizes."""

from __future__ import annotations

import gymnasium as gym
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn


class TunnelNet(BaseFeaturesExtractor):
    """Two convolutions and a linear layer."""

    def __init__(self, observation_space: gym.spaces.Box, features: int = 64) -> None:
        super().__init__(observation_space, features)
        convolutions = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten()
        )  # fmt: skip
        with torch.no_grad():
            width = convolutions(torch.zeros(1, *observation_space.shape)).shape[1]
        self.net = nn.Sequential(convolutions, nn.Linear(width, features), nn.ReLU())

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.net(observations)
