"""PPO on pictures, as CleanRL's ppo_atari: a rollout of frames on the card and a convolutional agent."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

parser = argparse.ArgumentParser()
parser.add_argument("--num-envs", type=int, default=8)
parser.add_argument("--num-steps", type=int, default=8)
parser.add_argument("--num-minibatches", type=int, default=4)
parser.add_argument("--update-epochs", type=int, default=1)
parser.add_argument("--iterations", type=int, default=2)
args = parser.parse_args()
batch_size = args.num_envs * args.num_steps
minibatch_size = batch_size // args.num_minibatches
assert args.num_envs % args.num_minibatches == 0, "num_envs must be a multiple of num_minibatches"
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Categorical.set_default_validate_args(False)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
        )  # fmt: skip
        self.actor, self.critic = nn.Linear(512, 6), nn.Linear(512, 1)

    def get_action_and_value(self, x, action=None):
        hidden = self.network(x / 255.0)
        probs = Categorical(logits=self.actor(hidden))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(hidden)


def frames():
    """Return what environments that draw on the card return."""
    return torch.randint(0, 255, (args.num_envs, 4, 84, 84), dtype=torch.uint8, device=device)


agent = Agent().to(device)
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
obs = torch.zeros((args.num_steps, args.num_envs, 4, 84, 84), device=device)
actions, logprobs, rewards, values = (torch.zeros((args.num_steps, args.num_envs)).to(device) for _ in range(4))
next_obs = frames().float()
for _ in range(args.iterations):
    for step in range(args.num_steps):
        obs[step] = next_obs
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(next_obs)
            values[step] = value.flatten()
        actions[step], logprobs[step] = action, logprob
        action.cpu().numpy()
        rewards[step] = torch.tensor(np.random.rand(args.num_envs)).to(device).view(-1)
        next_obs = frames().float()
    with torch.no_grad():
        returns = rewards + 0.99 * values
        advantages = returns - values
    b_obs = obs.reshape((-1, 4, 84, 84))
    b_actions, b_logprobs = actions.reshape(-1), logprobs.reshape(-1)
    b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
    b_inds = np.arange(batch_size)
    for _ in range(args.update_epochs):
        np.random.shuffle(b_inds)
        for start in range(0, batch_size, minibatch_size):
            rows = b_inds[start : start + minibatch_size]
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[rows], b_actions.long()[rows])
            ratio = (newlogprob - b_logprobs[rows]).exp()
            pg_loss = torch.max(-b_advantages[rows] * ratio, -b_advantages[rows] * ratio.clamp(0.9, 1.1)).mean()
            loss = pg_loss + 0.25 * (newvalue.view(-1) - b_returns[rows]).pow(2).mean() - 0.01 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
