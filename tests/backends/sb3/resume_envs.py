"""Small environments that offer their state, and what makes a model of each algorithm on them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from sb3_contrib import QRDQN, TQC, TRPO, CrossQ, MaskablePPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecMonitor, VecNormalize

from legroom.backends.sb3.lean_replay import LeanReplayBuffer


class Walk(gymnasium.Env):
    """A noisy walk towards a target that moves at every reset; ends at random, or when it takes too long.

    Args:
        limit: steps after which an episode is cut off, counted here so that no wrapper is needed.
        picture: shows a picture of 36 x 36 instead of four numbers.
        part: what is shown is a part of a Dict.
    """

    def __init__(self, discrete: bool = True, limit: int = 17, picture: bool = False, part: bool = False) -> None:
        self.limit, self.picture, self.part = limit, picture, part
        self.action_space = spaces.Discrete(4) if discrete else spaces.Box(-1, 1, (2,), np.float32)
        shown: spaces.Space = (
            spaces.Box(0, 255, (1, 36, 36), np.uint8) if picture else spaces.Box(-9, 9, (4,), np.float32)
        )
        self.observation_space = spaces.Dict({"a": shown, "b": spaces.Discrete(3)}) if part else shown
        self.place, self.target, self.steps = np.zeros(2), np.zeros(2), 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.place, self.target, self.steps = np.zeros(2), self.np_random.normal(size=2), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        move = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)])[int(action)] if np.ndim(action) == 0 else action
        self.place = self.place + 0.3 * np.asarray(move) + self.np_random.normal(size=2) * 0.1
        self.steps += 1
        reward = -float(np.linalg.norm(self.place - self.target))
        return self._observe(), reward, bool(self.np_random.random() < 0.03), self.steps >= self.limit, {}

    def action_masks(self) -> np.ndarray:
        return np.array([True, self.place[0] > -1, True, self.place[1] > -1])

    def _observe(self) -> Any:
        shown: Any = np.concatenate([self.place, self.target]).astype(np.float32).clip(-9, 9)
        if self.picture:
            shown = np.zeros((1, 36, 36), np.uint8)
            y, x = (np.clip(self.place * 3 + 18, 0, 32)).astype(int)
            shown[0, y : y + 4, x : x + 4] = 200
        return {"a": shown, "b": self.steps % 3} if self.part else shown


class Remembered(Walk):
    """The walk, offering its state; its random numbers are legroom's to keep."""

    def get_state(self) -> dict[str, Any]:
        return {"place": self.place, "target": self.target, "steps": self.steps}

    def set_state(self, state: dict[str, Any]) -> None:
        self.place, self.target, self.steps = state["place"], state["target"], state["steps"]


def envs(n_envs: int = 2, **kwargs: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda: Remembered(**kwargs) for _ in range(n_envs)])


ON = {"n_steps": 32, "batch_size": 16}
OFF = {"buffer_size": 300, "learning_starts": 40, "batch_size": 16, "train_freq": 4}


def _model(algorithm: Any, vec_env: Any = None, policy: str = "MlpPolicy", **arguments: Any) -> Any:
    vec_env = envs() if vec_env is None else vec_env
    return algorithm(policy, vec_env, policy_kwargs={"net_arch": [16]}, seed=3, device="cpu", **arguments)


def _drift() -> OrnsteinUhlenbeckActionNoise:
    return OrnsteinUhlenbeckActionNoise(np.zeros(2), 0.3 * np.ones(2))


# name -> (makes a fresh model, steps in all, steps after which it is interrupted)
CASES: dict[str, tuple[Any, int, int]] = {
    "ppo": (lambda: _model(PPO, **ON, n_epochs=2), 256, 128),
    "ppo_schedules": (
        lambda: _model(
            PPO, **ON, n_epochs=1, learning_rate=lambda left: 1e-3 * left, clip_range=lambda left: 0.2 * left
        ),
        256, 128,
    ),
    "ppo_wrapped": (
        lambda: _model(PPO, VecNormalize(VecFrameStack(VecMonitor(envs()), 3)), **ON, n_epochs=1), 256, 128,
    ),
    "ppo_dict": (
        lambda: _model(PPO, VecNormalize(envs(part=True), norm_obs_keys=["a"]), "MultiInputPolicy", **ON, n_epochs=1),
        256, 128,
    ),
    "ppo_sde": (lambda: _model(PPO, envs(discrete=False), **ON, n_epochs=1, use_sde=True, sde_sample_freq=5), 256, 128),
    "maskable": (lambda: _model(MaskablePPO, **ON, n_epochs=1), 256, 128),
    "a2c": (lambda: _model(A2C), 200, 110),
    "trpo": (lambda: _model(TRPO, **ON, n_critic_updates=1), 256, 128),
    "dqn": (lambda: _model(DQN, **OFF, target_update_interval=50), 600, 440),
    "dqn_one_array": (
        lambda: _model(DQN, **OFF, optimize_memory_usage=True,
                       replay_buffer_kwargs={"handle_timeout_termination": False}), 600, 440,
    ),
    "dqn_n_steps": (lambda: _model(DQN, envs(1), **OFF, n_steps=3), 400, 240),
    "dqn_dict": (lambda: _model(DQN, envs(part=True), "MultiInputPolicy", **OFF), 400, 240),
    "dqn_lean": (lambda: _model(DQN, envs(picture=True), **OFF, replay_buffer_class=LeanReplayBuffer), 1000, 840),
    "dqn_normalized": (lambda: _model(DQN, VecNormalize(envs()), **OFF), 300, 200),
    "qrdqn": (lambda: _model(QRDQN, **OFF), 200, 120),
    "sac": (lambda: _model(SAC, envs(discrete=False), **OFF), 200, 120),
    "sac_sde": (lambda: _model(SAC, envs(discrete=False), **OFF, use_sde=True), 160, 100),
    "td3": (lambda: _model(TD3, envs(discrete=False), **OFF, action_noise=_drift()), 200, 120),
    "td3_episodes": (
        lambda: _model(TD3, envs(1, discrete=False), **{**OFF, "train_freq": (1, "episode")}, action_noise=_drift()),
        200, 120,
    ),
    "tqc": (lambda: _model(TQC, envs(discrete=False), **OFF), 120, 80),
    "crossq": (lambda: _model(CrossQ, envs(discrete=False), **OFF), 120, 80),
}  # fmt: skip
