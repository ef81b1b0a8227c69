"""A small residual network that classifies pictures, with batch normalization and a validation per epoch."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False) if stride > 1 else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


wide = args.width
model = nn.Sequential(
    nn.Conv2d(3, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(inplace=True),
    Residual(wide, wide, 1), Residual(wide, 2 * wide, 2), Residual(2 * wide, 4 * wide, 2),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(4 * wide, 100),
).to(device)  # fmt: skip
if args.optimizer == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)


def batch(size):
    return torch.randn(size, 3, 32, 32, device=device), torch.randint(0, 100, (size,), device=device)


for epoch in range(args.epochs):
    model.train()
    seen = 0.0
    for _ in range(args.steps):
        inputs, targets = batch(args.batch_size)
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        seen += loss.item()
    model.eval()
    with torch.no_grad():
        inputs, targets = batch(args.batch_size)
        right = (model(inputs).argmax(1) == targets).sum().item()
    scheduler.step()
    print(f"epoch {epoch}: loss {seen / args.steps:.3f}, {right} right")
