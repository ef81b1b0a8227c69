"""An LSTM that reads long series in chunks (truncated backpropagation through time)."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--seq-len", type=int, default=256)
parser.add_argument("--chunks", type=int, default=4)
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--series", type=int, default=3)
args = parser.parse_args()
if args.seq_len % args.chunks:
    raise ValueError(f"--seq-len {args.seq_len} does not divide into {args.chunks} chunks")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FEATURES = 48


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(FEATURES, args.hidden)
        self.lstm = nn.LSTM(args.hidden, args.hidden, args.layers, batch_first=True)
        self.outside = nn.Sequential(nn.LayerNorm(args.hidden), nn.Linear(args.hidden, FEATURES))

    def forward(self, x, state=None):
        x, state = self.lstm(torch.relu(self.inside(x)), state)
        return self.outside(x), state


model = Reader().to(device)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for _ in range(args.series):
    series = torch.randn(args.batch_size, args.seq_len + 1, FEATURES, device=device)
    state, length = None, args.seq_len // args.chunks
    for begin in range(0, args.seq_len, length):
        read, state = model(series[:, begin : begin + length], state)
        loss = nn.functional.smooth_l1_loss(read, series[:, begin + 1 : begin + length + 1])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        state = tuple(each.detach() for each in state)
