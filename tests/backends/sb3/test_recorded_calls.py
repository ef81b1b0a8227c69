"""What a guest writes down of a constructor's call is the run that the live model is."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

pytest.importorskip("stable_baselines3")
import gymnasium as gym
import numpy as np
from stable_baselines3 import DQN, PPO
from stable_baselines3.common import base_class
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from legroom.backends.sb3.constructor_calls import run_from_model, run_from_record
from legroom.hollow import model_calls


class Frames(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(0, 255, (1, 36, 36), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((1, 36, 36), np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.zeros((1, 36, 36), np.uint8), 0.0, False, False, {}


class Journal:
    def __init__(self) -> None:
        self.pid, self.messages = os.getpid(), []

    def json(self, kind: str, **content: Any) -> None:
        self.messages.append(json.loads(json.dumps({"kind": kind, **content})))


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    kept = base_class.BaseAlgorithm
    monkeypatch.setattr(kept, "__init__", kept.__init__)
    monkeypatch.setattr(kept, "_setup_learn", kept._setup_learn)
    found = Journal()
    model_calls.on_base_class(found, base_class)
    return found


def comparable(run: Any) -> Any:
    return {key: value for key, value in run.model_dump().items() if key not in ("hyperparams", "name", "device")}


def test_pictures_in_a_stack(journal: Journal) -> None:
    env = VecFrameStack(DummyVecEnv([Frames] * 2), 4, channels_order="first")
    model = PPO("CnnPolicy", env, n_steps=64, batch_size=32, policy_kwargs={"net_arch": [16]}, device="cpu")
    (call,) = journal.messages
    run = run_from_record(call)
    assert run is not None and comparable(run) == comparable(run_from_model(model))
    assert run.hyperparams == {"n_steps": 64, "batch_size": 32}
    assert (run.env.frame_stack, run.env.n_envs, run.policy.kwargs) == (4, 2, {"net_arch": [16]})
    assert call["file"] == __file__


def test_how_long_it_learns_and_where_its_buffer_is(journal: Journal) -> None:
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=500, learning_starts=1000, device="cpu")
    model.learn(4)
    call, learn = journal.messages
    assert (learn["id"], learn["total_timesteps"]) == (call["id"], 4)
    assert any(file.endswith("buffers.py") for file in learn["buffer_files"])
    run = run_from_record({**call, "total_timesteps": 4})
    assert run is not None and (run.total_timesteps, run.env.id) == (4, "CartPole-v1")
    assert run.hyperparams == {"buffer_size": 500, "learning_starts": 1000}


def test_a_subclass_and_its_wrappers(journal: Journal) -> None:
    class Mine(PPO):
        def __init__(self, extra: int, **kwargs: Any) -> None:
            super().__init__("MlpPolicy", VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")])), **kwargs)

    Mine(3, n_steps=32, batch_size=32, learning_rate=lambda left: left, device="cpu")
    (call,) = journal.messages
    run = run_from_record(call)
    assert run is not None and run.algo == "PPO" and run.env.normalize == {"norm_obs": True, "norm_reward": True}


def test_others_are_none() -> None:
    assert run_from_record({"bases": [["somewhere", "PPO"]], "env": None}) is None
    assert run_from_record({}) is None
