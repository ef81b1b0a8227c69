"""A convolutional variational autoencoder with group normalization."""

import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--side", type=int, default=64)
parser.add_argument("--latent", type=int, default=128)
parser.add_argument("--steps", type=int, default=6)
args = parser.parse_args()
assert args.side % 16 == 0, f"--side {args.side} is not a multiple of 16"
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def down(inside, outside):
    return [nn.Conv2d(inside, outside, 4, 2, 1), nn.GroupNorm(8, outside), nn.SiLU()]


def up(inside, outside):
    return [nn.ConvTranspose2d(inside, outside, 4, 2, 1), nn.GroupNorm(8, outside), nn.SiLU()]


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        small = args.side // 16
        flat = 256 * small * small
        self.encoder = nn.Sequential(*down(3, 32), *down(32, 64), *down(64, 128), *down(128, 256), nn.Flatten())
        self.mean, self.log_variance = nn.Linear(flat, args.latent), nn.Linear(flat, args.latent)
        self.decoder = nn.Sequential(
            nn.Linear(args.latent, flat), nn.Unflatten(1, (256, small, small)),
            *up(256, 128), *up(128, 64), *up(64, 32), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x):
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(z), mean, log_variance


model = Autoencoder().to(device)
average = torch.optim.swa_utils.AveragedModel(model, device=device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(args.steps):
    pictures = torch.rand(args.batch_size, 3, args.side, args.side, device=device)
    made, mean, log_variance = model(pictures)
    likeness = functional.binary_cross_entropy(made, pictures, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum()
    optimizer.zero_grad()
    (likeness + divergence).backward()
    optimizer.step()
    average.update_parameters(model)
