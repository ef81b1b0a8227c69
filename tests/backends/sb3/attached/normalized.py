"""PPO with VecNormalize on observations and rewards, in worker processes whose observations are float64."""

import gymnasium as gym
import numpy as np
from parts import scale, tell
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize


class Wide(gym.ObservationWrapper):
    """Returns float64, against its space: SubprocVecEnv hands that on."""

    def observation(self, observation):
        return np.asarray(observation, np.float64) / 3


if __name__ == "__main__":
    env = make_vec_env("CartPole-v1", 3, seed=1, vec_env_cls=SubprocVecEnv, wrapper_class=Wide)
    env = VecNormalize(env)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=2, seed=3, device="cpu")
    model.learn(scale(576, 6000))
    print("statistics", env.obs_rms.mean.tolist(), env.ret_rms.var, env.obs_rms.mean.dtype)  # noqa: T201
    tell(model)
    env.close()
