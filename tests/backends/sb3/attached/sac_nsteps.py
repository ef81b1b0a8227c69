"""SAC with returns over three steps on gymnasium's Pendulum, its observations repeated to the size of a picture."""

import gymnasium as gym
import numpy as np
from parts import scale, tell
from stable_baselines3 import SAC

env = gym.wrappers.TransformObservation(
    gym.make("Pendulum-v1"),
    lambda observation: np.tile(observation, 400).astype(np.float32),
    gym.spaces.Box(-8, 8, (1200,), np.float32),
)
model = SAC("MlpPolicy", env, buffer_size=200, learning_starts=50, n_steps=3, seed=3, device="cpu",
            policy_kwargs={"net_arch": [32]})  # fmt: skip
model.learn(scale(300, 3000))
tell(model)
