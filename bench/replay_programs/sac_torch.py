"""SAC in one file, with a ring of transitions in torch tensors of the host, copied to the card by pinned batches."""

import argparse

import torch
from torch import nn
from torch.nn import functional
from toy_envs import Numbers

parser = argparse.ArgumentParser()
parser.add_argument("--buffer-size", type=int, default=40_000)
parser.add_argument("--learning-starts", type=int, default=1_000)
parser.add_argument("--total-timesteps", type=int, default=40_400)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"


class Replay:
    def __init__(self, size, obs_size, action_size):
        self.obs = torch.zeros(size, obs_size)
        self.next_obs = torch.zeros(size, obs_size)
        self.action = torch.zeros(size, action_size)
        self.reward = torch.zeros(size)
        self.count, self.size = 0, size

    def add(self, obs, next_obs, action, reward):
        at = self.count % self.size
        self.obs[at], self.next_obs[at] = torch.from_numpy(obs), torch.from_numpy(next_obs)
        self.action[at], self.reward[at] = torch.from_numpy(action), reward
        self.count += 1

    def sample(self, count):
        rows = torch.randint(0, min(self.count, self.size), (count,))
        batch = [field[rows] for field in (self.obs, self.next_obs, self.action, self.reward)]
        if device == "cuda":
            batch = [each.pin_memory() for each in batch]
        return [each.to(device, non_blocking=True) for each in batch]


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs)).to(
        device
    )


env = Numbers(1600)
actor, critics, targets = mlp(1600, 8), [mlp(1604, 1) for _ in range(2)], [mlp(1604, 1) for _ in range(2)]
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
critic_optimizer = torch.optim.Adam([each for critic in critics for each in critic.parameters()], lr=3e-4)


def act(obs):
    mean, log_std = actor(obs).chunk(2, dim=-1)
    noise = torch.randn_like(mean)
    action = torch.tanh(mean + noise * log_std.clamp(-5, 2).exp())
    return action, -(noise**2 / 2 + log_std).sum(dim=-1)


replay = Replay(args.buffer_size, 1600, 4)
obs, _ = env.reset()
for step in range(args.total_timesteps):
    if step < args.learning_starts or step % 4:
        action = env.action_space.sample()
    else:
        with torch.no_grad():
            action = act(torch.from_numpy(obs).to(device)[None])[0][0].cpu().numpy()
    next_obs, reward, _, truncated, _ = env.step(action)
    replay.add(obs, next_obs, action, reward)
    obs = env.reset()[0] if truncated else next_obs
    if step >= args.learning_starts and step % 32 == 0:
        states, next_states, actions, rewards = replay.sample(128)
        with torch.no_grad():
            next_actions, entropy = act(next_states)
            both = torch.cat([next_states, next_actions], dim=1)
            wanted = rewards + 0.99 * (torch.minimum(*[target(both)[:, 0] for target in targets]) + 0.2 * entropy)
        both = torch.cat([states, actions], dim=1)
        loss = sum(functional.mse_loss(critic(both)[:, 0], wanted) for critic in critics)
        critic_optimizer.zero_grad()
        loss.backward()
        critic_optimizer.step()
        new_actions, entropy = act(states)
        value = torch.minimum(*[critic(torch.cat([states, new_actions], dim=1))[:, 0] for critic in critics])
        loss = (-value - 0.2 * entropy).mean()
        actor_optimizer.zero_grad()
        loss.backward()
        actor_optimizer.step()
        for critic, target in zip(critics, targets, strict=True):
            for one, other in zip(critic.parameters(), target.parameters(), strict=True):
                other.data.lerp_(one.data, 0.005)
