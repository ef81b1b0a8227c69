"""DQN with 2.1 GiB of stacked pictures in its replay buffer, which is full at the end."""

import hashlib

import numpy as np
import torch
from pictures import Room
from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

torch.set_num_threads(1)
np.random.seed(1)
env = VecFrameStack(DummyVecEnv([Room] * 4), 4, channels_order="first")
kwargs = {"net_arch": [8], "features_extractor_class": FlattenExtractor, "normalize_images": True}
model = DQN(
    "CnnPolicy", env, buffer_size=40_000, learning_starts=30_000, train_freq=25, batch_size=32, seed=3, device="cpu",
    policy_kwargs=kwargs,
)  # fmt: skip
model.learn(41_000)
found = hashlib.sha256()
for name, value in sorted(model.policy.state_dict().items()):
    found.update(name.encode() + value.numpy().tobytes())
print("sha256", found.hexdigest())
