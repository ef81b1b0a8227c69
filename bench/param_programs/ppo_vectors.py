"""PPO in one file, as CleanRL writes it, with environments that live on the card."""

import argparse

import torch
from torch import nn
from torch.distributions import Normal

parser = argparse.ArgumentParser()
parser.add_argument("--num-envs", type=int, default=256)
parser.add_argument("--num-steps", type=int, default=8)
parser.add_argument("--num-minibatches", type=int, default=4)
parser.add_argument("--update-epochs", type=int, default=1)
parser.add_argument("--hidden", type=int, default=512)
parser.add_argument("--iterations", type=int, default=2)
args = parser.parse_args()
batch_size = args.num_envs * args.num_steps
if batch_size % args.num_minibatches:
    raise SystemExit(f"a batch of {batch_size} does not divide into {args.num_minibatches} minibatches")
minibatch_size = batch_size // args.num_minibatches
OBS, ACTIONS = 160, 12
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Normal.set_default_validate_args(False)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = self.mlp(1)
        self.actor_mean = self.mlp(ACTIONS)
        self.actor_logstd = nn.Parameter(torch.zeros(1, ACTIONS))

    def mlp(self, out):
        wide = args.hidden
        return nn.Sequential(nn.Linear(OBS, wide), nn.Tanh(), nn.Linear(wide, wide), nn.Tanh(), nn.Linear(wide, out))

    def get_action_and_value(self, x, action=None):
        mean = self.actor_mean(x)
        probs = Normal(mean, self.actor_logstd.expand_as(mean).exp())
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


class Envs:
    """A linear system under noise."""

    def __init__(self):
        self.state = torch.zeros(args.num_envs, OBS, device=device)
        self.control = 0.1 * torch.randn(ACTIONS, OBS).to(device)

    def step(self, action):
        self.state = 0.95 * self.state + action @ self.control + 0.01 * torch.randn_like(self.state)
        return self.state, -self.state.pow(2).mean(1), torch.zeros(args.num_envs, device=device)


agent = Agent().to(device)
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
envs = Envs()
shape = (args.num_steps, args.num_envs)
obs = torch.zeros((*shape, OBS), device=device)
actions = torch.zeros((*shape, ACTIONS), device=device)
logprobs, rewards, dones, values = (torch.zeros(shape, device=device) for _ in range(4))
next_obs, next_done = envs.state, torch.zeros(args.num_envs, device=device)
for iteration in range(args.iterations):
    for step in range(args.num_steps):
        obs[step], dones[step] = next_obs, next_done
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(next_obs)
            values[step] = value.flatten()
        actions[step], logprobs[step] = action, logprob
        next_obs, rewards[step], next_done = envs.step(action)
    with torch.no_grad():
        next_value = agent.critic(next_obs).flatten()
        advantages, last = torch.zeros_like(rewards), 0.0
        for t in reversed(range(args.num_steps)):
            alive = 1.0 - (next_done if t == args.num_steps - 1 else dones[t + 1])
            following = next_value if t == args.num_steps - 1 else values[t + 1]
            delta = rewards[t] + 0.99 * following * alive - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * alive * last
        returns = advantages + values
    b_obs, b_actions, b_logprobs = obs.reshape(-1, OBS), actions.reshape(-1, ACTIONS), logprobs.reshape(-1)
    b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
    for _ in range(args.update_epochs):
        order = torch.randperm(batch_size, device=device)
        for start in range(0, batch_size, minibatch_size):
            rows = order[start : start + minibatch_size]
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[rows], b_actions[rows])
            ratio = (newlogprob - b_logprobs[rows]).exp()
            mb_advantages = b_advantages[rows]
            mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
            pg_loss = torch.max(-mb_advantages * ratio, -mb_advantages * ratio.clamp(0.8, 1.2)).mean()
            v_loss = 0.5 * (newvalue.flatten() - b_returns[rows]).pow(2).mean()
            loss = pg_loss + 0.5 * v_loss - 0.01 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    print(f"iteration {iteration}: loss {loss.item():.3f}")
