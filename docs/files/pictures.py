"""PPO on pictures, in four worker processes."""

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv


class Ball(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (3, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = self.np_random.integers(0, 80, 2), 0
        return self.picture(), {}

    def step(self, action):
        self.at = (self.at + (1, action - 1)) % 80
        self.steps += 1
        return self.picture(), float(self.at[1] > 40), False, self.steps == 200, {}

    def picture(self):
        picture = np.zeros((3, 84, 84), np.uint8)
        picture[:, self.at[0] : self.at[0] + 4, self.at[1] : self.at[1] + 4] = 255
        return picture


if __name__ == "__main__":
    env = make_vec_env(Ball, n_envs=4, seed=1, vec_env_cls=SubprocVecEnv)
    model = PPO("CnnPolicy", env, n_steps=1024, batch_size=256, n_epochs=1, seed=1, device="cpu")
    model.learn(4096)
    model.save("model.zip")
