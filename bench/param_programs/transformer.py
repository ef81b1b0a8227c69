"""A language model of a few transformer blocks, in mixed precision."""

import argparse
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--seq-len", type=int, default=256)
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--heads", type=int, default=8)
parser.add_argument("--layers", type=int, default=3)
parser.add_argument("--precision", choices=("fp32", "fp16", "bf16"), default="fp16")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--steps", type=int, default=6)
args = parser.parse_args()
if args.batch_size % args.accumulate:
    raise ValueError(f"batch size {args.batch_size} is not divisible by {args.accumulate} micro-batches")
assert args.width % args.heads == 0, f"width {args.width} is not divisible by {args.heads} heads"
VOCABULARY = 8_192
device = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(args.width), nn.LayerNorm(args.width)
        self.qkv = nn.Linear(args.width, 3 * args.width)
        self.out = nn.Linear(args.width, args.width)
        self.mlp = nn.Sequential(
            nn.Linear(args.width, 4 * args.width), nn.GELU(), nn.Linear(4 * args.width, args.width), nn.Dropout(0.1)
        )

    def forward(self, x):
        count, length, wide = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(wide, dim=2)
        q, k, v = (each.view(count, length, args.heads, wide // args.heads).transpose(1, 2) for each in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(count, length, wide))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, args.width)
        self.places = nn.Embedding(args.seq_len, args.width)
        self.blocks = nn.ModuleList(Block() for _ in range(args.layers))
        self.norm = nn.LayerNorm(args.width)
        self.head = nn.Linear(args.width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(args.precision)
scaler = torch.amp.GradScaler(device, enabled=args.precision == "fp16")
for _ in range(args.steps):
    optimizer.zero_grad(set_to_none=True)
    for _ in range(args.accumulate):
        ids = torch.randint(0, VOCABULARY, (args.batch_size // args.accumulate, args.seq_len + 1)).to(device)
        with torch.autocast(device, dtype=dtype) if dtype else nullcontext():
            logits = model(ids[:, :-1])
            loss = functional.cross_entropy(logits.view(-1, VOCABULARY), ids[:, 1:].reshape(-1)) / args.accumulate
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
