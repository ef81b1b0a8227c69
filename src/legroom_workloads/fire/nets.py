"""The wildfire agent's networks: one Q value per raster cell, from a basic or an enhanced convolution network.

The network's output *is* the Q function (one value per cell), so `CellPolicy` has no fully connected head: a linear
layer from 2,500 cells to 2,500 actions alone would have more parameters than the whole enhanced network. Groups
instead of batches are normalised, so that a minibatch can be processed in pieces without changing its gradient.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import nn

from legroom_workloads.fire.observation import FIRST_LINE

WIDTH = 128
RESIDUAL_BLOCKS = 8


class FireNet(BaseFeaturesExtractor):
    """Turns rasters [B, C, H, W] into one value per cell [B, H·W].

    Without any of the switches it is the basic network (3 convolutions, 58 thousand parameters); with all of them
    the enhanced one (3.2 million).
    """

    def __init__(
        self,
        observation_space: gym.spaces.Box,
        residual: bool = True,
        multi_scale: bool = True,
        attention: bool = True,
    ) -> None:
        channels, height, width = observation_space.shape
        super().__init__(observation_space, height * width)
        if not (residual or multi_scale or attention):
            self.body: nn.Module = nn.Sequential(
                _conv(channels, 32), nn.ReLU(), _conv(32, 64), nn.ReLU(), _conv(64, 64), nn.ReLU(), nn.Conv2d(64, 1, 1)
            )
            return
        modules: list[nn.Module] = [_conv(channels, WIDTH), _norm(), nn.ReLU()]
        if multi_scale:
            modules.append(MultiScale())
        if residual:
            modules += [Residual() for _ in range(RESIDUAL_BLOCKS)]
        if attention:
            modules.append(Attention())
        modules += [_conv(WIDTH, WIDTH), nn.ReLU(), nn.Conv2d(WIDTH, 1, 1)]
        self.body = nn.Sequential(*modules)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.body(observations).flatten(1)


class Residual(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.path = nn.Sequential(_conv(WIDTH, WIDTH), _norm(), nn.ReLU(), _conv(WIDTH, WIDTH), _norm())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.path(x))


class MultiScale(nn.Module):
    """Neighbourhoods of 3, 5 and 7 cells side by side, merged."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(_conv(WIDTH, WIDTH // 2, kernel) for kernel in (3, 5, 7))
        self.merge = nn.Conv2d(3 * WIDTH // 2, WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.merge(torch.cat([branch(x) for branch in self.branches], dim=1)))


class Attention(nn.Module):
    """Weighs channels, then cells (both from the feature map itself)."""

    def __init__(self) -> None:
        super().__init__()
        self.channels = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(WIDTH, WIDTH // 8, 1), nn.ReLU(), nn.Conv2d(WIDTH // 8, WIDTH, 1)
        )
        self.cells = nn.Conv2d(WIDTH, 1, 7, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * torch.sigmoid(self.channels(x))
        return x * torch.sigmoid(self.cells(x))


class CellQNetwork(QNetwork):
    """A Q network whose features are the Q values."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.q_net = nn.Identity()  # type: ignore[assignment]


class CellPolicy(DQNPolicy):
    """SB3's DQN policy with one Q value per cell, for the cells in which a break can be cut."""

    @staticmethod
    def action_mask(observations: torch.Tensor) -> torch.Tensor:
        """Return where fire runs, bool [B, H·W]: what does not burn and what is a break already is not chosen.

        It is `FireEnv.action_masks()` read from the fire lines, which know the moisture as the fuel model does not: wet
        fuel does not burn either. Lines are shown in cm/min, so that a cell slower than half of one counts as still.
        """
        return (observations[:, FIRST_LINE:] > 0).any(dim=1).flatten(1)

    def make_q_net(self) -> CellQNetwork:
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return CellQNetwork(**arguments).to(self.device)


def _conv(inputs: int, outputs: int, kernel: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)


def _norm() -> nn.GroupNorm:
    return nn.GroupNorm(8, WIDTH)
