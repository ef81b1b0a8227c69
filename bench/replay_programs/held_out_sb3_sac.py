"""SB3's SAC behind a function and a callback, as scripts grow to be."""

import argparse

import gymnasium as gym
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from toy_envs import Numbers


class Log(BaseCallback):
    def _on_step(self):
        return True


def make(size):
    return lambda: Monitor(gym.wrappers.TimeLimit(Numbers(size), 150))


def train(buffer, steps):
    env = DummyVecEnv([make(2100) for _ in range(3)])
    model = SAC("MlpPolicy", env, buffer_size=buffer, learning_starts=600, train_freq=60, batch_size=256, verbose=0)
    model.learn(steps, callback=Log())
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--buffer", type=int, default=50_000)
    parser.add_argument("--steps", type=int, default=50_400)
    given = parser.parse_args()
    train(given.buffer, given.steps)
