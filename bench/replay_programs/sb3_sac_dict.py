"""SB3's SAC on a Dict observation, in two worker processes."""

import argparse

from stable_baselines3 import SAC
from stable_baselines3.common.vec_env import SubprocVecEnv
from toy_envs import Mixed

parser = argparse.ArgumentParser()
parser.add_argument("--buffer-size", type=int, default=16_000)
parser.add_argument("--learning-starts", type=int, default=400)
parser.add_argument("--total-timesteps", type=int, default=16_300)
args = parser.parse_args()

if __name__ == "__main__":
    env = SubprocVecEnv([Mixed, Mixed], start_method="forkserver")
    model = SAC(
        "MultiInputPolicy", env, buffer_size=args.buffer_size, learning_starts=args.learning_starts, train_freq=32,
        batch_size=64, policy_kwargs={"net_arch": [64, 64], "features_extractor_kwargs": {"cnn_output_dim": 32}},
    )  # fmt: skip
    model.learn(args.total_timesteps)
    env.close()
