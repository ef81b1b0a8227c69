"""brax PPO: the first training is fine, the others break its assertion."""

import functools

from brax import envs
from brax.training.agents.ppo import train as ppo
from brax.training.agents.sac import train as sac

NUM_ENVS = 1024

env = envs.get_environment("ant")
make_inference_fn, params, _ = ppo.train(
    environment=env,
    num_timesteps=50_000_000,
    num_envs=NUM_ENVS,
    num_eval_envs=64,
    batch_size=256,
    num_minibatches=4,
    unroll_length=10,
)

train_fn = functools.partial(
    ppo.train,
    num_timesteps=30_000_000,
    num_envs=512,
    batch_size=128,
    num_minibatches=2,
)
train_fn(environment=env)

settings = {"num_envs": NUM_ENVS, "batch_size": 128, "num_minibatches": 4, "num_eval_envs": 32}
ppo.train(env, 1_000_000, **settings)

sac.train(environment=env, num_timesteps=20_000_000, episode_length=1000, num_envs=64, batch_size=256)
