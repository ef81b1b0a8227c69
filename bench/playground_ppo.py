"""A program as people write it, for `bench.playground`: brax's PPO on an environment of MuJoCo Playground.

python bench/playground_ppo.py CartpoleBalance 2048 jax
"""

import functools
import sys

from brax.training.agents.ppo import train as ppo
from mujoco_playground import registry, wrapper
from mujoco_playground.config import dm_control_suite_params

name, num_envs, physics = sys.argv[1], int(sys.argv[2]), sys.argv[3]
env = registry.load(name, config_overrides={"impl": physics})
settings = dict(dm_control_suite_params.brax_ppo_config(name))
settings.pop("network_factory", None)
settings |= {"num_envs": num_envs, "batch_size": num_envs // 2, "num_timesteps": 20_000_000}
train = functools.partial(ppo.train, **settings, wrap_env_fn=wrapper.wrap_for_brax_training, seed=1)
train(environment=env, progress_fn=lambda steps, metrics: print(steps))
