"""Settings in a dictionary, as frameworks of configuration produce; sound."""

from stable_baselines3 import TD3
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise

CONFIG = {
    "env": {"id": "Pendulum-v1", "n_envs": 4},
    "train": {"total_timesteps": 50_000, "eval_freq": 5_000},
    "model": {"buffer_size": 50_000, "learning_starts": 1_000},
}


def run(cfg: dict) -> float:
    env = make_vec_env(cfg["env"]["id"], n_envs=cfg["env"]["n_envs"])
    test_env = make_vec_env(cfg["env"]["id"], n_envs=1)
    model = TD3("MlpPolicy", env, **cfg["model"])
    every = cfg["train"]["eval_freq"] // cfg["env"]["n_envs"]
    callback = EvalCallback(test_env, eval_freq=every)
    model.learn(cfg["train"]["total_timesteps"], callback=callback)
    return callback.best_mean_reward


if __name__ == "__main__":
    print(run(CONFIG))
