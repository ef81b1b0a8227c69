#!/usr/bin/env python
# coding: utf-8

# %% [markdown]
# # Training in cells

# %%
from stable_baselines3 import *
from stable_baselines3.common.callbacks import *
from stable_baselines3.common.env_util import make_vec_env

# %%
vec_env = make_vec_env("CartPole-v1", n_envs=4)
eval_callback = EvalCallback(make_vec_env("CartPole-v1"), eval_freq=500)  # vec steps
eval_callback

# %%
model = PPO("MlpPolicy", vec_env)
model.learn(100_000)

# %%
obs = vec_env.reset()
for _ in range(1000):
    action, _ = model.predict(obs)
    obs, rewards, dones, info = vec_env.step(action)
