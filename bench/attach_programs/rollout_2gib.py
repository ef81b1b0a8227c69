"""PPO with 2.1 GiB of stacked pictures in its rollout, which is filled twice."""

import hashlib

import torch
from pictures import Room
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

torch.set_num_threads(1)
env = VecFrameStack(DummyVecEnv([Room] * 8), 4, channels_order="first")
kwargs = {"net_arch": [8], "features_extractor_class": FlattenExtractor}
model = PPO("CnnPolicy", env, n_steps=10_000, batch_size=400, n_epochs=1, seed=3, device="cpu", policy_kwargs=kwargs)
model.learn(80_000)
found = hashlib.sha256()
for name, value in sorted(model.policy.state_dict().items()):
    found.update(name.encode() + value.numpy().tobytes())
print("sha256", found.hexdigest())
