"""SAC in one file, as CleanRL writes it, with a replay in NumPy."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--updates", type=int, default=8)
parser.add_argument("--policy-frequency", type=int, default=2)
args = parser.parse_args()
if args.hidden % 32:
    parser.error(f"argument --hidden: {args.hidden} is not a multiple of 32")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
OBS, ACTIONS = 64, 8


class SoftQNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(OBS + ACTIONS, args.hidden)
        self.fc2 = nn.Linear(args.hidden, args.hidden)
        self.fc3 = nn.Linear(args.hidden, 1)

    def forward(self, x, a):
        x = functional.relu(self.fc1(torch.cat([x, a], 1)))
        return self.fc3(functional.relu(self.fc2(x)))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(OBS, args.hidden)
        self.fc2 = nn.Linear(args.hidden, args.hidden)
        self.fc_mean, self.fc_logstd = nn.Linear(args.hidden, ACTIONS), nn.Linear(args.hidden, ACTIONS)

    def get_action(self, x):
        x = functional.relu(self.fc2(functional.relu(self.fc1(x))))
        mean, log_std = self.fc_mean(x), torch.tanh(self.fc_logstd(x))
        normal = torch.distributions.Normal(mean, (-5 + 3.5 * (log_std + 1)).exp(), validate_args=False)
        x_t = normal.rsample()
        y_t = torch.tanh(x_t)
        log_prob = (normal.log_prob(x_t) - torch.log(1 - y_t.pow(2) + 1e-6)).sum(1, keepdim=True)
        return y_t, log_prob


actor, qf1, qf2, qf1_target, qf2_target = (each().to(device) for each in (Actor, *[SoftQNetwork] * 4))
qf1_target.load_state_dict(qf1.state_dict())
qf2_target.load_state_dict(qf2.state_dict())
q_optimizer = torch.optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=1e-3)
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
target_entropy = -float(ACTIONS)
log_alpha = torch.zeros(1, requires_grad=True, device=device)
a_optimizer = torch.optim.Adam([log_alpha], lr=1e-3)
stored = np.random.randn(4_096, OBS).astype(np.float32)
played = np.random.randn(4_096, ACTIONS).astype(np.float32)


def sample():
    rows = np.random.randint(0, len(stored) - 1, args.batch_size)
    rewards = np.ones(args.batch_size, dtype=np.float32)
    return [torch.as_tensor(each).to(device) for each in (stored[rows], played[rows], stored[rows + 1], rewards)]


for update in range(args.updates):
    with torch.no_grad():
        actor.get_action(torch.Tensor(stored[:1]).to(device))[0].cpu().numpy()
    obs, actions, next_obs, rewards = sample()
    with torch.no_grad():
        next_actions, next_log_pi = actor.get_action(next_obs)
        smaller = torch.min(qf1_target(next_obs, next_actions), qf2_target(next_obs, next_actions))
        wanted = rewards + 0.99 * (smaller - log_alpha.exp() * next_log_pi).view(-1)
    qf_loss = sum(functional.mse_loss(qf(obs, actions).view(-1), wanted) for qf in (qf1, qf2))
    q_optimizer.zero_grad()
    qf_loss.backward()
    q_optimizer.step()
    if update % args.policy_frequency == 0:
        for _ in range(args.policy_frequency):
            pi, log_pi = actor.get_action(obs)
            actor_loss = (log_alpha.exp().detach() * log_pi - torch.min(qf1(obs, pi), qf2(obs, pi))).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
            with torch.no_grad():
                _, log_pi = actor.get_action(obs)
            alpha_loss = (-log_alpha.exp() * (log_pi + target_entropy)).mean()
            a_optimizer.zero_grad()
            alpha_loss.backward()
            a_optimizer.step()
    for online, target in ((qf1, qf1_target), (qf2, qf2_target)):
        for param, target_param in zip(online.parameters(), target.parameters(), strict=True):
            target_param.data.copy_(0.005 * param.data + 0.995 * target_param.data)
