"""Networks of the GPU truth runs, written as a user would write a features extractor."""

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn


class Cnn3d(BaseFeaturesExtractor):
    """`layers` of [out, kernel, stride, padding] with a ReLU after each, then an average pool and a linear layer."""

    def __init__(self, observation_space: spaces.Box, layers: list[list[int]], pool: int, features: int) -> None:
        super().__init__(observation_space, features)
        blocks: list[nn.Module] = []
        channels = observation_space.shape[0]
        for out, kernel, stride, padding in layers:
            blocks += [nn.Conv3d(channels, out, kernel, stride, padding), nn.ReLU()]
            channels = out
        head = [nn.AdaptiveAvgPool3d(pool), nn.Flatten(), nn.Linear(channels * pool**3, features), nn.ReLU()]
        self.net = nn.Sequential(*blocks, *head)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)
