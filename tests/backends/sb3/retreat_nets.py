"""Networks whose updates run out of memory: one that fails at every k-th minibatch, and one that is very wide."""

from __future__ import annotations

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import FlattenExtractor

WIDTH = 100_000
NO_MEMORY = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes."


class Failing(FlattenExtractor):
    """Fails in every k-th minibatch, `times` times in a row; passes that collect or look ahead do not count.

    A minibatch is told from the one before by the optimizer's step in between, which writes to a parameter that has no
    effect.
    """

    def __init__(self, observation_space: spaces.Space, every: int = 0, times: int = 1) -> None:
        super().__init__(observation_space)
        self.every, self.times = every, times
        self.pulse = torch.nn.Parameter(torch.zeros(1))
        self._seen, self._left, self._steps = -1, 0, -1

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return the observations, or fail."""
        result = super().forward(observations) + 0 * self.pulse
        if self.every and self.training and torch.is_grad_enabled():
            if self.pulse._version != self._steps:
                self._seen, self._steps = self._seen + 1, self.pulse._version
                self._left = self.times if self._seen % self.every == self.every - 1 else 0
            if self._left:
                self._left -= 1
                raise RuntimeError(NO_MEMORY)
        return result


class Wide(FlattenExtractor):
    """One layer so wide that its outputs for a minibatch are most of what an update takes: WIDTH x 4 B per sample."""

    def __init__(self, observation_space: spaces.Space) -> None:
        super().__init__(observation_space)
        self.layer = torch.nn.Linear(self._features_dim, WIDTH)
        self._features_dim = WIDTH

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return what the layer makes of the observations."""
        return torch.tanh(self.layer(super().forward(observations)))
