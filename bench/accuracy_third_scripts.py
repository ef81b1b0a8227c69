"""The last kinds of runs for `bench.accuracy_heldout`: written after the others were looked at.

`zoo_program` is a program, predicted as `legroom predict -- python -m rl_zoo3.train ...`;
`light_workers` is a run file, trained by `legroom train`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from textwrap import dedent


def n_step(draw: random.Random) -> str:
    algo, name = draw.choice((("DQN", "LunarLander-v3"), ("SAC", "Hopper-v5"), ("TD3", "BipedalWalker-v3")))
    steps, size, width = draw.choice((3, 5)), draw.randrange(50_000, 500_000, 50_000), draw.choice((64, 256, 400))
    return dedent(f"""
        import gymnasium as gym
        from stable_baselines3 import {algo}

        if __name__ == "__main__":
            model = {algo}(
                "MlpPolicy", gym.make("{name}"), n_steps={steps}, buffer_size={size}, learning_starts=200,
                policy_kwargs=dict(net_arch=[{width}, {width}]), device="cpu", verbose=0,
            )
            model.learn(total_timesteps=500)
    """)


def user_script(draw: random.Random) -> str:
    name = draw.choice(("Walker2d-v5", "LunarLander-v3", "Acrobot-v1"))
    envs, steps, batch = draw.choice((2, 4, 8)), draw.choice((256, 512)), draw.choice((64, 128))
    workers = draw.choice(("DummyVecEnv", "SubprocVecEnv")) if envs < 4 else "DummyVecEnv"
    width = draw.choice((64, 128, 512))
    return dedent(f"""
        import os

        import gymnasium as gym
        import numpy as np
        import pandas as pd
        from stable_baselines3 import PPO
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.monitor import Monitor
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor

        CONFIG = dict(env_id="{name}", n_envs={envs}, n_steps={steps}, batch_size={batch}, total={2 * steps * envs})


        class ScaledReward(gym.RewardWrapper):
            def reward(self, reward):
                return 0.1 * float(reward)


        class KeepRewards(BaseCallback):
            def __init__(self):
                super().__init__()
                self.rows = []

            def _on_step(self):
                self.rows.append(dict(step=self.num_timesteps, reward=float(np.mean(self.locals["rewards"]))))
                return True

            def _on_training_end(self):
                pd.DataFrame(self.rows).to_csv("rewards.csv")


        def linear(start):
            return lambda left: start * left


        def make_env(seed):
            def build():
                env = ScaledReward(gym.make(CONFIG["env_id"]))
                env.reset(seed=seed)
                return Monitor(env)

            return build


        def main():
            os.makedirs("out", exist_ok=True)
            env = VecMonitor({workers}([make_env(i) for i in range(CONFIG["n_envs"])]))
            model = PPO(
                "MlpPolicy", env, learning_rate=linear(3e-4), n_steps=CONFIG["n_steps"],
                batch_size=CONFIG["batch_size"], n_epochs=3, policy_kwargs={{"net_arch": [{width}, {width}]}},
                device="cpu", verbose=1,
            )
            model.learn(total_timesteps=CONFIG["total"], callback=KeepRewards())
            model.save("out/model")


        if __name__ == "__main__":
            main()
    """)


def dict_replay(draw: random.Random) -> str:
    algo, side, size = draw.choice(("DQN", "QRDQN")), draw.choice((48, 64)), draw.randrange(3000, 9000, 1000)
    package = "stable_baselines3" if algo == "DQN" else "sb3_contrib"
    return dedent(f"""
        from {package} import {algo}
        from sensor_env import SensorEnv
        from stable_baselines3.common.env_util import make_vec_env

        if __name__ == "__main__":
            env = make_vec_env(SensorEnv, n_envs={draw.choice((1, 2))}, env_kwargs=dict(side={side}))
            model = {algo}(
                "MultiInputPolicy", env, buffer_size={size}, learning_starts={size - 200}, train_freq=8, device="cpu"
            )
            model.learn({size + 100})
    """)


def light_workers(draw: random.Random) -> tuple[str, str, list[str]]:
    """A run file with torch-free workers, its name, and the options of `legroom train`."""
    name, envs = draw.choice(("LunarLander-v3", "Hopper-v5", "Acrobot-v1")), draw.choice((2, 4, 6))
    text = dedent(f"""
        legroom: 1
        name: light
        algo: PPO
        env: {{id: {name}, n_envs: {envs}, workers: light}}
        hyperparams: {{n_steps: 256, batch_size: 128, n_epochs: 2}}
        total_timesteps: {1024 * envs}
        device: cpu
    """)
    return text, "light.yaml", []


def zoo_program(draw: random.Random) -> list[str]:
    """The arguments of RL Zoo's own program."""
    algo, name, steps, rest = draw.choice((
        ("ppo", "LunarLander-v3", 4096, ["n_envs:2", "n_steps:512", "n_epochs:2"]),
        ("a2c", "CartPole-v1", 2000, ["n_envs:4"]),
        ("dqn", "CartPole-v1", 3000, ["learning_starts:500", "train_freq:16", "gradient_steps:8"]),
        ("tqc", "Pendulum-v1", 500, ["learning_starts:100"]),
        ("ppo", "Acrobot-v1", 8192, ["n_envs:4", "n_steps:512", "n_epochs:2"]),
    ))  # fmt: skip
    evaluated = draw.choice((["--eval-freq", "-1"], ["--eval-freq", "500", "--eval-episodes", "1"]))
    program = ["-m", "rl_zoo3.train", "--algo", algo, "--env", name, "-n", str(steps), "--device", "cpu", "-f", "logs"]
    return [*program, *evaluated, "--hyperparams", *rest]


SCRIPTS: Mapping[str, Callable[[random.Random], str]] = {
    "n_step": n_step, "user_script": user_script, "dict_replay": dict_replay,
}  # fmt: skip
TRAINED: Mapping[str, Callable[[random.Random], tuple[str, str, list[str]]]] = {"light_workers": light_workers}
PROGRAMS: Mapping[str, Callable[[random.Random], list[str]]] = {"zoo_program": zoo_program}
