"""Two actor processes send transitions through a queue; the learner keeps them in NumPy arrays."""

import argparse
import multiprocessing

import numpy as np
import torch
from torch import nn
from toy_envs import Frames


def actor(queue):
    env, state = Frames(stack=2), None
    while True:
        if state is None:
            state, _ = env.reset()
        states, actions = [], []
        for _ in range(16):
            action = env.action_space.sample()
            states.append(state)
            actions.append(action)
            state, _, _, truncated, _ = env.step(action)
            if truncated:
                state, _ = env.reset()
        queue.put((np.stack(states), np.array(actions), state))


def learn(rows, total):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    frames, actions = np.zeros((rows, 2, 84, 84), np.uint8), np.zeros(rows, np.int64)
    net = nn.Sequential(nn.Conv2d(2, 16, 8, 4), nn.ReLU(), nn.Flatten(), nn.Linear(6400, 256), nn.Linear(256, 4))
    net = net.to(device)
    optimizer = torch.optim.Adam(net.parameters())
    queue = multiprocessing.Queue(maxsize=8)
    actors = [multiprocessing.Process(target=actor, args=(queue,), daemon=True) for _ in range(2)]
    for each in actors:
        each.start()
    count = 0
    while count < total:
        states, chosen, _ = queue.get()
        where = np.arange(count, count + len(states)) % rows
        frames[where], actions[where] = states, chosen
        count += len(states)
        if count > 1_000 and count % 64 == 0:
            batch = np.random.randint(0, min(count, rows), 64)
            out = net(torch.as_tensor(frames[batch]).to(device).float() / 255)
            loss = nn.functional.cross_entropy(out, torch.as_tensor(actions[batch]).to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for each in actors:
        each.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--total", type=int, default=42_000)
    given = parser.parse_args()
    learn(given.rows, given.total)
