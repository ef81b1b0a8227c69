"""More kinds of runs for `bench.accuracy_heldout`: those of `accuracy_heldout_scripts` were looked at before these.

Two of them are not scripts: an entry of a zoo file and a named run, trained by `legroom train`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from textwrap import dedent

MODULES = {
    "sensor_env.py": dedent("""
        import gymnasium as gym
        import numpy as np


        class SensorEnv(gym.Env):
            def __init__(self, side=64, numbers=20, actions=4):
                self.observation_space = gym.spaces.Dict({
                    "camera": gym.spaces.Box(0, 255, (side, side, 3), np.uint8),
                    "joints": gym.spaces.Box(-1, 1, (numbers,), np.float32),
                })
                self.action_space = gym.spaces.Discrete(actions)
                self.t = 0

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.t = 0
                return self._see(), {}

            def step(self, action):
                self.t += 1
                return self._see(), 0.0, False, self.t >= 150, {}

            def _see(self):
                camera = np.full(self.observation_space["camera"].shape, self.t % 255, np.uint8)
                return {"camera": camera, "joints": np.zeros(self.observation_space["joints"].shape, np.float32)}
    """),
    "board_env.py": dedent("""
        import gymnasium as gym
        import numpy as np


        class BoardEnv(gym.Env):
            def __init__(self, cells=64):
                self.observation_space = gym.spaces.Box(0, 1, (4 * cells,), np.float32)
                self.action_space = gym.spaces.Discrete(cells)
                self.cells, self.t = cells, 0

            def action_masks(self):
                return np.arange(self.cells) >= self.t % self.cells

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.t = 0
                return np.zeros(4 * self.cells, np.float32), {}

            def step(self, action):
                self.t += 1
                return np.full(4 * self.cells, 0.5, np.float32), 0.0, self.t >= self.cells, False, {}
    """),
    "camera_env.py": dedent("""
        import gymnasium as gym
        import numpy as np


        class CameraControl(gym.Env):
            def __init__(self, side=64, joints=3):
                self.observation_space = gym.spaces.Box(0, 255, (side, side, 3), np.uint8)
                self.action_space = gym.spaces.Box(-1, 1, (joints,), np.float32)
                self.t = 0

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.t = 0
                return np.zeros(self.observation_space.shape, np.uint8), {}

            def step(self, action):
                self.t += 1
                return np.full(self.observation_space.shape, self.t % 255, np.uint8), 0.0, False, self.t >= 100, {}
    """),
    "vision.py": dedent("""
        import torch
        from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
        from torch import nn


        class PooledVision(BaseFeaturesExtractor):
            def __init__(self, observation_space, features_dim=128, width=32):
                super().__init__(observation_space, features_dim)
                self.body = nn.Sequential(
                    nn.Conv2d(observation_space.shape[0], width, kernel_size=3, stride=2, padding=1),
                    nn.BatchNorm2d(width),
                    nn.GELU(),
                    nn.MaxPool2d(2),
                    nn.Conv2d(width, 2 * width, kernel_size=3, padding=1),
                    nn.GELU(),
                    nn.AdaptiveAvgPool2d(4),
                    nn.Flatten(),
                )
                self.head = nn.Linear(2 * width * 16, features_dim)

            def forward(self, observations):
                return torch.relu(self.head(self.body(observations)))
    """),
}


def dict_workers(draw: random.Random) -> str:
    side, envs, method = draw.choice((48, 64)), draw.choice((2, 3)), draw.choice(("fork", "forkserver", "spawn"))
    algo = draw.choice(("PPO", "A2C"))
    rest = ", n_steps=128, batch_size=64, n_epochs=1" if algo == "PPO" else ", n_steps=32"
    return dedent(f"""
        from sensor_env import SensorEnv
        from stable_baselines3 import {algo}
        from stable_baselines3.common.vec_env import SubprocVecEnv, VecMonitor

        def make():
            return SensorEnv(side={side}, numbers={draw.choice((10, 200))})

        if __name__ == "__main__":
            env = VecMonitor(SubprocVecEnv([make for _ in range({envs})], start_method="{method}"))
            {algo}("MultiInputPolicy", env{rest}, device="cpu").learn({256 * envs})
    """)


def masked(draw: random.Random) -> str:
    cells, width, steps = draw.choice((64, 361, 900)), draw.choice((64, 256, 512)), draw.choice((256, 1024))
    return dedent(f"""
        from board_env import BoardEnv
        from sb3_contrib import MaskablePPO

        if __name__ == "__main__":
            model = MaskablePPO(
                "MlpPolicy", BoardEnv({cells}), n_steps={steps}, n_epochs=2, device="cpu",
                policy_kwargs=dict(net_arch=[{width}, {width}]),
            )
            model.learn({2 * steps})
    """)


def pixel_control(draw: random.Random) -> str:
    algo, package = draw.choice((("SAC", "stable_baselines3"), ("TD3", "stable_baselines3"), ("TQC", "sb3_contrib")))
    side, batch, size = draw.choice((48, 64)), draw.choice((32, 64)), draw.randrange(2000, 20_000, 2000)
    return dedent(f"""
        from camera_env import CameraControl
        from {package} import {algo}

        if __name__ == "__main__":
            env = CameraControl(side={side})
            model = {algo}(
                "CnnPolicy", env, buffer_size={size}, batch_size={batch}, learning_starts=100, train_freq=8,
                device="cpu",
            )
            model.learn(total_timesteps=220)
    """)


def value_vectors(draw: random.Random) -> str:
    algo, package = draw.choice((("DQN", "stable_baselines3"), ("QRDQN", "sb3_contrib")))
    length, size = draw.choice((8, 200, 2000)), draw.randrange(20_000, 60_000, 10_000)
    batch, width = draw.choice((32, 128)), draw.choice((64, 256, 700))
    return dedent(f"""
        import gymnasium as gym
        import numpy as np
        from {package} import {algo}

        class Readings(gym.Env):
            def __init__(self):
                self.observation_space = gym.spaces.Box(-1, 1, ({length},), np.float32)
                self.action_space = gym.spaces.Discrete(6)

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.t = 0
                return np.zeros({length}, np.float32), {{}}

            def step(self, action):
                self.t += 1
                return np.full({length}, self.t / 999, np.float32), 1.0, self.t >= 90, False, {{}}

        env = Readings()
        kwargs = dict(net_arch=[{width}, {width}])
        model = {algo}(
            "MlpPolicy", env, buffer_size={size}, batch_size={batch}, learning_starts=4000, policy_kwargs=kwargs,
            device="cpu",
        )
        model.learn(4400)
    """)


def module_extractor(draw: random.Random) -> str:
    side, width, batch = draw.choice((64, 84)), draw.choice((16, 32, 48)), draw.choice((32, 64))
    algo = draw.choice(("PPO", "A2C"))
    rest = f", n_steps=128, batch_size={batch}, n_epochs=1" if algo == "PPO" else f", n_steps={batch}"
    return dedent(f"""
        from pixel_env import PixelEnv
        from stable_baselines3 import {algo}
        from vision import PooledVision

        if __name__ == "__main__":
            kwargs = dict(
                features_extractor_class=PooledVision, features_extractor_kwargs=dict(features_dim=128, width={width})
            )
            {algo}("CnnPolicy", PixelEnv((3, {side}, {side})), policy_kwargs=kwargs{rest}, device="cpu").learn(256)
    """)


def callbacks(draw: random.Random) -> str:
    name = draw.choice(("Hopper-v5", "Walker2d-v5", "LunarLander-v3", "BipedalWalker-v3"))
    envs, workers = draw.choice(((4, "DummyVecEnv"), (2, "SubprocVecEnv"), (3, "SubprocVecEnv")))
    return dedent(f"""
        from stable_baselines3 import PPO
        from stable_baselines3.common.callbacks import CallbackList, CheckpointCallback, EvalCallback
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

        if __name__ == "__main__":
            env = VecNormalize(make_vec_env("{name}", n_envs={envs}, vec_env_cls={workers}))
            eval_env = VecNormalize(make_vec_env("{name}", n_envs=1), training=False, norm_reward=False)
            callback = CallbackList([
                CheckpointCallback(save_freq=200, save_path="saved", save_vecnormalize=True),
                EvalCallback(eval_env, eval_freq=150, n_eval_episodes=1, best_model_save_path="best"),
            ])
            model = PPO("MlpPolicy", env, n_steps=256, batch_size=128, n_epochs=2, device="cpu")
            model.learn({512 * envs}, callback=callback)
    """)


def evolution(draw: random.Random) -> str:
    algo = draw.choice(("ARS", "TRPO"))
    name, width = draw.choice(("Pendulum-v1", "HalfCheetah-v5", "LunarLander-v3")), draw.choice((64, 300, 800))
    rest = ", n_delta=4" if algo == "ARS" else ", n_steps=512"
    return dedent(f"""
        from sb3_contrib import {algo}
        from stable_baselines3.common.env_util import make_vec_env

        env = make_vec_env("{name}", n_envs={draw.choice((1, 3))})
        model = {algo}("MlpPolicy", env{rest}, policy_kwargs=dict(net_arch=[{width}, {width}]), device="cpu")
        model.learn({3000 if algo == "ARS" else 1100})
    """)


def long_rollout(draw: random.Random) -> str:
    rows, side, stack = draw.choice((2048, 4096)), draw.choice((64, 84)), draw.choice((1, 4))
    return dedent(f"""
        from pixel_env import PixelEnv
        from stable_baselines3 import PPO
        from stable_baselines3.common.monitor import Monitor
        from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

        if __name__ == "__main__":
            env = DummyVecEnv([lambda: Monitor(PixelEnv(({side}, {side}, 1), episode=400))])
            env = VecFrameStack(env, n_stack={stack})
            policy = dict(net_arch=[16], features_extractor_kwargs=dict(features_dim=64))
            model = PPO(
                "CnnPolicy", env, n_steps={rows}, batch_size=512, n_epochs=1, policy_kwargs=policy, device="cpu"
            )
            model.learn({rows})
    """)


def zoo_entry(draw: random.Random) -> tuple[str, str, list[str]]:
    """An entry of a zoo file, its name, and the options of `legroom train`."""
    name, stem, entry = draw.choice((
        ("ALE/Breakout-v5", "ppo", {"env_wrapper": ["stable_baselines3.common.atari_wrappers.AtariWrapper"],
                                    "frame_stack": 4, "policy": "'CnnPolicy'", "n_envs": 4, "n_steps": 64,
                                    "batch_size": 128, "n_epochs": 1, "n_timesteps": 512.0}),
        ("HalfCheetah-v5", "sac", {"policy": "'MlpPolicy'", "learning_starts": 100, "n_timesteps": 260.0}),
        ("Hopper-v5", "ppo", {"normalize": True, "n_envs": 2, "policy": "'MlpPolicy'", "n_steps": 256,
                              "batch_size": 64, "n_epochs": 2, "n_timesteps": 1024.0}),
        ("BipedalWalker-v3", "tqc", {"policy": "'MlpPolicy'", "buffer_size": 100000, "learning_starts": 100,
                                     "n_timesteps": 220.0, "policy_kwargs": "\"dict(net_arch=[400, 300])\""}),
        ("LunarLander-v3", "dqn", {"policy": "'MlpPolicy'", "buffer_size": 50000, "learning_starts": 200,
                                   "n_timesteps": 1000.0, "policy_kwargs": "\"dict(net_arch=[256, 256])\""}),
    ))  # fmt: skip
    lines = [f"{name}:"]
    for key, value in entry.items():
        text = "".join(f"\n    - {each}" for each in value) if isinstance(value, list) else f" {value}"
        lines.append(f"  {key}:{text}")
    return "\n".join(lines) + "\n", f"{stem}.yml:{name}", []


def workload(draw: random.Random) -> tuple[str, str, list[str]]:
    """A named run, and the options of `legroom train` and `predict`; no file."""
    name, steps = draw.choice((("ninja:learn", "4096"), ("fire:learn", "600"), ("gameboy:learn", "1024")))
    return "", name, ["--timesteps", steps]


SCRIPTS: Mapping[str, Callable[[random.Random], str]] = {
    "dict_workers": dict_workers, "masked": masked, "pixel_control": pixel_control, "value_vectors": value_vectors,
    "module_extractor": module_extractor, "callbacks": callbacks, "evolution": evolution, "long_rollout": long_rollout,
}  # fmt: skip
TRAINED: Mapping[str, Callable[[random.Random], tuple[str, str, list[str]]]] = {
    "zoo_entry": zoo_entry, "workload": workload,
}  # fmt: skip
