"""Scripts of `bench.accuracy_heldout`, one function per kind: sizes are drawn, the way they are written is a user's.

Three are trained by `legroom train`: an entry of a zoo file, a named run and a run file. `zoo_program` is a program,
predicted as `legroom predict -- python -m rl_zoo3.train ...`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from textwrap import dedent

# Beside every script: environments that users keep in modules of their own.
MODULES = {
    "trading_env.py": dedent("""
        import gymnasium as gym
        import numpy as np
        import pandas as pd


        class TradingEnv(gym.Env):
            def __init__(self, rows, columns=8, window=30):
                random = np.random.default_rng(0)
                self.frame = pd.DataFrame(random.normal(size=(rows, columns)))
                self.prices = self.frame.to_numpy(np.float32)
                self.window = window
                self.observation_space = gym.spaces.Box(-np.inf, np.inf, (window * columns,), np.float32)
                self.action_space = gym.spaces.Discrete(3)

            def _see(self):
                return self.prices[self.t - self.window : self.t].ravel().copy()

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.t = self.window
                return self._see(), {}

            def step(self, action):
                self.t += 1
                return self._see(), 0.0, self.t >= 2000, False, {}
    """),
    "pixel_env.py": dedent("""
        import gymnasium as gym
        import numpy as np


        class PixelEnv(gym.Env):
            def __init__(self, shape, episode=100):
                self.observation_space = gym.spaces.Box(0, 255, tuple(shape), np.uint8)
                self.action_space = gym.spaces.Discrete(5)
                self.episode, self.t = episode, 0

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.t = 0
                return np.zeros(self.observation_space.shape, np.uint8), {}

            def step(self, action):
                self.t += 1
                seen = np.full(self.observation_space.shape, self.t % 255, np.uint8)
                return seen, 0.0, False, self.t >= self.episode, {}
    """),
    "goal_env.py": dedent("""
        import gymnasium as gym
        import numpy as np


        class Reach(gym.Env):
            def __init__(self, size=3):
                def box(n):
                    return gym.spaces.Box(-1, 1, (n,), np.float32)

                self.observation_space = gym.spaces.Dict(
                    {"observation": box(2 * size), "achieved_goal": box(size), "desired_goal": box(size)}
                )
                self.action_space = box(size)
                self.size, self.t = size, 0

            def _see(self):
                goal = np.ones(self.size, np.float32)
                seen = np.zeros(2 * self.size, np.float32)
                return {"observation": seen, "achieved_goal": 0 * goal, "desired_goal": goal}

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.t = 0
                return self._see(), {}

            def compute_reward(self, achieved, desired, info):
                return -np.linalg.norm(achieved - desired, axis=-1)

            def step(self, action):
                self.t += 1
                return self._see(), -1.0, False, self.t >= 50, {}
    """),
}


def atari(draw: random.Random) -> str:
    game = draw.choice(("Pong", "Breakout", "SpaceInvaders", "Seaquest"))
    algo, batch = draw.choice((("PPO", ", batch_size=128, n_epochs=2"), ("A2C", "")))
    envs, workers = draw.choice((2, 4, 6)), draw.choice(("", "", ", vec_env_cls=SubprocVecEnv"))
    envs = min(envs, 3) if workers else envs
    steps = draw.choice((64, 128))
    return dedent(f"""
        import ale_py
        import gymnasium as gym
        from stable_baselines3 import {algo}
        from stable_baselines3.common.env_util import make_atari_env
        from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack

        gym.register_envs(ale_py)

        if __name__ == "__main__":
            env = VecFrameStack(make_atari_env("ALE/{game}-v5", n_envs={envs}, seed=0{workers}), n_stack=4)
            model = {algo}("CnnPolicy", env, n_steps={steps}{batch}, device="cpu")
            model.learn({3 * steps * envs})
    """)


def atari_replay(draw: random.Random) -> str:
    game = draw.choice(("Pong", "Qbert", "BeamRider"))
    algo, package = draw.choice((("DQN", "stable_baselines3"), ("QRDQN", "sb3_contrib")))
    size = draw.randrange(2000, 7000, 500)
    return dedent(f"""
        import ale_py
        import gymnasium as gym
        from {package} import {algo}
        from stable_baselines3.common.env_util import make_atari_env
        from stable_baselines3.common.vec_env import VecFrameStack

        gym.register_envs(ale_py)

        if __name__ == "__main__":
            env = VecFrameStack(make_atari_env("ALE/{game}-v5", n_envs=1), n_stack=4)
            model = {algo}(
                "CnnPolicy", env, buffer_size={size}, learning_starts={size - 200}, train_freq=16, device="cpu"
            )
            model.learn({size + 200})
    """)


def mujoco(draw: random.Random) -> str:
    name = draw.choice(("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5"))
    algo, package = draw.choice((
        ("SAC", "stable_baselines3"), ("TD3", "stable_baselines3"), ("TQC", "sb3_contrib"), ("CrossQ", "sb3_contrib"),
        ("PPO", "stable_baselines3"), ("TRPO", "sb3_contrib"),
    ))  # fmt: skip
    if algo in ("PPO", "TRPO"):
        envs = draw.choice((2, 3))
        made = f'make_vec_env("{name}", n_envs={envs}, vec_env_cls=SubprocVecEnv)'
        rest, steps = ", n_steps=256, batch_size=64", 256 * envs * 2
    else:
        made = f'make_vec_env("{name}", n_envs=1)'
        rest, steps = f", buffer_size={draw.randrange(100_000, 1_000_000, 100_000)}, learning_starts=100", 180
    return dedent(f"""
        from {package} import {algo}
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import SubprocVecEnv

        if __name__ == "__main__":
            env = {made}
            model = {algo}("MlpPolicy", env{rest}, device="cpu")
            model.learn(total_timesteps={steps})
    """)


def box2d(draw: random.Random) -> str:
    which = draw.choice(("lander", "walker", "racing"))
    if which == "racing":
        stack, steps = draw.choice((2, 4)), draw.choice((128, 256))
        return dedent(f"""
            import gymnasium as gym
            from stable_baselines3 import PPO
            from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

            if __name__ == "__main__":
                env = VecFrameStack(DummyVecEnv([lambda: gym.make("CarRacing-v3", continuous=True)]), {stack})
                PPO("CnnPolicy", env, n_steps={steps}, batch_size=64, n_epochs=1, device="cpu").learn({2 * steps})
        """)
    name = {"lander": "LunarLander-v3", "walker": "BipedalWalker-v3"}[which]
    envs = draw.choice((1, 4, 8))
    width = draw.choice((64, 256))
    return dedent(f"""
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env

        if __name__ == "__main__":
            env = make_vec_env("{name}", n_envs={envs})
            policy_kwargs = dict(net_arch=[{width}, {width}])
            model = PPO("MlpPolicy", env, n_steps=256, n_epochs=2, policy_kwargs=policy_kwargs, device="cpu")
            model.learn({256 * envs * 2})
    """)


def own_data(draw: random.Random) -> str:
    rows, columns, window = draw.randrange(100_000, 900_000, 50_000), draw.choice((5, 8, 12)), draw.choice((20, 40, 60))
    envs, kind = draw.choice(((1, "DummyVecEnv"), (3, "DummyVecEnv"), (2, "SubprocVecEnv"), (3, "SubprocVecEnv")))
    return dedent(f"""
        import pandas as pd
        from stable_baselines3 import PPO
        from stable_baselines3.common.monitor import Monitor
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
        from trading_env import TradingEnv

        ROWS = {rows}

        def make_env(rank):
            def _init():
                return Monitor(TradingEnv(ROWS, columns={columns}, window={window}))
            return _init

        if __name__ == "__main__":
            env = {kind}([make_env(i) for i in range({envs})])
            model = PPO("MlpPolicy", env, n_steps=512, n_epochs=2, device="cpu")
            model.learn({1024 * envs})
    """)


def own_extractor(draw: random.Random) -> str:
    side, first, second = draw.choice((48, 64, 84)), draw.choice((16, 32, 64)), draw.choice((32, 64, 96))
    features, batch = draw.choice((128, 256, 512)), draw.choice((32, 64, 128))
    return dedent(f"""
        import torch as th
        from pixel_env import PixelEnv
        from stable_baselines3 import PPO
        from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
        from torch import nn

        class Vision(BaseFeaturesExtractor):
            def __init__(self, observation_space, features_dim=256):
                super().__init__(observation_space, features_dim)
                channels = observation_space.shape[0]
                self.cnn = nn.Sequential(
                    nn.Conv2d(channels, {first}, 5, stride=2), nn.ReLU(),
                    nn.Conv2d({first}, {second}, 3, stride=2), nn.ReLU(), nn.Flatten(),
                )
                with th.no_grad():
                    n = self.cnn(th.zeros(1, *observation_space.shape)).shape[1]
                self.linear = nn.Sequential(nn.Linear(n, features_dim), nn.ReLU())

            def forward(self, observations):
                return self.linear(self.cnn(observations))

        if __name__ == "__main__":
            kwargs = dict(
                features_extractor_class=Vision, features_extractor_kwargs=dict(features_dim={features}), net_arch=[64]
            )
            env = PixelEnv((3, {side}, {side}))
            model = PPO(
                "CnnPolicy", env, n_steps=256, batch_size={batch}, n_epochs=1, policy_kwargs=kwargs, device="cpu"
            )
            model.learn(512)
    """)


def hindsight(draw: random.Random) -> str:
    algo = draw.choice(("SAC", "TD3", "DDPG"))
    size, envs = draw.randrange(100_000, 1_000_000, 100_000), draw.choice((1, 1, 4))
    return dedent(f"""
        from goal_env import Reach
        from stable_baselines3 import {algo}, HerReplayBuffer
        from stable_baselines3.common.vec_env import DummyVecEnv

        if __name__ == "__main__":
            env = DummyVecEnv([lambda: Reach({draw.choice((3, 7))})] * {envs})
            model = {algo}(
                "MultiInputPolicy", env, buffer_size={size}, learning_starts=200, replay_buffer_class=HerReplayBuffer,
                replay_buffer_kwargs=dict(n_sampled_goal=4, goal_selection_strategy="future"), device="cpu",
            )
            model.learn(400)
    """)


def replay_checkpoint(draw: random.Random) -> str:
    size, side = draw.randrange(4000, 12_000, 1000), draw.choice((64, 84))
    return dedent(f"""
        from pixel_env import PixelEnv
        from stable_baselines3 import DQN
        from stable_baselines3.common.callbacks import CheckpointCallback

        if __name__ == "__main__":
            saving = CheckpointCallback(save_freq={size - 1000}, save_path="saved", save_replay_buffer=True)
            model = DQN(
                "CnnPolicy", PixelEnv(({side}, {side}, 3)), buffer_size={size}, learning_starts={size - 300},
                train_freq=32, device="cpu",
            )
            model.learn({size + 100}, callback=saving)
    """)


def recurrent(draw: random.Random) -> str:
    cells, batch = draw.choice((64, 128, 256)), draw.choice((64, 128))
    episode = draw.choice((30, 100, 1000))
    policy, made = draw.choice((
        ("MlpLstmPolicy", 'make_vec_env("Pendulum-v1", n_envs=4)'),
        ("CnnLstmPolicy", f"DummyVecEnv([lambda: PixelEnv((3, 48, 48), episode={episode})] * 2)"),
    ))  # fmt: skip
    return dedent(f"""
        from pixel_env import PixelEnv
        from sb3_contrib import RecurrentPPO
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import DummyVecEnv

        if __name__ == "__main__":
            env = {made}
            kwargs = dict(lstm_hidden_size={cells})
            model = RecurrentPPO(
                "{policy}", env, n_steps=128, batch_size={batch}, n_epochs=2, policy_kwargs=kwargs, device="cpu"
            )
            model.learn(1024)
    """)


def wide(draw: random.Random) -> str:
    algo, package, name = draw.choice((
        ("TQC", "sb3_contrib", "Pendulum-v1"), ("SAC", "stable_baselines3", "Pendulum-v1"),
        ("CrossQ", "sb3_contrib", "Pendulum-v1"), ("PPO", "stable_baselines3", "CartPole-v1"),
        ("A2C", "stable_baselines3", "CartPole-v1"), ("QRDQN", "sb3_contrib", "CartPole-v1"),
    ))  # fmt: skip
    width, layers = draw.choice((512, 1024, 1536, 2048)), draw.choice((2, 3))
    rest = {"PPO": ", n_steps=128, n_epochs=2", "A2C": ", n_steps=64"}.get(
        algo, ", learning_starts=30, buffer_size=50_000"
    )
    return dedent(f"""
        import gymnasium as gym
        from {package} import {algo}

        if __name__ == "__main__":
            policy_kwargs = dict(net_arch={[width] * layers})
            model = {algo}("MlpPolicy", gym.make("{name}"), policy_kwargs=policy_kwargs{rest}, device="cpu")
            model.learn({256 if algo in ("PPO", "A2C") else 60})
    """)


MODULES |= {
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


SCRIPTS: Mapping[str, Callable[[random.Random], str]] = {made.__name__: made for made in (
    atari, atari_replay, mujoco, box2d, own_data, own_extractor, hindsight, replay_checkpoint, recurrent, wide,
    dict_workers, masked, callbacks, evolution, n_step, user_script, dict_replay,
)}  # fmt: skip
TRAINED: Mapping[str, Callable[[random.Random], tuple[str, str, list[str]]]] = {
    made.__name__: made for made in (zoo_entry, workload, light_workers)
}
PROGRAMS: Mapping[str, Callable[[random.Random], list[str]]] = {"zoo_program": zoo_program}
