"""A prioritized replay with n-step returns: fields in a dict of `np.empty`, a sum tree beside them."""

import argparse
from collections import deque

import numpy as np
import torch
from torch import nn
from toy_envs import Numbers

parser = argparse.ArgumentParser()
parser.add_argument("--memory", type=int, default=1 << 17)
parser.add_argument("--start", type=int, default=2_000)
parser.add_argument("--frames", type=int, default=140_000)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
SIZE = 512


class PrioritizedReplay:
    def __init__(self, capacity):
        self.capacity, self.length, self.at = capacity, 0, 0
        self.tree = np.zeros(2 * capacity)
        self.data = {
            "obs": np.empty((capacity, SIZE), np.float32),
            "next_obs": np.empty((capacity, SIZE), np.float32),
            "action": np.empty((capacity, 4), np.float32),
            "reward": np.empty(capacity, np.float32),
        }

    def add(self, **fields):
        for name, value in fields.items():
            self.data[name][self.at] = value
        self.update(self.at, 1.0)
        self.at = (self.at + 1) % self.capacity
        self.length = min(self.length + 1, self.capacity)

    def update(self, row, priority):
        node = row + self.capacity
        change = priority - self.tree[node]
        while node >= 1:
            self.tree[node] += change
            node //= 2

    def sample(self, count):
        rows = np.random.randint(0, self.length, count)
        return rows, {name: torch.from_numpy(field[rows]).to(device) for name, field in self.data.items()}


net = nn.Sequential(nn.Linear(SIZE + 4, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
actor = nn.Sequential(nn.Linear(SIZE, 256), nn.ReLU(), nn.Linear(256, 4), nn.Tanh()).to(device)
optimizers = [torch.optim.AdamW(each.parameters(), lr=1e-4) for each in (net, actor)]
replay, env, last = PrioritizedReplay(args.memory), Numbers(SIZE), deque(maxlen=3)
obs, _ = env.reset()
for frame in range(args.frames):
    action = env.action_space.sample()
    next_obs, reward, _, over, _ = env.step(action)
    last.append((obs, action, reward))
    if len(last) == 3:
        replay.add(obs=last[0][0], action=last[0][1], reward=sum(each[2] for each in last), next_obs=next_obs)
    obs = next_obs
    if over:
        last.clear()
        obs, _ = env.reset()
    if frame > args.start and frame % 64 == 0:
        rows, batch = replay.sample(256)
        with torch.no_grad():
            next_action = actor(batch["next_obs"])
            wanted = batch["reward"][:, None] + 0.97 * net(torch.cat([batch["next_obs"], next_action], 1))
        error = net(torch.cat([batch["obs"], batch["action"]], 1)) - wanted
        optimizers[0].zero_grad()
        error.pow(2).mean().backward()
        optimizers[0].step()
        loss = -net(torch.cat([batch["obs"], actor(batch["obs"])], 1)).mean()
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
        for row, priority in zip(rows, error.detach().abs()[:, 0].cpu().numpy(), strict=True):
            replay.update(row, float(priority) + 1e-3)
