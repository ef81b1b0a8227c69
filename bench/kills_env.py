"""A small environment whose state can be taken and put back, and the trainings that `bench.kills` kills."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Drift(gym.Env):
    """A point that drifts; pushing it towards the middle is rewarded. Episodes end by chance and by a limit."""

    def __init__(self, continuous: bool = False) -> None:
        self.observation_space = gym.spaces.Box(-10.0, 10.0, (6,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else gym.spaces.Discrete(3)
        self._at = np.zeros(6, np.float32)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._at = self.np_random.normal(size=6).astype(np.float32)
        self._steps = 0
        return self._at.copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        push = float(np.asarray(action).reshape(-1)[0]) - (
            0.0 if isinstance(self.action_space, gym.spaces.Box) else 1.0
        )
        self._at = np.clip(self._at + self.np_random.normal(size=6) * 0.1 + push * 0.2, -10, 10).astype(np.float32)
        self._steps += 1
        ended = bool(self.np_random.random() < 0.02)
        return self._at.copy(), -float(np.abs(self._at).mean()), ended, self._steps >= 60, {}

    def get_state(self) -> dict[str, Any]:
        return {"at": self._at.copy(), "steps": self._steps}

    def set_state(self, state: dict[str, Any]) -> None:
        self._at, self._steps = np.array(state["at"], np.float32), int(state["steps"])


_ENV = {"id": "bench.kills_env:Drift", "n_envs": 2, "workers": "light"}
_OFF_POLICY = {"learning_starts": 50, "buffer_size": 300, "batch_size": 32, "train_freq": 8}
RUNS: dict[str, dict[str, Any]] = {
    "PPO, VecNormalize, 2 light workers": {
        "algo": "PPO", "seed": 3, "total_timesteps": 3000, "env": _ENV | {"normalize": True},
        "hyperparams": {"n_steps": 50, "batch_size": 25, "n_epochs": 2, "learning_rate": "lin_3e-4"},
    },
    "PPO, lean rollout, within iterations": {
        "algo": "PPO", "seed": 3, "total_timesteps": 3000, "env": _ENV | {"frame_stack": 40, "workers": "dummy"},
        "hyperparams": {"n_steps": 500, "batch_size": 50, "n_epochs": 4}, "memory": {"rollout": "lean"},
    },
    "DQN, lean replay, frame stack": {
        "algo": "DQN", "seed": 4, "total_timesteps": 1500, "env": _ENV | {"frame_stack": 2},
        "hyperparams": _OFF_POLICY | {"target_update_interval": 100}, "memory": {"replay": "lean"},
    },
    "SAC, plain replay": {
        "algo": "SAC", "seed": 5, "total_timesteps": 800,
        "env": _ENV | {"kwargs": {"continuous": True}, "workers": "dummy"}, "hyperparams": _OFF_POLICY,
    },
}  # fmt: skip
