"""A first agent: train, watch the score, save. Nothing is wrong with it."""

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

env = gym.make("LunarLander-v3")
model = PPO("MlpPolicy", env, verbose=1)
model.learn(total_timesteps=200_000)

mean_reward, std_reward = evaluate_policy(model, env, n_eval_episodes=20)
print(f"{mean_reward:.1f} +/- {std_reward:.1f}")

model.save("lander")
del model
model = PPO.load("lander", env=env)
