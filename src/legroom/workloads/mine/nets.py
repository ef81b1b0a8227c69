"""The mine's feature extractor: a 3D convolution network over the block model, in three sizes."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn


@dataclass(frozen=True)
class Size:
    """Convolutions as (channels, kernel, stride, padding), then pooling to pool³ cells and `features` outputs."""

    layers: tuple[tuple[int, int, int, int], ...]
    pool: int
    features: int


SIZES = {
    "full": Size(((32, 3, 1, 1), (64, 3, 2, 1), (128, 3, 2, 1)), pool=4, features=512),
    "small": Size(((16, 3, 1, 1), (32, 3, 2, 1), (64, 3, 2, 1)), pool=4, features=256),
    "tiny": Size(((8, 5, 2, 2), (16, 5, 2, 2)), pool=1, features=64),
}


class Cnn3d(BaseFeaturesExtractor):
    """Turns observations [B, 17, nx, ny, nz] into features [B, features]."""

    def __init__(self, observation_space: gym.spaces.Box, size: str = "full") -> None:
        if size not in SIZES:
            raise ValueError(f"size {size!r}: one of {', '.join(SIZES)}")
        spec = SIZES[size]
        super().__init__(observation_space, spec.features)
        channels = observation_space.shape[0]
        modules: list[nn.Module] = []
        for out, kernel, stride, padding in spec.layers:
            modules += [nn.Conv3d(channels, out, kernel, stride, padding), nn.ReLU()]
            channels = out
        modules += [nn.AdaptiveAvgPool3d(spec.pool), nn.Flatten()]
        modules += [nn.Linear(channels * spec.pool**3, spec.features), nn.ReLU()]
        self.net = nn.Sequential(*modules)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.net(observations)
