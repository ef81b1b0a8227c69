"""The same with mistakes: an unused list, fork, vec-steps, and evaluation on the training environment."""

import stable_baselines3 as sb3
import stable_baselines3.common.callbacks as cb
from stable_baselines3.common.vec_env import SubprocVecEnv as Workers
from stable_baselines3.common.vec_env import VecMonitor
import gymnasium as gym


def maker(seed):
    def build():
        env = gym.make("Hopper-v5")
        env.reset(seed=seed)
        return env

    return build


if __name__ == "__main__":
    count = 6
    venv = VecMonitor(Workers([maker(i) for i in range(count)], start_method="fork"))
    model = sb3.SAC("MlpPolicy", venv, buffer_size=200_000)
    scores = cb.EvalCallback(venv, eval_freq=5_000)
    saves = cb.CheckpointCallback(5_000, "out")
    together = cb.CallbackList([scores, saves])
    model.learn(total_timesteps=20_000)
