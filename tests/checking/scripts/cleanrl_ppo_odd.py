"""The same PPO with numbers that do not go together."""

import random
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
import tyro
from torch.utils.tensorboard import SummaryWriter


@dataclass
class Args:
    seed: int = 1
    """seed of everything"""
    env_id: str = "CartPole-v1"
    total_timesteps: int = 500
    learning_rate: float = 2.5e-4
    num_envs: int = 4
    num_steps: int = 128
    num_minibatches: int = 7
    update_epochs: int = 4
    save_interval: int = 20
    # filled in when it runs
    batch_size: int = 0
    minibatch_size: int = 0
    num_iterations: int = 0


class Agent(nn.Module):
    def __init__(self, envs):
        super().__init__()
        self.net = nn.Linear(int(np.prod(envs.single_observation_space.shape)), envs.single_action_space.n + 1)


if __name__ == "__main__":
    args = tyro.cli(Args)
    args.batch_size = int(args.num_envs * args.num_steps)
    args.minibatch_size = int(args.batch_size // args.num_minibatches)
    args.num_iterations = args.total_timesteps // args.batch_size
    writer = SummaryWriter("runs/ppo")
    writer.add_text("hyperparameters", str(vars(args)))
    random.seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    envs = gym.vector.SyncVectorEnv([lambda: gym.make(args.env_id) for _ in range(args.num_envs)])
    agent = Agent(envs).to(device)
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate)
    global_step = 0
    next_obs, _ = envs.reset(seed=args.seed)
    for iteration in range(1, args.num_iterations + 1):
        for step in range(args.num_steps):
            global_step += args.num_envs
            next_obs, reward, terminations, truncations, infos = envs.step(envs.action_space.sample())
        b_inds = np.arange(args.batch_size)
        for epoch in range(args.update_epochs):
            np.random.shuffle(b_inds)
            for start in range(0, args.batch_size, args.minibatch_size):
                mb_inds = b_inds[start : start + args.minibatch_size]
        if iteration % args.save_interval == 0:
            torch.save(agent.state_dict(), f"runs/{iteration}.pt")
        if global_step % 1024 == 0:
            writer.add_scalar("charts/SPS", global_step, global_step)
