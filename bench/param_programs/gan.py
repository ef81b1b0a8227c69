"""A GAN: two networks, two optimizers, and a gradient penalty every few steps."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--penalty-every", type=int, default=4)
args = parser.parse_args()
if args.width & (args.width - 1):
    raise SystemExit(f"--width must be a power of two, not {args.width}")
device = "cuda" if torch.cuda.is_available() else "cpu"
LATENT, wide = 100, args.width

generator = nn.Sequential(
    nn.ConvTranspose2d(LATENT, 4 * wide, 4, 1, 0, bias=False), nn.BatchNorm2d(4 * wide), nn.ReLU(True),
    nn.ConvTranspose2d(4 * wide, 2 * wide, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * wide), nn.ReLU(True),
    nn.ConvTranspose2d(2 * wide, wide, 4, 2, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(True),
    nn.ConvTranspose2d(wide, 3, 4, 2, 1, bias=False), nn.Tanh(),
).to(device)  # fmt: skip
critic = nn.Sequential(
    nn.Conv2d(3, wide, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(wide, 2 * wide, 4, 2, 1), nn.LeakyReLU(0.2, True),
    nn.Conv2d(2 * wide, 4 * wide, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Flatten(), nn.Linear(64 * wide, 1),
).to(device)  # fmt: skip
g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
c_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
for step in range(args.steps):
    real = torch.rand(args.batch_size, 3, 32, 32, device=device)
    made = generator(torch.randn(args.batch_size, LATENT, 1, 1, device=device))
    c_loss = nn.functional.softplus(critic(made.detach())).mean() + nn.functional.softplus(-critic(real)).mean()
    if step % args.penalty_every == 0:
        real.requires_grad_()
        (slope,) = torch.autograd.grad(critic(real).sum(), real, create_graph=True)
        c_loss = c_loss + 5.0 * slope.pow(2).sum(dim=(1, 2, 3)).mean()
    c_optimizer.zero_grad()
    c_loss.backward()
    c_optimizer.step()
    g_loss = nn.functional.softplus(-critic(made)).mean()
    g_optimizer.zero_grad()
    g_loss.backward()
    g_optimizer.step()
