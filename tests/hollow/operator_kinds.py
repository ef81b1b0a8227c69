"""Operators by kind of model, side by side: what a training step dispatches on a card and on hollow tensors.

The truth is recorded with a CUDA build of torch on a device that runs no kernels (`record`); `compare` shows what
differs on hollow tensors, `known` writes the operators that were found alike into `legroom/hollow`.

    /path/to/cuda/python tests/hollow/operator_kinds.py record tests/hollow/operator_kinds.json
    python -m tests.hollow.operator_kinds compare
    python -m tests.hollow.operator_kinds known
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

# what differs on hollow tensors without taking other memory, and why
EXPLAINED = {
    "aten.cudnn_batch_norm.default": "hollow tensors take native_batch_norm, with the memory of cuDNN's",
    "aten.cudnn_batch_norm_backward.default": "as above",
    "aten.native_batch_norm.default": "as above",
    "aten.native_batch_norm_backward.default": "as above",
    "aten._fused_rms_norm.default": "torch 2.13 has no such operator for the meta device; one of our own stands for it",
    "aten._fused_rms_norm_backward.default": "as above",
    "aten.empty_like.default": "results of such operators of our own",
    "aten.new_empty.default": "results of such operators of our own",
    "aten.empty.memory_format": "results of such operators of our own; batch norm's empty reserve",
    "aten.detach.default": "views, which take nothing",
    "aten.view.default": "views, which take nothing",
    "aten._unsafe_view.default": "views, which take nothing",
    "aten.slice.Tensor": "views, which take nothing",
    "aten.set_.source_Storage_storage_offset": "autocast's block of recurrent weights, whose parts are views here",
    "aten.copy_.default": "as above",
    "aten.zeros.default": "as above",
    "aten.add.Tensor": "a product's bias: added in place by our linear, into the product's own memory on a card",
    "aten.add_.Tensor": "as above",
    "aten.ge.Scalar": "torch 2.13 compares with >= where 2.14 does with >, in the gradient of clamp",
    "aten.gt.Scalar": "as above",
    "aten.le.Scalar": "as above",
    "aten.lt.Scalar": "as above",
    "aten.masked_fill.Scalar": "torch 2.13 fills in place where 2.14 does not, in the gradient of clamp",
    "aten.masked_fill_.Scalar": "as above",
}
CUBLAS = 8_519_680  # bytes of its workspace, in the main thread and in that of autograd
PEAKS_DIFFER = {
    "Embedding bag": "its offsets and the sort of its gradient are not followed",
    "Mixture of experts": "torch 2.14 has a Triton kernel for outer products in batches, hollow tensors are of 2.13",
}
DATA = Path(__file__).with_suffix(".json")
Step = Callable[[], Any]
KINDS: dict[str, Callable[[str], Step]] = {}
OPTIMIZERS: dict[str, Any] = {
    "Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW, "RMSprop": torch.optim.RMSprop,
    "Adagrad": torch.optim.Adagrad, "Adamax": torch.optim.Adamax, "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam, "Adadelta": torch.optim.Adadelta,
    "SGD": lambda given, **options: torch.optim.SGD(given, lr=0.1, momentum=0.9, **options),
}  # fmt: skip


def kind(name: str, *shapes: Any, optimizer: str = "Adam", autocast: Any = None, **options: Any) -> Any:
    """Register a kind: a function that makes a module, trained on tensors of the shapes given."""

    def register(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        def case(device: str) -> Step:
            with torch.device("meta" if device == "meta" else "cpu"):
                module = make()
            module = module.to(device)
            given = [_tensor(shape, device) for shape in shapes]
            stepper = OPTIMIZERS[optimizer](module.parameters(), **options)
            scaler = torch.amp.GradScaler("cuda", init_scale=2.0) if autocast is torch.float16 else None

            def step() -> None:
                with torch.autocast("cuda", autocast, enabled=autocast is not None):
                    out = module(*given)
                    loss = sum(_loss(each) for each in (out if isinstance(out, tuple) else (out,)))
                stepper.zero_grad()
                (scaler.scale(loss) if scaler else loss).backward()
                nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                stepper.step()

            return step

        KINDS[name] = case
        return make

    return register


def _tensor(shape: Any, device: str) -> Tensor:
    if isinstance(shape[0], tuple):
        return torch.zeros(shape[0], dtype=shape[1], device=device)
    return torch.zeros(shape, device=device)


def _loss(out: Tensor) -> Tensor:
    return out.float().pow(2).mean()


class Own(nn.Module):
    """A module whose forward is a function of it and its inputs."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._forward = forward

    def forward(self, *given: Tensor) -> Any:
        return self._forward(self, *given)


L, B = torch.long, torch.bool
mlp = lambda *widths: nn.Sequential(  # noqa: E731
    *(layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU()))
)

kind("MLP", (64, 16))(lambda: mlp(16, 128, 64, 4))
kind("MLP tanh, SGD", (64, 16), optimizer="SGD")(lambda: nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 2)))
kind("MLP ELU batch norm, RMSprop", (64, 16), optimizer="RMSprop")(
    lambda: nn.Sequential(nn.Linear(16, 64), nn.ELU(), nn.BatchNorm1d(64), nn.Linear(64, 2))
)
kind("MLP SiLU dropout, Adagrad", (64, 16), optimizer="Adagrad")(
    lambda: nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Dropout(0.1), nn.Linear(64, 2))
)
for _name in ("Adamax", "NAdam", "RAdam", "Adadelta"):
    kind(f"MLP, {_name}", (64, 16), optimizer=_name)(lambda: mlp(16, 64, 2))
kind("MLP, Adam in a loop", (64, 16), foreach=False)(lambda: mlp(16, 64, 2))
kind("MLP, Adam fused", (64, 16), fused=True)(lambda: mlp(16, 64, 2))
kind("MLP, SGD fused", (64, 16), optimizer="SGD", fused=True)(lambda: mlp(16, 64, 2))


def residual(width: int) -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        return functional.relu(x + self.b(self.two(functional.relu(self.a(self.one(x))))))

    conv = lambda: nn.Conv2d(width, width, 3, padding=1, bias=False)  # noqa: E731
    return Own(forward, one=conv(), two=conv(), a=nn.BatchNorm2d(width), b=nn.BatchNorm2d(width))


@kind("UNet block of diffusion", (4, 32, 16, 16), (4,))
def _diffusion() -> nn.Module:
    def forward(self: Any, x: Tensor, t: Tensor) -> Tensor:
        angle = t[:, None] * torch.exp(torch.arange(16, device=t.device) * -0.5)
        shift = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        h = self.one(functional.silu(self.norm1(x))) + shift[:, :, None, None]
        h = self.two(functional.silu(self.norm2(h))) + x
        q, k, v = self.qkv(h).flatten(2).transpose(1, 2).chunk(3, -1)
        mixed = functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        return functional.interpolate(h + mixed.transpose(1, 2).reshape(h.shape), scale_factor=2.0)

    return Own(
        forward, time=nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32)), norm1=nn.GroupNorm(8, 32),
        norm2=nn.GroupNorm(8, 32), one=nn.Conv2d(32, 32, 3, padding=1), two=nn.Conv2d(32, 32, 3, padding=1),
        qkv=nn.Conv2d(32, 96, 1),
    )  # fmt: skip


def attend(width: int, heads: int, causal: bool) -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (p.view(b, t, heads, c // heads).transpose(1, 2) for p in self.qkv(self.n1(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(b, t, c)
        x = x + self.drop(self.out(mixed))
        return x + self.mlp(self.n2(x))

    return Own(
        forward, n1=nn.LayerNorm(width), n2=nn.LayerNorm(width), qkv=nn.Linear(width, 3 * width),
        out=nn.Linear(width, width), drop=nn.Dropout(0.1),
        mlp=nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
    )  # fmt: skip


def language(causal: bool) -> nn.Module:
    def forward(self: Any, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.head(self.norm(self.blocks(x)))
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), tokens.view(-1))

    return Own(
        forward, embed=nn.Embedding(100, 64), place=nn.Embedding(32, 64), norm=nn.LayerNorm(64),
        blocks=nn.Sequential(attend(64, 4, causal), attend(64, 4, causal)), head=nn.Linear(64, 100, bias=False),
    )  # fmt: skip


kind("GPT", ((4, 32), L), optimizer="AdamW")(lambda: language(True))
kind("BERT", ((4, 32), L))(lambda: language(False))
kind("GPT, autocast bf16", ((4, 32), L), autocast=torch.bfloat16)(lambda: language(True))
kind("GPT, autocast fp16, GradScaler", ((4, 32), L), autocast=torch.float16)(lambda: language(True))


@kind("LLaMA", ((4, 32), L))
def _llama() -> nn.Module:
    def forward(self: Any, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        h = self.norm(x)
        q, k, v = (p.view(4, 32, 4, 16).transpose(1, 2) for p in self.qkv(h).chunk(3, -1))
        angle = torch.outer(torch.arange(32, device=x.device).float(), torch.ones(8, device=x.device))
        cos, sin = (torch.cat([f(angle)] * 2, -1) for f in (torch.cos, torch.sin))
        q, k = (p * cos + torch.cat([-p[..., 8:], p[..., :8]], -1) * sin for p in (q, k))
        x = x + self.out(
            functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        )
        return x + self.down(functional.silu(self.gate(x)) * self.up(x))

    linear = lambda a, b: nn.Linear(a, b, bias=False)  # noqa: E731
    return Own(
        forward, embed=nn.Embedding(100, 64), norm=nn.RMSNorm(64), qkv=linear(64, 192), out=linear(64, 64),
        gate=linear(64, 128), up=linear(64, 128), down=linear(128, 64),
    )  # fmt: skip


kind("Transformer encoder", (16, 8, 64))(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128), 2))
kind("Transformer encoder-decoder", (16, 8, 64), (12, 8, 64))(lambda: nn.Transformer(64, 4, 1, 1, 128))
kind("MultiheadAttention with masks", (4, 16, 64), ((4, 16), B), ((16, 16), B))(
    lambda: Own(
        lambda self, x, pad, mask: self.att(x, x, x, key_padding_mask=pad, attn_mask=mask, need_weights=False)[0],
        att=nn.MultiheadAttention(64, 4, batch_first=True),
    )
)
kind("LSTM", (16, 8, 32))(lambda: Own(lambda self, x: self.net(x)[0], net=nn.LSTM(32, 64, 2)))
kind("GRU", (8, 16, 32))(lambda: Own(lambda self, x: self.net(x)[0], net=nn.GRU(32, 64, batch_first=True)))
kind("RNN", (8, 16, 32))(lambda: Own(lambda self, x: self.net(x)[0], net=nn.RNN(32, 64, batch_first=True)))


@kind("LSTMCell", (8, 8, 32))
def _cells() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        state, outputs = None, []
        for each in x:
            state = self.cell(each, state)
            outputs.append(state[0])
        return torch.stack(outputs)

    return Own(forward, cell=nn.LSTMCell(32, 64))


@kind("RSSM world model", (6, 8, 32))
def _rssm() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        h, kl = x.new_zeros(8, 64), []
        for each in x:
            logits = self.prior(h).view(8, 8, 8)
            post = self.post(torch.cat([h, each], -1)).view(8, 8, 8)
            p = functional.softmax(post, -1)
            sample = functional.one_hot(p.argmax(-1), 8).float() + p - p.detach()
            kl.append((p * (functional.log_softmax(post, -1) - functional.log_softmax(logits, -1))).sum(-1))
            h = self.cell(sample.flatten(1), h)
        return self.decode(h), torch.stack(kl)

    return Own(
        forward, cell=nn.GRUCell(64, 64), prior=nn.Linear(64, 64), post=nn.Linear(96, 64), decode=nn.Linear(64, 32)
    )


@kind("VAE", (64, 784))
def _vae() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        mean, log = self.enc(x).chunk(2, -1)
        z = mean + torch.randn_like(log) * torch.exp(0.5 * log)
        kl = -0.5 * torch.sum(1 + log - mean.pow(2) - log.exp())
        return functional.binary_cross_entropy(torch.sigmoid(self.dec(z)), x, reduction="sum") + kl

    return Own(forward, enc=nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 32)), dec=nn.Linear(16, 784))


@kind("GAN", (32, 64))
def _gan() -> nn.Module:
    def forward(self: Any, z: Tensor) -> Tensor:
        made = torch.tanh(self.gen(z))
        return functional.binary_cross_entropy_with_logits(self.judge(made), torch.ones(32, 1, device=z.device))

    return Own(
        forward, gen=nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 64)),
        judge=nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1)),
    )  # fmt: skip


@kind("DQN, dueling", (64, 8), ((64, 1), L))
def _dueling() -> nn.Module:
    def forward(self: Any, x: Tensor, action: Tensor) -> Tensor:
        h = self.body(x)
        value, advantage = self.value(h), self.advantage(h)
        q = value + advantage - advantage.mean(1, keepdim=True)
        with torch.no_grad():
            target = q.max(1)[0] * 0.99
        return functional.smooth_l1_loss(q.gather(1, action).squeeze(1), target)

    return Own(forward, body=mlp(8, 64), value=nn.Linear(64, 1), advantage=nn.Linear(64, 4))


@kind("C51", (64, 8))
def _c51() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        p = torch.softmax(self.net(x).view(64, 4, 51), 2)[:, 0]
        with torch.no_grad():
            atoms = torch.linspace(-10, 10, 51, device=x.device)
            b = (atoms[None].expand(64, -1).clamp(-10, 10) + 10) / 0.4
            low, high = b.floor().clamp(0, 50), b.ceil().clamp(0, 50)
            target = torch.zeros_like(p)
            for i in range(4):
                target[i].index_add_(0, low[i].long(), (p * (high - b))[i])
        return (-(target * p.clamp(1e-5, 1 - 1e-5).log()).sum(-1)).mean()

    return Own(forward, net=nn.Linear(8, 204))


@kind("QR-DQN", (64, 8))
def _qr() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        q = self.net(x)
        error = q.detach()[:, None, :] - q[:, :, None]
        huber = torch.where(error.abs() > 1, error.abs() - 0.5, error.pow(2) * 0.5)
        tau = (torch.arange(32, device=x.device) + 0.5) / 32
        return (torch.abs(tau[None, :, None] - (error.detach() < 0).float()) * huber).sum(-2).mean()

    return Own(forward, net=nn.Linear(8, 32))


@kind("SAC", (64, 8))
def _sac() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        mean, log = self.actor(x).chunk(2, -1)
        std = torch.clamp(log, -20, 2).exp()
        normal = torch.distributions.Normal(mean, std, validate_args=False)
        raw = normal.rsample()
        action = torch.tanh(raw)
        logp = (normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)).sum(1, keepdim=True)
        q = torch.min(*(each(torch.cat([x, action], 1)) for each in (self.q1, self.q2)))
        return self.alpha.exp() * logp - q

    return Own(forward, actor=mlp(8, 64, 4), q1=mlp(10, 64, 1), q2=mlp(10, 64, 1), alpha=nn.Parameter(torch.zeros(1)))


@kind("TD3", (64, 8))
def _td3() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Any:
        with torch.no_grad():
            noise = (torch.randn(64, 2, device=x.device) * 0.2).clamp(-0.5, 0.5)
            action = (self.actor(x) + noise).clamp(-1, 1)
        both = [each(torch.cat([x, action], 1)) for each in (self.q1, self.q2)]
        return functional.mse_loss(both[0], both[1].detach()) + functional.mse_loss(both[1], both[0].detach())

    return Own(forward, actor=nn.Sequential(mlp(8, 64, 2), nn.Tanh()), q1=mlp(10, 64, 1), q2=mlp(10, 64, 1))


@kind("PPO, discrete", (64, 8), ((64,), L))
def _ppo() -> nn.Module:
    def forward(self: Any, x: Tensor, action: Tensor) -> Any:
        policy = torch.distributions.Categorical(logits=self.actor(x), validate_args=False)
        ratio = (policy.log_prob(action) - 1.0).exp()
        value = self.critic(x).view(-1)
        advantage = value.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = torch.max(-advantage * ratio, -advantage * torch.clamp(ratio, 0.8, 1.2)).mean()
        return clipped - 0.01 * policy.entropy().mean() + 0.5 * ((value - 1) ** 2).mean()

    return Own(forward, actor=mlp(8, 64, 4), critic=mlp(8, 64, 1))


@kind("GNN: scatter over edges", (50, 16), ((2, 200), L))
def _gnn() -> nn.Module:
    def forward(self: Any, x: Tensor, edges: Tensor) -> Tensor:
        message = self.edge(torch.cat([x[edges[0]], x[edges[1]]], -1))
        gathered = torch.zeros(50, 32, device=x.device).index_add(0, edges[1], message)
        spread = torch.zeros(50, 32, device=x.device).scatter_add(0, edges[0][:, None].expand(-1, 32), message)
        return self.node(gathered + spread)

    return Own(forward, edge=nn.Linear(32, 32), node=nn.Linear(32, 8))


kind("Embedding bag", ((32, 8), L))(lambda: Own(lambda self, i: self.bag(i), bag=nn.EmbeddingBag(100, 32, mode="mean")))
kind("Group norm", (4, 16, 16, 16))(lambda: nn.Sequential(nn.Conv2d(16, 16, 3), nn.GroupNorm(4, 16), nn.SiLU()))
kind("Instance norm", (4, 16, 16, 16))(lambda: nn.Sequential(nn.Conv2d(16, 16, 3), nn.InstanceNorm2d(16, affine=True)))
kind("Batch norm 3d", (2, 4, 8, 8, 8))(lambda: nn.Sequential(nn.Conv3d(4, 8, 3), nn.BatchNorm3d(8), nn.ReLU()))
kind("Weight norm and spectral norm", (32, 16))(
    lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(16, 16)), nn.Linear(16, 4))
)
kind("MobileNet: depthwise", (4, 16, 16, 16))(
    lambda: nn.Sequential(nn.Conv2d(16, 16, 3, groups=16, padding=1), nn.Hardswish(), nn.Conv2d(16, 32, 1), nn.ReLU6())
)
kind("WaveNet: dilated 1d", (4, 16, 64))(
    lambda: Own(
        lambda self, x: (
            torch.tanh(self.a(functional.pad(x, (2, 0)))) * torch.sigmoid(self.b(functional.pad(x, (2, 0))))
        ),
        a=nn.Conv1d(16, 16, 2, dilation=2), b=nn.Conv1d(16, 16, 2, dilation=2),
    )
)  # fmt: skip
kind("Poolings", (4, 8, 16, 16))(
    lambda: Own(
        lambda self, x: (
            functional.max_pool2d(self.c(x), 2), functional.avg_pool2d(self.c(x), 2),
            functional.adaptive_avg_pool2d(self.c(x), 4), functional.adaptive_max_pool2d(self.c(x), 4),
            functional.avg_pool1d(x.flatten(2), 4),
        ),
        c=nn.Conv2d(8, 8, 3, padding=1),
    )
)  # fmt: skip
kind("Interpolations", (4, 8, 16, 16))(
    lambda: Own(
        lambda self, x: (
            functional.interpolate(self.c(x), scale_factor=2.0, mode="nearest"),
            functional.interpolate(self.c(x), scale_factor=2.0, mode="bilinear"),
            functional.interpolate(self.c(x), scale_factor=2.0, mode="bicubic"),
        ),
        c=nn.Conv2d(8, 8, 1),
    )
)  # fmt: skip
kind("Super resolution: pixel shuffle", (4, 1, 16, 16))(
    lambda: nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 9, 3, padding=1), nn.PixelShuffle(3))
)


@kind("Mixture of experts", (64, 32))
def _experts() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        weight, chosen = functional.softmax(self.gate(x), -1).topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        mask = functional.one_hot(chosen, 4).float()
        all_of = torch.stack([each(x) for each in self.experts], 1)
        return torch.einsum("bk,bke,bed->bd", weight, mask, all_of)

    return Own(forward, gate=nn.Linear(32, 4), experts=nn.ModuleList(mlp(32, 64, 32) for _ in range(4)))


@kind("Swin: shifted windows", (2, 16, 16, 32))
def _swin() -> nn.Module:
    def forward(self: Any, x: Tensor) -> Tensor:
        x = torch.roll(x, (-2, -2), (1, 2))
        windows = x.view(2, 4, 4, 4, 4, 32).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 32)
        out = self.block(windows).view(2, 4, 4, 4, 4, 32).permute(0, 1, 3, 2, 4, 5).reshape(2, 16, 16, 32)
        return torch.roll(out, (2, 2), (1, 2))

    return Own(forward, block=attend(32, 2, False))


kind("CNN, channels last", (4, 8, 16, 16))(
    lambda: Own(
        lambda self, x: self.net(x.contiguous(memory_format=torch.channels_last)),
        net=nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )
)
kind("CNN, autocast fp16", (4, 3, 16, 16), autocast=torch.float16)(
    lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 10))
)
kind("MLP, autocast bf16", (64, 16), autocast=torch.bfloat16)(lambda: mlp(16, 64, 2))
kind("LSTM, autocast bf16", (16, 8, 32), autocast=torch.bfloat16)(
    lambda: Own(lambda self, x: self.net(x)[0], net=nn.LSTM(32, 64))
)


class Logged(TorchDispatchMode):
    """Writes down the operators that are dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not str(func).startswith("profiler"):
            self.seen[str(func)] = self.seen.get(str(func), 0) + 1
        return func(*args, **(kwargs or {}))


def on_card(name: str) -> dict[str, Any]:
    """Return what two steps of a kind dispatch on a CUDA device, and what two others ask of its allocator."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step = KINDS[name]("cuda")
    for _ in range(2):
        step()
    peak = torch.cuda.max_memory_allocated() - before
    with Logged() as logged:
        step()
    return {"operators": dict(sorted(logged.seen.items())), "peak": peak}


def record(path: Path) -> None:
    """Record all kinds; needs a CUDA build."""
    x = torch.zeros(8, 8, device="cuda", requires_grad=True)
    (x @ x).sum().backward()  # cuBLAS has its workspaces before anything counts
    found = {}
    for name in KINDS:
        found[name] = on_card(name)
    head = {"torch": torch.__version__, "cudnn_v8": False, "kinds": found}
    path.write_text(json.dumps(head, indent=0) + "\n")


def on_hollow(name: str) -> dict[str, Any]:
    """Return the same of hollow tensors."""
    from contextlib import ExitStack
    from unittest import mock

    from legroom.hollow.assumed_values import RunReads
    from legroom.hollow.card_autocast import autocast_as_on_card
    from legroom.hollow.card_operators import join_weights, operators_as_on_card
    from legroom.hollow.cuda_reduce import GpuShape
    from legroom.hollow.dispatching import Follower
    from legroom.hollow.fake_tensors import foreach_as_on_cuda
    from legroom.hollow.replaying import replay

    card = GpuShape(cudnn_bfloat16=False)
    with ExitStack() as stack:
        stack.enter_context(autocast_as_on_card(stack.enter_context(operators_as_on_card(card))))
        stack.enter_context(foreach_as_on_cuda())
        follower = Follower.of_run(card, RunReads("refuse", (str(Path(__file__).parent),)))

        stack.enter_context(mock.patch.object(nn.RNNBase, "flatten_parameters", join_weights))
        stack.enter_context(follower.entered())
        follower.recording = True
        step = KINDS[name]("meta")
        for _ in range(2):
            step()
        follower.give_back()
        at_once = {block for block, label in follower.journal.labels.items() if label == "workspace"}
        events = [each for each in follower.journal.events if each[1] not in at_once or each[2:] != (CUBLAS,)]
        with Logged() as logged:
            step()
        follower.recording = False
    warm = [("alloc", -1 - at, CUBLAS) for at in range(2)]
    return {"operators": dict(sorted(logged.seen.items())), "peak": replay(warm + events).peak_allocated - 2 * CUBLAS}


def differences(name: str, recorded: dict[str, Any]) -> list[str]:
    """Return the operators of a kind that are dispatched more often on one side than on the other."""
    found, true = on_hollow(name), recorded["kinds"][name]
    lines = []
    for operator in sorted({*found["operators"], *true["operators"]}):
        here, there = found["operators"].get(operator, 0), true["operators"].get(operator, 0)
        if here != there:
            lines.append(f"{operator}: {here} times on hollow tensors, {there} on a card")
    if found["peak"] != true["peak"]:
        lines.append(f"peak: {found['peak']:,} B on hollow tensors, {true['peak']:,} on a card")
    return lines


def unexplained(name: str, recorded: dict[str, Any]) -> list[str]:
    """Return those of the differences of a kind that nothing here explains."""
    return [
        line
        for line in differences(name, recorded)
        if line.split(": ", 1)[0] not in EXPLAINED and not (line.startswith("peak") and name in PEAKS_DIFFER)
    ]


# of networks for volumes: their recorded trainings (`bench.vram`) take the same blocks as traced ones, to the byte
OF_RECORDED_RUNS = {"aten._adaptive_avg_pool3d", "aten._adaptive_avg_pool3d_backward"}


def known() -> list[str]:
    """Return the operators whose requests are the same on a card: of kinds and of single pieces that are alike."""
    recorded = json.loads(DATA.read_text())
    found = set(OF_RECORDED_RUNS)
    for name in KINDS:
        if name not in PEAKS_DIFFER and not unexplained(name, recorded):
            found.update(on_hollow(name)["operators"])
    sys.path.insert(0, str(Path(__file__).parent))
    import operator_cases
    import test_operators_recorded as compared

    from legroom.hollow.journal import ValueRefused

    for name, case in operator_cases.CASES.items():
        if compared.DIFFERENT.get(name, "order") == "order":
            logged = Logged()

            def within(device: str, case: Any = case, logged: Logged = logged) -> Any:
                work = case(device)

                def logged_work() -> Any:
                    with logged:
                        return work()

                return logged_work

            with suppress(ValueRefused):  # the same operators came before
                compared.followed(within)
            found.update(logged.seen)
    return sorted({operator.split(".")[1] for operator in found if operator.startswith("aten.")})


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["record"]:
        record(Path(arguments[1]))
    elif arguments[:1] == ["compare"]:
        recorded = json.loads(DATA.read_text())
        for name in KINDS:
            for line in differences(name, recorded) or ["alike"]:
                sys.stdout.write(f"{name}: {line}\n")
    elif arguments[:1] == ["known"]:
        import legroom.hollow

        (Path(legroom.hollow.__file__).parent / "known_operators.txt").write_text("\n".join(known()) + "\n")
    else:
        raise SystemExit(f"usage: {(__doc__ or '').strip().splitlines()[-1].strip()}")


if __name__ == "__main__":
    main(sys.argv[1:])
