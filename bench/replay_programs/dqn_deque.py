"""DQN with a replay that grows: a deque of tuples of arrays, sampled by `random`."""

import argparse
import random
from collections import deque

import numpy as np
import torch
from torch import nn
from toy_envs import Numbers

parser = argparse.ArgumentParser()
parser.add_argument("--buffer-size", type=int, default=25_000)
parser.add_argument("--learning-starts", type=int, default=500)
parser.add_argument("--total-timesteps", type=int, default=25_400)
args = parser.parse_args()
SIZE = 4_000
device = "cuda" if torch.cuda.is_available() else "cpu"


class Agent:
    def __init__(self):
        self.memory = deque(maxlen=args.buffer_size)
        self.model = nn.Sequential(nn.Linear(SIZE, 128), nn.ReLU(), nn.Linear(128, 4)).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.epsilon = 1.0

    def remember(self, state, action, reward, next_state, done):
        self.memory.append((state, action, reward, next_state, done))

    def act(self, state):
        if np.random.rand() <= self.epsilon:
            return random.randrange(4)
        with torch.no_grad():
            return int(self.model(torch.from_numpy(state).to(device)[None]).argmax())

    def replay(self, count):
        batch = random.sample(self.memory, count)
        states = torch.from_numpy(np.stack([each[0] for each in batch])).to(device)
        next_states = torch.from_numpy(np.stack([each[3] for each in batch])).to(device)
        actions = torch.tensor([each[1] for each in batch], device=device)
        rewards = torch.tensor([each[2] for each in batch], device=device)
        with torch.no_grad():
            wanted = rewards + 0.99 * self.model(next_states).max(dim=1).values
        loss = (self.model(states).gather(1, actions[:, None])[:, 0] - wanted).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.epsilon = max(0.1, self.epsilon * 0.999)


env, agent = Numbers(SIZE), Agent()
state, _ = env.reset()
for step in range(args.total_timesteps):
    action = agent.act(state)
    next_state, reward, done, truncated, _ = env.step(action)
    agent.remember(state, action, reward, next_state, done)
    state = env.reset()[0] if truncated else next_state
    if len(agent.memory) > args.learning_starts and step % 32 == 0:
        agent.replay(32)
