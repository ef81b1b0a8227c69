"""Plays a model that someone else has trained."""

import gymnasium as gym
from huggingface_sb3 import load_from_hub
from stable_baselines3 import DQN

checkpoint = load_from_hub(repo_id="someone/dqn-cartpole", filename="dqn-cartpole.zip")
model = DQN.load(checkpoint)
env = gym.make("CartPole-v1")
obs, _ = env.reset()
print(model.predict(obs))
