"""Training on LeanVecEnv ends with the very parameters that training on DummyVecEnv ends with."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecNormalize
from worker_envs import InPlace, Walk, close_kindly

from legroom import LeanReplayBuffer, LeanVecEnv, lean
from legroom.sharing.messages import WorkerDied

SMALL = {"net_arch": [8]}


def fingerprint(model: Any) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(model.policy.state_dict().items()):
        digest.update(name.encode() + tensor.detach().numpy().tobytes())
    return digest.hexdigest()


def ppo(env: VecEnv, policy: str = "MlpPolicy", make: Any = PPO) -> Any:
    return make(policy, env, n_steps=32, batch_size=16, n_epochs=2, seed=3, device="cpu", policy_kwargs=SMALL)


def dqn(env: VecEnv, policy: str = "MlpPolicy", **settings: Any) -> DQN:
    return DQN(
        policy, env, learning_starts=20, train_freq=4, batch_size=16, buffer_size=200, target_update_interval=30,
        exploration_fraction=0.5, seed=3, device="cpu", policy_kwargs=SMALL, **settings,
    )  # fmt: skip


def stacked_and_normalized(env: VecEnv) -> VecEnv:
    return VecNormalize(VecFrameStack(env, 3))


def as_it_is(env: VecEnv) -> VecEnv:
    return env


CASES: dict[str, tuple[Callable[..., Any], Callable[[VecEnv], VecEnv], Callable[[], Any], int, int]] = {
    "PPO, envs share workers": (ppo, as_it_is, Walk, 4, 3),
    "PPO, stacked and normalized": (ppo, stacked_and_normalized, Walk, 2, 2),
    "PPO, dict": (partial(ppo, policy="MultiInputPolicy"), as_it_is, partial(Walk, "small dict"), 2, 2),
    "PPO, in place, lean storage": (partial(ppo, make=partial(lean, PPO)), as_it_is, InPlace, 2, 1),
    "MaskablePPO": (partial(ppo, make=MaskablePPO), as_it_is, Walk, 2, 2),
    "DQN, in place, lean storage": (partial(dqn, replay_buffer_class=LeanReplayBuffer), as_it_is, InPlace, 2, 2),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_parameters_are_those_of_DummyVecEnv(case: str) -> None:
    build, wrap, env_fn, n_envs, per_worker = CASES[case]
    ends, returns = [], []
    for start in (
        lambda: LeanVecEnv([env_fn] * n_envs, envs_per_worker=per_worker),
        lambda: DummyVecEnv([lambda: Monitor(env_fn())] * n_envs),
    ):
        env = wrap(start())
        torch.manual_seed(0)
        model = build(env)
        untrained = fingerprint(model)
        model.learn(192)
        ends.append(fingerprint(model))
        returns.append([(episode["r"], episode["l"]) for episode in model.ep_info_buffer])
        env.close()
        assert ends[-1] != untrained
    assert ends[0] == ends[1]
    assert returns[0] == returns[1]
    assert returns[0]


def test_evaluation_sees_whole_episodes_and_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    env = LeanVecEnv([partial(Walk, limit=5)] * 2)
    model = ppo(env)
    _, lengths = evaluate_policy(model, env, n_eval_episodes=4, return_episode_rewards=True)
    assert all(0 < length <= 5 for length in lengths)
    env.close()
    assert not [warning for warning in recwarn if "Monitor" in str(warning.message)]


def test_a_worker_killed_in_the_middle_of_training_ends_it_at_once() -> None:
    env = LeanVecEnv([Walk] * 2)

    def kill(variables: dict[str, Any], _: Any) -> bool:
        if variables["self"].num_timesteps == 20:
            os.kill(env._crew.workers[1].pid, signal.SIGKILL)
        return True

    with pytest.raises(WorkerDied, match="env 1"):
        ppo(env).learn(1000, callback=kill)
    close_kindly(env)
