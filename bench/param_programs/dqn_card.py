"""DQN whose replay of frames is on the card."""

import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--buffer-size", type=int, default=2_000)
parser.add_argument("--updates", type=int, default=8)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
SHAPE = (4, 84, 84)


def network():
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(), nn.Conv2d(64, 64, 3),
        nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6),
    ).to(device)  # fmt: skip


class Replay:
    def __init__(self, size):
        self.obs = torch.zeros((size, *SHAPE), dtype=torch.uint8, device=device)
        self.actions = torch.zeros(size, dtype=torch.int64, device=device)
        self.rewards = torch.zeros(size, device=device)
        self.at, self.size = 0, size

    def add(self, obs, action, reward):
        self.obs[self.at], self.actions[self.at], self.rewards[self.at] = obs, action, reward
        self.at = (self.at + 1) % self.size

    def sample(self, count):
        rows = torch.randint(0, self.size - 1, (count,), device=device)
        return self.obs[rows], self.actions[rows], self.rewards[rows], self.obs[rows + 1]


q_network, target = network(), network()
target.load_state_dict(q_network.state_dict())
optimizer = torch.optim.Adam(q_network.parameters(), lr=1e-4)
replay = Replay(args.buffer_size)
for update in range(args.updates):
    for _ in range(2):
        obs = torch.randint(0, 255, SHAPE, dtype=torch.uint8)
        with torch.no_grad():
            action = int(q_network(obs.to(device)[None] / 255.0).argmax())
        replay.add(obs, action, 1.0)
    obs, actions, rewards, next_obs = replay.sample(args.batch_size)
    with torch.no_grad():
        wanted = rewards + 0.99 * target(next_obs / 255.0).max(dim=1).values
    values = q_network(obs / 255.0).gather(1, actions[:, None]).squeeze(1)
    loss = functional.mse_loss(values, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 4 == 0:
        target.load_state_dict(q_network.state_dict())
