"""Small environments and models for the tests of DoubleDQN."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.dqn.policies import DQNPolicy

CELLS, CHOSEN = 6, 2
FAST: dict[str, Any] = dict(
    seed=5, device="cpu", buffer_size=120, learning_starts=30, batch_size=16, train_freq=2, target_update_interval=30,
    exploration_fraction=0.6, policy_kwargs={"net_arch": [16]}, learning_rate=1e-3,
)  # fmt: skip


class Cells(gymnasium.Env):
    """Shows what each of six cells pays, and marks others as closed; an action is a cell, or a set of two.

    Args:
        chosen: how many cells are an action.
        picture: shows them as a picture, large enough for lean storage to compress.
    """

    def __init__(self, chosen: int = CHOSEN, picture: bool = False) -> None:
        self.chosen, self.picture = chosen, picture
        shape = (1, 36, 36) if picture else (2 * CELLS,)
        self.observation_space = spaces.Box(0, 255 if picture else 1, shape, np.uint8 if picture else np.float32)
        self.action_space = spaces.Discrete(CELLS) if chosen == 1 else spaces.MultiDiscrete([CELLS] * chosen)
        self.taken: list[np.ndarray] = []
        self.closed_taken = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        cells = np.atleast_1d(np.asarray(action))
        assert cells.shape == (self.chosen,)
        assert len(set(cells.tolist())) == self.chosen
        self.taken.append(cells)
        self.closed_taken += int((~self.open[cells]).sum())
        reward = float(self.pays[cells].mean())
        self.steps += 1
        over = bool(self.np_random.random() < 0.1)
        return self._show(), reward, over, not over and self.steps >= 12, {}

    def _show(self) -> np.ndarray:
        self.pays = self.np_random.random(CELLS).round(2).astype(np.float32)
        self.open = self.np_random.random(CELLS) < 0.6
        self.open[self.np_random.permutation(CELLS)[:3]] = True
        if not self.picture:
            return np.concatenate([self.pays, self.open]).astype(np.float32)
        shown = np.zeros((1, 36, 36), np.uint8)
        shown[0, :CELLS] = (255 * self.pays[:, None]).astype(np.uint8)
        return shown

    def get_state(self) -> dict[str, Any]:
        return {"pays": self.pays, "open": self.open, "steps": self.steps}

    def set_state(self, state: dict[str, Any]) -> None:
        self.pays, self.open, self.steps = state["pays"], state["open"], state["steps"]


class OpenCells(DQNPolicy):
    """Chooses open cells only; the second half of an observation says which are."""

    @staticmethod
    def action_mask(observations: torch.Tensor) -> torch.Tensor:
        return observations[:, CELLS:] > 0


def cells(n_envs: int = 2, **kwargs: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda: Cells(**kwargs)] * n_envs)


def parameters(model: Any) -> torch.Tensor:
    """Return all parameters of the policy, targets included, one after the other."""
    return torch.cat([tensor.detach().flatten() for tensor in model.policy.state_dict().values()])


def fixed(model: Any, online: list[float], target: list[float]) -> None:
    """Let the networks (of `net_arch` []) show these values, whatever they see."""
    for net, values in ((model.q_net, online), (model.q_net_target, target)):
        with torch.no_grad():
            net.q_net[-1].weight.zero_()
            net.q_net[-1].bias.copy_(torch.tensor(values))
