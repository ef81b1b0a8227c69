"""DQN in one file, with a ring of frames in NumPy arrays."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from toy_envs import Frames

parser = argparse.ArgumentParser()
parser.add_argument("--buffer-size", type=int, default=6_000)
parser.add_argument("--learning-starts", type=int, default=200)
parser.add_argument("--total-timesteps", type=int, default=6_200)
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ReplayBuffer:
    def __init__(self, size, shape):
        self.obs = np.zeros((size, *shape), dtype=np.uint8)
        self.next_obs = np.zeros((size, *shape), dtype=np.uint8)
        self.actions = np.zeros(size, dtype=np.int64)
        self.rewards = np.zeros(size, dtype=np.float32)
        self.dones = np.zeros(size, dtype=np.float32)
        self.at, self.full, self.size = 0, False, size

    def add(self, obs, next_obs, action, reward, done):
        self.obs[self.at], self.next_obs[self.at] = obs, next_obs
        self.actions[self.at], self.rewards[self.at], self.dones[self.at] = action, reward, done
        self.at += 1
        if self.at == self.size:
            self.at, self.full = 0, True

    def sample(self, count):
        rows = np.random.randint(0, self.size if self.full else self.at, count)
        fields = self.obs, self.next_obs, self.actions, self.rewards, self.dones
        return [torch.as_tensor(field[rows]).to(device) for field in fields]


def network():
    return nn.Sequential(
        nn.Conv2d(4, 16, 8, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(4608, 128), nn.ReLU(), nn.Linear(128, 4),
    ).to(device)  # fmt: skip


env = Frames(side=112)
q_network, target = network(), network()
target.load_state_dict(q_network.state_dict())
optimizer = torch.optim.Adam(q_network.parameters(), lr=1e-4)
buffer = ReplayBuffer(args.buffer_size, env.observation_space.shape)
obs, _ = env.reset()
for step in range(args.total_timesteps):
    if np.random.random() < 0.5:
        action = env.action_space.sample()
    else:
        action = int(q_network(torch.as_tensor(obs[None]).to(device) / 255.0).argmax(dim=1)[0])
    next_obs, reward, done, truncated, _ = env.step(action)
    buffer.add(obs, next_obs, action, reward, done)
    obs = next_obs
    if truncated:
        obs, _ = env.reset()
    if step > args.learning_starts and step % 16 == 0:
        states, next_states, actions, rewards, dones = buffer.sample(32)
        with torch.no_grad():
            best = target(next_states / 255.0).max(dim=1).values
            wanted = rewards + 0.99 * best * (1 - dones)
        value = q_network(states / 255.0).gather(1, actions[:, None])[:, 0]
        loss = functional.mse_loss(value, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if step % 500 == 0:
        target.load_state_dict(q_network.state_dict())
