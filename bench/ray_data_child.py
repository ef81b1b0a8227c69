"""The weighed side of `bench.ray_data`: real runner, learner and replay buffer of RLlib, without a cluster."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer

from bench.ray_data import ACTIONS, ROUNDS, weigh
from legroom.backends.rllib.config import make_config
from legroom.backends.rllib.items import step_nbytes
from legroom.backends.rllib.translation import rllib_plan
from legroom.model.run import Run

MINIBATCH = 64


@cache
def configured(algo: str, size: int, steps: int, envs: int) -> tuple[Any, int]:
    """Return the config of such a run, and the bytes of one of its steps."""
    spaces = {
        "observation": {"type": "box", "shape": [size], "dtype": "uint8", "low": 0, "high": 255},
        "action": {"type": "discrete", "n": ACTIONS},
    }
    hyperparams = {"n_steps": steps} if algo == "PPO" else {"buffer_size": 10**6}
    env = {"id": "bench.ray_envs:Flat", "kwargs": {"size": size}, "n_envs": envs, "spaces": spaces}
    run = Run.model_validate({
        "backend": "rllib", "algo": algo, "env": env, "policy": {"kwargs": {"net_arch": [8]}},
        "hyperparams": hyperparams | {"batch_size": MINIBATCH},
    })  # fmt: skip
    plan = rllib_plan(run)
    return make_config(run, plan, "cpu"), step_nbytes(run, plan)


@cache
def runner_of(algo: str, size: int, steps: int, envs: int) -> Any:
    runner = SingleAgentEnvRunner(config=configured(algo, size, steps, envs)[0])
    runner.sample(num_timesteps=4 * envs)  # what is made on first use is there then
    return runner


def sample(size: int, steps: int, envs: int, _: int) -> tuple[int, int, int]:
    runner, each = runner_of("PPO", size, steps, envs), configured("PPO", size, steps, envs)[1]

    def collect() -> Any:
        episodes = runner.sample(num_timesteps=steps * envs)
        runner.get_metrics()  # as every round of training asks; a runner keeps episodes until then
        return episodes

    peak, _episodes = weigh(collect)
    return steps * envs, each, peak


def learn(size: int, steps: int, envs: int, epochs: int) -> tuple[int, int, int]:
    each = configured("PPO", size, steps, envs)[1]
    learner, episodes = _learner(size, steps, envs)

    def update() -> None:
        learner.update(
            episodes=list(episodes), timesteps={"num_env_steps_sampled_lifetime": 1}, num_epochs=epochs,
            minibatch_size=MINIBATCH, shuffle_batch_per_epoch=True,
        )  # fmt: skip

    peak, _ = weigh(update)
    return steps * envs, each, peak


@cache
def _learner(size: int, steps: int, envs: int) -> tuple[Any, list[Any]]:
    config, _ = configured("PPO", size, steps, envs)
    spaces = (config.observation_space, config.action_space)
    learner = config.build_learner(env=None, spaces={"__env__": spaces, "default_policy": spaces})
    return learner, [_episode(config, size, steps) for _ in range(envs)]


def _episode(config: Any, size: int, steps: int) -> Any:
    outputs = {"action_dist_inputs": [np.zeros(ACTIONS, np.float32)] * steps, "action_logp": [np.float32(0)] * steps}
    return SingleAgentEpisode(
        observations=[np.zeros(size, np.uint8)] * (steps + 1), actions=[0] * steps, rewards=[0.0] * steps,
        infos=[{}] * (steps + 1), extra_model_outputs=outputs, truncated=True, len_lookback_buffer=0,
        observation_space=config.observation_space, action_space=config.action_space,
    ).to_numpy()  # fmt: skip


def replay(size: int, steps: int, envs: int, _: int) -> tuple[int, int, int]:
    runner, each = runner_of("DQN", size, steps, envs), configured("DQN", size, steps, envs)[1]
    buffer = EpisodeReplayBuffer(capacity=10**6)

    def fill() -> None:
        for _ in range(ROUNDS):
            buffer.add(runner.sample(num_timesteps=steps * envs))
            runner.get_metrics()

    peak, _ = weigh(fill)
    return buffer.get_num_timesteps(), each, peak


CASES = {"sample": sample, "learn": learn, "replay": replay}
