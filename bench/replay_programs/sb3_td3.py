"""SB3's TD3 on long vectors, with its environment wrapped as people do."""

import argparse

import numpy as np
from stable_baselines3 import TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import SubprocVecEnv
from toy_envs import Numbers

parser = argparse.ArgumentParser()
parser.add_argument("--buffer-size", type=int, default=40_000)
parser.add_argument("--learning-starts", type=int, default=1_000)
parser.add_argument("--total-timesteps", type=int, default=40_400)
args = parser.parse_args()

if __name__ == "__main__":
    env = make_vec_env(Numbers, n_envs=4, vec_env_cls=SubprocVecEnv, env_kwargs={"size": 1500})
    noise = NormalActionNoise(np.zeros(4), 0.1 * np.ones(4))
    model = TD3(
        "MlpPolicy", env, buffer_size=args.buffer_size, learning_starts=args.learning_starts, train_freq=100,
        action_noise=noise, gradient_steps=4, batch_size=128,
    )  # fmt: skip
    model.learn(args.total_timesteps)
    env.close()
