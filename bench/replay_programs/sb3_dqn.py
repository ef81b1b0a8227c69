"""SB3's DQN on pictures, in two worker processes."""

import argparse

from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import SubprocVecEnv
from toy_envs import Frames

parser = argparse.ArgumentParser()
parser.add_argument("--buffer-size", type=int, default=8_000)
parser.add_argument("--learning-starts", type=int, default=200)
parser.add_argument("--total-timesteps", type=int, default=8_300)
args = parser.parse_args()

if __name__ == "__main__":
    env = SubprocVecEnv([Frames, Frames], start_method="spawn")
    model = DQN(
        "CnnPolicy", env, buffer_size=args.buffer_size, learning_starts=args.learning_starts, train_freq=16,
        policy_kwargs={"features_extractor_kwargs": {"features_dim": 128}}, target_update_interval=1000,
    )  # fmt: skip
    model.learn(args.total_timesteps)
    env.close()
