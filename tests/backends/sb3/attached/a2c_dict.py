"""A2C on a Dict of a picture and a vector, in several environments of one process."""

import gymnasium as gym
import numpy as np
from parts import scale, tell
from pictures import Pictures
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env


class Both(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        vector = gym.spaces.Box(0, 100, (2,), np.float32)
        self.observation_space = gym.spaces.Dict({"picture": env.observation_space, "vector": vector})

    def observation(self, picture):
        return {"picture": picture, "vector": np.array([self.unwrapped.t, self.unwrapped.at], np.float32)}


env = make_vec_env(Pictures, 3, seed=1, wrapper_class=Both)
model = A2C("MultiInputPolicy", env, n_steps=16, seed=3, device="cpu")
model.learn(scale(480, 4800))
tell(model)
