"""A trainer that keeps its parts on itself; one callback is forgotten, and frequencies are in vec-steps."""

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize


class Trainer:
    def __init__(self, env_id="Walker2d-v5", n_envs=16):
        self.env_id = env_id
        self.n_envs = n_envs
        self.env = make_vec_env(self.env_id, n_envs=self.n_envs)
        self.env = VecNormalize(self.env)
        self.eval_env = VecNormalize(make_vec_env(self.env_id), training=False)
        self.model = PPO("MlpPolicy", self.env)
        self.checkpointer = CheckpointCallback(save_freq=50_000, save_path="out")
        self.evaluator = EvalCallback(self.eval_env, eval_freq=max(50_000 // self.n_envs, 1))

    def run(self, steps):
        self.model.learn(total_timesteps=steps, callback=self.checkpointer)


if __name__ == "__main__":
    Trainer().run(1_000_000)
