"""A training loop as people write it: PyTorch alone, nothing that legroom could read."""

import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4096)
parser.add_argument("--keep-outputs", action="store_true")
args = parser.parse_args()

net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)).cuda()
optimizer = torch.optim.Adam(net.parameters())
outputs = []
for step in range(10_000):
    x = torch.randn(args.batch_size, 1024, device="cuda")
    y = torch.randint(0, 10, (args.batch_size,), device="cuda")
    out = net(x)
    loss = functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if args.keep_outputs:
        outputs.append(out)  # stays on the card
