"""The replay memory of many tutorials: a list that grows to its capacity, then a ring; transitions of torch tensors."""

import argparse
import random
from collections import namedtuple

import torch
from torch import nn
from toy_envs import Frames

parser = argparse.ArgumentParser()
parser.add_argument("--capacity", type=int, default=40_000)
parser.add_argument("--warm-up", type=int, default=500)
parser.add_argument("--steps", type=int, default=41_000)
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory:
    def __init__(self, capacity):
        self.capacity = capacity
        self.memory = []
        self.position = 0

    def push(self, *values):
        if len(self.memory) < self.capacity:
            self.memory.append(None)
        self.memory[self.position] = Transition(*values)
        self.position = (self.position + 1) % self.capacity

    def sample(self, count):
        return random.sample(self.memory, count)

    def __len__(self):
        return len(self.memory)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 8, stride=4)
        self.head = nn.Linear(3200, 4)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x.float() / 255)).flatten(1))


policy, target = Network().to(device), Network().to(device)
optimizer = torch.optim.RMSprop(policy.parameters())
memory = ReplayMemory(args.capacity)
env = Frames(stack=1)
state = torch.from_numpy(env.reset()[0])[None]
for step in range(args.steps):
    if random.random() < 0.3:
        with torch.no_grad():
            action = policy(state.to(device)).max(1).indices.view(1, 1).cpu()
    else:
        action = torch.tensor([[random.randrange(4)]])
    picture, reward, _, truncated, _ = env.step(int(action))
    next_state = torch.from_numpy(picture)[None]
    memory.push(state, action, next_state, torch.tensor([reward]))
    state = torch.from_numpy(env.reset()[0])[None] if truncated else next_state
    if len(memory) >= args.warm_up and step % 32 == 0:
        batch = Transition(*zip(*memory.sample(32), strict=True))
        states, next_states = torch.cat(batch.state).to(device), torch.cat(batch.next_state).to(device)
        values = policy(states).gather(1, torch.cat(batch.action).to(device))
        with torch.no_grad():
            wanted = torch.cat(batch.reward).to(device) + 0.99 * target(next_states).max(1).values
        loss = nn.functional.smooth_l1_loss(values, wanted[:, None])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
