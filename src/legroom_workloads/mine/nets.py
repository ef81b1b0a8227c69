"""The mine's feature extractor: a 3D convolution network over the block model, in three sizes.

The observation is raw: tonnes in hundreds of thousands stand beside molybdenum in hundredths of a per cent. Networks
want numbers around one, so each channel is multiplied by a fixed constant; but a scaled copy of the observations would
be as large as the minibatch itself. A convolution is linear, so the constants go into its weights instead, conv(s * x,
w) = conv(x, s * w): the same numbers for a few kilobytes. What is stored, trained and counted are the unscaled
weights.
"""

from __future__ import annotations

import gymnasium as gym
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn
from torch.nn.functional import conv3d
from torch.utils.checkpoint import checkpoint

from legroom_workloads.mine.layers import CHECKPOINTED_SAMPLES, SIZES

# One over a large but usual value of each channel of MineEnv's observation, in its order.
SCALES = {
    "cu": 1 / 1.0,  # %
    "mo": 1 / 0.03,  # %
    "as": 1 / 0.02,  # %
    "clays": 1 / 5.0,  # %
    "bwi": 1 / 15.0,  # kWh/t
    "rec": 1 / 100.0,  # %
    "chalcocite": 1 / 1.0,  # %, and so the minerals that follow
    "bornite": 1 / 1.0,
    "chalcopyrite": 1 / 2.0,
    "tennantite": 1 / 0.1,
    "molibdenite": 1 / 0.05,
    "pyrite": 1 / 5.0,
    "ton": 1e-6,  # t: of a block of the coarse grids; on the finest grid it is a constant anyway
    "mined": 1.0,
    "day": 1 / 10_000.0,  # about the life of a mine, 27 years
    "destination": 1 / 2.0,
    "upl": 1.0,
}


class Cnn3d(BaseFeaturesExtractor):
    """Turns observations [B, 17, nx, ny, nz] into features [B, features].

    Args:
        size: "full", "small" or "tiny".
        checkpointing: keep no activation of the convolutions for the backward pass, but compute them again there, a few
            samples at a time. Layer by layer would not help: the first one's output is most of what is kept, and its
            own backward pass needs all of it at once. The gradients are the same up to the rounding of their sum over
            the minibatch; the price is a second forward pass.

    Raises:
        ValueError: a size that does not exist.
    """

    scale: torch.Tensor

    def __init__(self, observation_space: gym.spaces.Box, size: str = "full", *, checkpointing: bool = False) -> None:
        if size not in SIZES:
            raise ValueError(f"size {size!r}: one of {', '.join(SIZES)}")
        spec = SIZES[size]
        super().__init__(observation_space, spec.features)
        channels = observation_space.shape[0]
        # other channels than the mine's are taken as they are; a constant of the code is not part of a checkpoint
        scale = torch.tensor(list(SCALES.values())) if channels == len(SCALES) else torch.ones(channels)
        self.register_buffer("scale", scale.reshape(1, -1, 1, 1, 1), persistent=False)
        self.checkpointing = checkpointing
        modules: list[nn.Module] = []
        for out, kernel, stride, padding in spec.layers:
            modules += [nn.Conv3d(channels, out, kernel, stride, padding), nn.ReLU()]
            channels = out
        modules += [nn.AdaptiveAvgPool3d(spec.pool), nn.Flatten()]
        modules += [nn.Linear(channels * spec.pool**3, spec.features), nn.ReLU()]
        self.net = nn.Sequential(*modules)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if self.checkpointing and torch.is_grad_enabled():
            pieces = observations.split(CHECKPOINTED_SAMPLES)
            pooled = torch.cat([checkpoint(self._pooled, piece, use_reentrant=False) for piece in pieces])
        else:
            pooled = self._pooled(observations)
        return self.net[-2:](pooled)

    def _pooled(self, observations: torch.Tensor) -> torch.Tensor:
        """Return what the convolutions see, pooled and flat."""
        first = self.net[0]
        assert isinstance(first, nn.Conv3d)
        found = conv3d(observations, first.weight * self.scale, first.bias, first.stride, first.padding)
        return self.net[1:-2](found)
