"""Small pieces of PyTorch whose allocations are recorded on a CUDA build and on hollow tensors, side by side.

Each case takes a device, sets up, and returns the work whose allocations count. `record` needs a CUDA build of torch:

    /path/to/cuda/python tests/hollow/operator_cases.py tests/hollow/fixtures/operators.json.gz
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Case = Callable[[str], Callable[[], Any]]
CASES: dict[str, Case] = {}


class _Permuted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.permute(0, 2, 3, 1))


def _layer(
    make: Callable[[], nn.Module],
    *shape: int,
    dtype: torch.dtype = torch.float32,
    grad: bool = True,
    expanded: bool = False,
) -> Case:
    def case(device: str) -> Callable[[], Any]:
        with torch.device("cpu" if device != "meta" else device):
            module = make()
        module = module.to(device)
        x = torch.empty(shape, device=device, dtype=dtype, requires_grad=grad)

        def work() -> None:
            out = module(x)
            out = out[0] if isinstance(out, tuple) else out
            (out if expanded else out * 2).sum().backward()

        return work

    return case


def _call(function: Callable[..., Any], *shapes: Any, backward: bool = True) -> Case:
    """A function of float tensors (shape), or of (shape, dtype); its result is summed and differentiated."""

    def case(device: str) -> Callable[[], Any]:
        given = []
        for shape in shapes:
            size, dtype = shape if isinstance(shape[0], tuple) else (shape, torch.float32)
            given.append(torch.zeros(size, device=device, dtype=dtype))
            if dtype.is_floating_point and backward:
                given[-1].requires_grad_()

        def work() -> None:
            out = function(*given)
            if backward:
                (out * 2).sum().backward()

        return work

    return case


L, B, H, BF = torch.long, torch.bool, torch.float16, torch.bfloat16
for n in (1000, 2048, 2049, 30_000, 100_000, 1_000_000):
    CASES[f"randperm {n}"] = lambda device, n=n: lambda: torch.randperm(n, device=device)
    for name, function in (("sort", torch.sort), ("argsort", torch.argsort)):
        CASES[f"{name} float {n}"] = _call(function, (n,), backward=False)
        CASES[f"{name} long {n}"] = _call(function, ((n,), L), backward=False)
CASES["sort rows"] = _call(lambda x: torch.sort(x, dim=-1)[0], (64, 4096))
CASES["sort rows small"] = _call(lambda x: torch.sort(x, dim=-1)[0], (4096, 200))
CASES["sort columns"] = _call(lambda x: torch.sort(x, dim=0)[0], (4096, 40))
CASES["sort many rows"] = _call(lambda x: torch.sort(x, dim=-1)[0], (2000, 3000))
CASES["sort stable descending"] = _call(lambda x: torch.sort(x, dim=-1, descending=True, stable=True)[0], (500, 64))
CASES["topk"] = _call(lambda x: torch.topk(x, 8)[0], (256, 1000))
CASES["kthvalue"] = _call(lambda x: torch.kthvalue(x, 3)[0], (256, 1000))
CASES["median"] = _call(lambda x: x.median(dim=1)[0], (256, 1000))
CASES["cumsum"] = _call(lambda x: x.cumsum(0), (1000, 64))
CASES["cumsum flat"] = _call(lambda x: x.cumsum(0), (100_000,))
for n, words in ((100, 50), (3072, 50), (3073, 50), (20_000, 1000), (200_000, 100)):
    CASES[f"embedding {n} of {words}"] = _call(lambda i, w: functional.embedding(i, w), ((n,), L), (words, 32))
    CASES[f"index {n} of {words}"] = _call(lambda w, i: w[i], (words, 32), ((n,), L))
    CASES[f"index_select {n} of {words}"] = _call(lambda w, i: w.index_select(0, i), (words, 32), ((n,), L))
    CASES[f"gather {n} of {words}"] = _call(lambda w, i: w.gather(0, i), (words,), ((n,), L))
for words in (127, 128, 129, 255, 256, 257):
    CASES[f"embedding 5000 of {words}"] = _call(lambda i, w: functional.embedding(i, w), ((5000,), L), (words, 32))
CASES["embedding padding"] = _call(lambda i, w: functional.embedding(i, w, padding_idx=0), ((64, 80), L), (100, 64))
CASES["index two"] = _call(lambda x, i, j: x[i, j], (64, 30, 8), ((64,), L), ((64,), L))
CASES["index middle"] = _call(lambda x, i: x[:, i], (64, 30, 8), ((40,), L))
CASES["index range rows"] = _call(lambda x: x[torch.arange(64, device=x.device), 3], (64, 30, 8))
CASES["index_add"] = _call(lambda x, i: torch.zeros_like(x).index_add(0, i, x), (64, 30), ((64,), L))
CASES["scatter_add"] = _call(lambda x, i: torch.zeros_like(x).scatter_add(0, i, x), (64, 30), ((64, 30), L))
CASES["scatter"] = _call(lambda x, i: torch.zeros_like(x).scatter(1, i, x), (64, 30), ((64, 30), L))
CASES["one_hot"] = lambda device: (lambda i: lambda: functional.one_hot(i, 50))(
    torch.zeros(1000, dtype=L, device=device)
)
CASES["masked_fill"] = _call(lambda x, m: x.masked_fill(m, -1e9), (64, 300), ((64, 300), B))
CASES["where"] = _call(lambda x, m: torch.where(m, x, 0.0), (64, 300), ((64, 300), B))
CASES["where two"] = _call(lambda x, y, m: torch.where(m, x, y), (64, 300), (64, 300), ((64, 300), B))
CASES["flip"] = _call(lambda x: x.flip(0), (64, 300))
CASES["roll"] = _call(lambda x: x.roll(3, 0), (64, 300))
CASES["roll two axes"] = _call(lambda x: x.roll((-3, 5), (1, 2)), (8, 14, 14, 96))
CASES["roll three axes"] = _call(lambda x: x.transpose(1, 2).roll((1, 2, 3), (0, 1, 2)), (8, 14, 14, 96))
CASES["roll all"] = _call(lambda x: x.t().roll(3), (64, 300))
CASES["pad"] = _call(lambda x: functional.pad(x, (1, 2, 3, 4)), (8, 3, 30, 30))
CASES["pad replicate"] = _call(lambda x: functional.pad(x, (4, 4, 4, 4), mode="replicate"), (8, 3, 84, 84))
CASES["grid_sample"] = _call(
    lambda x, g: functional.grid_sample(x, g, align_corners=False), (8, 3, 84, 84), (8, 84, 84, 2)
)
CASES["interpolate"] = _call(lambda x: functional.interpolate(x, scale_factor=2), (8, 3, 30, 30))
CASES["interpolate bilinear"] = _call(
    lambda x: functional.interpolate(x, size=(50, 50), mode="bilinear"), (8, 3, 30, 30)
)
CASES["pixel_shuffle"] = _call(lambda x: functional.pixel_shuffle(x, 2), (8, 16, 30, 30))
CASES["max_pool2d"] = _call(lambda x: functional.max_pool2d(x, 2), (32, 16, 42, 42))
CASES["avg_pool2d"] = _call(lambda x: functional.avg_pool2d(x, 2), (32, 16, 42, 42))
CASES["adaptive_avg_pool 1"] = _call(lambda x: functional.adaptive_avg_pool2d(x, 1), (32, 64, 42, 42))
CASES["adaptive_avg_pool 4"] = _call(lambda x: functional.adaptive_avg_pool2d(x, 4), (32, 64, 42, 42))
CASES["adaptive_max_pool"] = _call(lambda x: functional.adaptive_max_pool2d(x, 4), (32, 64, 42, 42))
CASES["max_pool1d"] = _call(lambda x: functional.max_pool1d(x, 2), (32, 64, 420))
CASES["mean spatial"] = _call(lambda x: x.mean((2, 3)), (32, 64, 42, 42))
CASES["amax spatial"] = _call(lambda x: x.amax((2, 3)), (32, 64, 42, 42))
CASES["std"] = _call(lambda x: x.std(0), (4096, 64))
CASES["std all"] = _call(lambda x: x.std(), (4096, 64))
CASES["var_mean"] = _call(lambda x: torch.var_mean(x, 0)[0], (4096, 64))
CASES["norm"] = _call(lambda x: x.norm(), (4096, 640))
CASES["norm rows"] = _call(lambda x: x.norm(dim=1), (4096, 640))
CASES["norm columns"] = _call(lambda x: x.norm(dim=0), (40960, 64))
CASES["normalize"] = _call(lambda x: functional.normalize(x, dim=1), (4096, 640))
CASES["cosine_similarity"] = _call(lambda x, y: functional.cosine_similarity(x, y), (4096, 64), (4096, 64))
CASES["any"] = _call(lambda x: (x > 0).any(), (100_000,), backward=False)
CASES["all rows"] = _call(lambda x: (x > 0).all(1), (4096, 640), backward=False)
CASES["isnan any"] = _call(lambda x: torch.isnan(x).any(), (4096, 640), backward=False)
CASES["sum mask"] = _call(lambda x: (x > 0).sum(), (4096, 640), backward=False)
CASES["mean mask"] = _call(lambda x: (x > 0).float().mean(), (4096, 640), backward=False)
CASES["argmax all"] = _call(lambda x: x.argmax(), (4096, 640), backward=False)
CASES["argmax rows"] = _call(lambda x: x.argmax(1), (4096, 640), backward=False)
CASES["argmin columns"] = _call(lambda x: x.argmin(0), (40960, 64), backward=False)
CASES["max rows"] = _call(lambda x: x.max(1)[0], (4096, 640))
CASES["logsumexp"] = _call(lambda x: x.logsumexp(1), (4096, 64))
CASES["softmax"] = _call(lambda x: x.softmax(1), (4096, 64))
CASES["softmax outer"] = _call(lambda x: x.softmax(0), (4096, 64))
CASES["log_softmax"] = _call(lambda x: x.log_softmax(1), (4096, 64))
CASES["softmax half"] = _call(lambda x: x.softmax(1), ((4096, 64), H))
for name in (
    "gelu",
    "silu",
    "elu",
    "leaky_relu",
    "softplus",
    "mish",
    "tanh",
    "sigmoid",
    "relu6",
    "hardswish",
    "selu",
    "logsigmoid",
    "hardtanh",
    "celu",
    "softsign",
    "glu",
):
    CASES[name] = _call(getattr(functional, name), (256, 1024))
CASES["prelu"] = _layer(lambda: nn.PReLU(), 256, 1024)
CASES["prelu wide"] = _layer(lambda: nn.PReLU(1024), 256, 1024)
CASES["dropout"] = _call(lambda x: functional.dropout(x, 0.1), (256, 1024))
CASES["dropout2d"] = _call(lambda x: functional.dropout2d(x, 0.1), (32, 64, 20, 20))
CASES["alpha_dropout"] = _call(lambda x: functional.alpha_dropout(x, 0.1, True), (256, 1024))
for rows in (32, 4096):
    CASES[f"linear {rows}"] = _layer(lambda: nn.Linear(256, 512), rows, 256)
    CASES[f"layer_norm {rows}"] = _layer(lambda: nn.LayerNorm(512), rows, 512)
    CASES[f"layer_norm odd {rows}"] = _layer(lambda: nn.LayerNorm(100), rows, 100)
    CASES[f"rms_norm {rows}"] = _layer(lambda: nn.RMSNorm(512), rows, 512)
    CASES[f"batch_norm1d {rows}"] = _layer(lambda: nn.BatchNorm1d(512), rows, 512)
    CASES[f"batch_norm2d {rows}"] = _layer(lambda: nn.BatchNorm2d(16), rows, 16, 20, 20)
    CASES[f"group_norm {rows}"] = _layer(lambda: nn.GroupNorm(4, 16), rows, 16, 20, 20)
    CASES[f"instance_norm {rows}"] = _layer(lambda: nn.InstanceNorm2d(16, affine=True), rows, 16, 20, 20)
for name, make, shape in (
    ("linear", lambda: nn.Linear(256, 512), (64, 256)),
    ("linear 3d", lambda: nn.Linear(256, 512), (64, 50, 256)),
    ("conv2d", lambda: nn.Conv2d(4, 32, 8, 4), (64, 4, 84, 84)),
    ("layer_norm", lambda: nn.LayerNorm(512), (64, 512)),
    ("batch_norm2d", lambda: nn.BatchNorm2d(16), (64, 16, 20, 20)),
    ("batch_norm1d", lambda: nn.BatchNorm1d(512), (64, 512)),
    ("group_norm", lambda: nn.GroupNorm(4, 16), (64, 16, 20, 20)),
):
    CASES[f"expanded {name}"] = _layer(make, *shape, expanded=True)
CASES["linear 3d"] = _layer(lambda: nn.Linear(256, 512), 64, 50, 256)
CASES["linear no bias"] = _layer(lambda: nn.Linear(256, 512, bias=False), 64, 50, 256)
CASES["layer_norm 3d"] = _layer(lambda: nn.LayerNorm(64), 128, 50, 64)
CASES["batch_norm2d eval"] = _layer(lambda: nn.BatchNorm2d(16).eval(), 64, 16, 20, 20)
CASES["batch_norm2d channels_last"] = _layer(
    lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16)).to(memory_format=torch.channels_last), 64, 3, 20, 20
)
CASES["group_norm conv"] = _layer(
    lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.ReLU()), 64, 3, 20, 20
)
CASES["conv2d"] = _layer(lambda: nn.Conv2d(4, 32, 8, 4), 64, 4, 84, 84)
CASES["conv2d padded"] = _layer(lambda: nn.Conv2d(16, 32, 3, padding=1), 64, 16, 20, 20)
CASES["conv2d same"] = _layer(lambda: nn.Conv2d(16, 32, 4, padding="same"), 64, 16, 20, 20)
CASES["conv2d no bias"] = _layer(lambda: nn.Conv2d(16, 32, 3, bias=False), 64, 16, 20, 20)
CASES["conv2d grouped"] = _layer(lambda: nn.Conv2d(16, 32, 3, groups=4), 64, 16, 20, 20)
CASES["conv2d depthwise"] = _layer(lambda: nn.Conv2d(16, 16, 3, groups=16, padding=1), 64, 16, 20, 20)
CASES["conv2d depthwise multiplied"] = _layer(lambda: nn.Conv2d(16, 32, 3, groups=16, padding=1), 64, 16, 20, 20)
CASES["conv2d depthwise half"] = _layer(
    lambda: nn.Conv2d(16, 16, 3, groups=16, padding=1).half(), 64, 16, 20, 20, dtype=H
)
CASES["conv2d dilated"] = _layer(lambda: nn.Conv2d(16, 32, 3, dilation=2), 64, 16, 20, 20)
CASES["conv2d channels_last"] = _layer(
    lambda: nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.Flatten()).to(
        memory_format=torch.channels_last
    ),
    64,
    4,
    84,
    84,
)
CASES["conv2d channels_last depthwise"] = _layer(
    lambda: nn.Sequential(nn.Conv2d(16, 16, 3, groups=16, padding=1), nn.Conv2d(16, 32, 1)).to(
        memory_format=torch.channels_last
    ),
    64,
    16,
    20,
    20,
)
CASES["conv2d separable"] = _layer(
    lambda: nn.Sequential(nn.Conv2d(16, 16, 3, groups=16, padding=1), nn.Conv2d(16, 32, 1)), 64, 16, 20, 20
)
CASES["conv1d"] = _layer(lambda: nn.Conv1d(4, 32, 5), 64, 4, 100)
CASES["conv1d depthwise"] = _layer(lambda: nn.Conv1d(32, 32, 5, groups=32), 64, 32, 100)
CASES["conv3d"] = _layer(lambda: nn.Conv3d(4, 8, 3), 16, 4, 12, 12, 12)
CASES["conv_transpose2d"] = _layer(lambda: nn.ConvTranspose2d(16, 8, 4, 2), 64, 16, 20, 20)
CASES["conv2d double"] = _layer(lambda: nn.Conv2d(4, 8, 3).double(), 16, 4, 20, 20, dtype=torch.float64)
CASES["conv2d bf16"] = _layer(lambda: nn.Conv2d(4, 32, 3).bfloat16(), 64, 4, 20, 20, dtype=BF)
for name, make, shape in (
    ("conv_transpose2d bf16", lambda: nn.ConvTranspose2d(16, 8, 4, 2), (64, 16, 20, 20)),
    ("conv_transpose2d bf16 nobias", lambda: nn.ConvTranspose2d(16, 8, 4, 2, bias=False), (64, 16, 20, 20)),
    ("conv_transpose2d bf16 groups", lambda: nn.ConvTranspose2d(16, 8, 4, 2, groups=2), (64, 16, 20, 20)),
    ("conv_transpose1d bf16", lambda: nn.ConvTranspose1d(16, 8, 4, 2), (64, 16, 20)),
    ("conv2d bf16 groups", lambda: nn.Conv2d(16, 32, 3, groups=4), (64, 16, 20, 20)),
    ("conv2d bf16 dilated", lambda: nn.Conv2d(4, 32, 3, dilation=2), (64, 4, 20, 20)),
    ("conv2d bf16 1x1", lambda: nn.Conv2d(16, 32, 1), (64, 16, 20, 20)),
    ("conv2d bf16 last", lambda: nn.Conv2d(4, 32, 3).to(memory_format=torch.channels_last), (64, 4, 20, 20)),
    ("depthwise bf16", lambda: nn.Conv2d(16, 16, 3, groups=16), (64, 16, 20, 20)),
    ("conv1d bf16", lambda: nn.Conv1d(4, 32, 3), (64, 4, 200)),
    ("conv3d bf16", lambda: nn.Conv3d(4, 16, 3), (8, 4, 12, 12, 12)),
):
    CASES[name] = _layer(lambda make=make: make().bfloat16(), *shape, dtype=BF)
CASES["conv_transpose2d bf16 nograd"] = _layer(
    lambda: nn.ConvTranspose2d(16, 8, 4, 2).bfloat16(), 64, 16, 20, 20, dtype=BF, grad=False
)
CASES["depthwise half 64"] = _layer(lambda: nn.Conv2d(64, 64, 3, 1, 1, groups=64).half(), 32, 64, 20, 20, dtype=H)
CASES["layer_norm permuted"] = _layer(_Permuted, 16, 32, 20, 20)
CASES["conv_transpose2d half"] = _layer(lambda: nn.ConvTranspose2d(16, 8, 4, 2).half(), 64, 16, 20, 20, dtype=H)
for name, dtype in (("float", torch.float32), ("half", H), ("bf16", BF)):
    for shape in ((8, 4, 64, 32), (8, 4, 100, 64), (2, 8, 300, 128), (4, 2, 50, 40)):
        CASES[f"attention {name} {shape}"] = _call(
            lambda q, k, v: functional.scaled_dot_product_attention(q, k, v), *[(shape, dtype)] * 3
        )
    CASES[f"attention causal {name}"] = _call(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True), *[((8, 4, 64, 32), dtype)] * 3
    )
    CASES[f"attention dropout {name}"] = _call(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1), *[((8, 4, 64, 32), dtype)] * 3
    )
    CASES[f"attention mask {name}"] = _call(
        lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, attn_mask=m),
        *[((8, 4, 60, 32), dtype)] * 3,
        ((60, 60), B),
    )
    CASES[f"attention added mask {name}"] = _call(
        lambda q, k, v: functional.scaled_dot_product_attention(
            q, k, v, attn_mask=torch.zeros(64, 64, dtype=q.dtype, device=q.device)
        ),
        *[((8, 4, 64, 32), dtype)] * 3,
    )
    CASES[f"attention transposed {name}"] = _call(
        lambda q, k, v: functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        ).transpose(1, 2),
        *[((8, 64, 4, 32), dtype)] * 3,
    )
    CASES[f"attention 3d {name}"] = _call(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v), *[((8, 64, 32), dtype)] * 3
    )
for width in (64, 128, 192, 256, 512):
    for name, dtype in (("half", H), ("float", torch.float32)):
        CASES[f"attention mask {name} {width}"] = _call(
            lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, attn_mask=m),
            *[((8, 4, 300, width), dtype)] * 3,
            ((300, 300), B),
        )
CASES["attention gqa half"] = _call(
    lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    ((8, 4, 64, 32), H),
    ((8, 2, 64, 32), H),
    ((8, 2, 64, 32), H),
)
CASES["attention gqa"] = _call(
    lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    (8, 4, 64, 32),
    (8, 2, 64, 32),
    (8, 2, 64, 32),
)
CASES["attention math"] = _call(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v), *[(8, 4, 64, 30)] * 3)
CASES["attention math bf16 small"] = _call(
    lambda q, k, v: functional.scaled_dot_product_attention(q, k, v), *[((8, 4, 64, 300), BF)] * 3
)
CASES["multihead"] = _layer(lambda: _Self(nn.MultiheadAttention(64, 4, batch_first=True)), 32, 50, 64)
CASES["multihead no weights"] = _layer(
    lambda: _Self(nn.MultiheadAttention(64, 4, batch_first=True), need_weights=False), 32, 50, 64
)
CASES["multihead sequence first"] = _layer(
    lambda: _Self(nn.MultiheadAttention(64, 4, dropout=0.1), need_weights=False), 50, 32, 64
)
CASES["encoder layer"] = _layer(lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 32, 50, 64)
CASES["encoder layer gelu norm first"] = _layer(
    lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True, activation="gelu", dropout=0.0),
    32,
    50,
    64,
)
CASES["decoder layer"] = _layer(lambda: _Cross(nn.TransformerDecoderLayer(64, 4, 128, batch_first=True)), 32, 50, 64)
for cell in (nn.LSTM, nn.GRU, nn.RNN):
    CASES[f"{cell.__name__}"] = _layer(lambda cell=cell: cell(64, 128), 20, 32, 64)
    CASES[f"{cell.__name__} batch first"] = _layer(lambda cell=cell: cell(64, 128, 2, batch_first=True), 32, 20, 64)
    CASES[f"{cell.__name__} both"] = _layer(
        lambda cell=cell: cell(64, 128, bidirectional=True, dropout=0.1, num_layers=2), 20, 32, 64
    )
    CASES[f"{cell.__name__} no grad input"] = _layer(lambda cell=cell: cell(64, 128), 20, 32, 64, grad=False)
for cell in (nn.LSTMCell, nn.GRUCell, nn.RNNCell):
    CASES[cell.__name__] = _layer(lambda cell=cell: cell(64, 128), 32, 64)
for name in (
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
    "l1_loss",
    "kl_div",
    "binary_cross_entropy_with_logits",
    "gaussian_nll",
):
    if name == "gaussian_nll":
        CASES[name] = _call(
            lambda x, y: functional.gaussian_nll_loss(x, y.detach(), x.detach().exp()), (4096, 64), (4096, 64)
        )
    else:
        CASES[name] = _call(lambda x, y, name=name: getattr(functional, name)(x, y.detach()), (4096, 64), (4096, 64))
        CASES[f"{name} none"] = _call(
            lambda x, y, name=name: getattr(functional, name)(x, y.detach(), reduction="none"), (4096, 64), (4096, 64)
        )
CASES["cross_entropy"] = _call(lambda x, y: functional.cross_entropy(x, y), (4096, 64), ((4096,), L))
CASES["cross_entropy weights"] = _call(
    lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.1), (4096, 64), ((4096,), L)
)
CASES["cross_entropy probabilities"] = _call(
    lambda x, y: functional.cross_entropy(x, y.detach()), (4096, 64), (4096, 64)
)
CASES["cross_entropy 2d"] = _call(lambda x, y: functional.cross_entropy(x, y), (64, 10, 20, 20), ((64, 20, 20), L))
CASES["nll_loss none"] = _call(lambda x, y: functional.nll_loss(x, y, reduction="none"), (4096, 64), ((4096,), L))
CASES["bmm"] = _call(torch.bmm, (64, 20, 30), (64, 30, 40))
CASES["einsum"] = _call(lambda x, y: torch.einsum("bij,bkj->bik", x, y), (64, 20, 30), (64, 40, 30))
CASES["einsum heads"] = _call(lambda x, y: torch.einsum("bthd,bshd->bhts", x, y), (8, 50, 4, 16), (8, 50, 4, 16))
CASES["matmul broadcast"] = _call(torch.matmul, (64, 20, 30), (30, 40))
CASES["matmul vector"] = _call(torch.matmul, (64, 30), (30,))
CASES["matmul 4d"] = _call(torch.matmul, (8, 4, 20, 30), (8, 4, 30, 20))
CASES["addmm"] = _call(torch.addmm, (40,), (64, 30), (30, 40))
CASES["dot"] = _call(torch.dot, (5000,), (5000,))
CASES["outer"] = _call(torch.outer, (500,), (300,))
CASES["cat"] = _call(lambda x, y: torch.cat([x, y], 1), (64, 100), (64, 50))
CASES["stack"] = _call(lambda x, y: torch.stack([x, y], 1), (64, 100), (64, 100))
CASES["chunk"] = _call(lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1], (64, 100))
CASES["unbind"] = _call(lambda x: sum(x.unbind(1)), (64, 8, 100))
CASES["repeat"] = _call(lambda x: x.repeat(1, 4), (64, 100))
CASES["repeat_interleave"] = _call(lambda x: x.repeat_interleave(4, 0), (64, 100))
CASES["expand"] = _call(lambda x: x[:, None].expand(64, 4, 100) * 2, (64, 100))
CASES["permute reshape"] = _call(lambda x: x.permute(0, 2, 1).reshape(64, -1) * 2, (64, 8, 100))
CASES["slice"] = _call(lambda x: x[:, 1:5] * 2, (64, 8, 100))
CASES["slice assign"] = _call(lambda x: _assign(x), (64, 8, 100))
CASES["clamp"] = _call(lambda x: x.clamp(-1, 1), (64, 100))
CASES["clamp tensor"] = _call(lambda x, y: torch.minimum(x, y), (64, 100), (64, 100))
CASES["pow"] = _call(lambda x: x**2, (64, 100))
CASES["pow 3"] = _call(lambda x: x**3, (64, 100))
CASES["sqrt"] = _call(lambda x: x.sqrt(), (64, 100))
CASES["exp log"] = _call(lambda x: (x.exp() + 1).log(), (64, 100))
CASES["lerp"] = _call(lambda x, y: x.lerp(y, 0.1), (64, 100), (64, 100))
CASES["addcmul"] = _call(lambda x, y: torch.addcmul(x, x, y), (64, 100), (64, 100))
CASES["tril"] = _call(lambda x: x.tril(), (100, 100))
CASES["diagonal"] = _call(lambda x: x.diagonal(), (100, 100))
for kind in ("Normal", "Categorical", "Bernoulli", "Beta", "Gamma", "Dirichlet", "Laplace"):
    CASES[f"sample {kind}"] = lambda device, kind=kind: _sample(device, kind)
CASES["tanh normal"] = lambda device: _tanh_normal(device)
CASES["normal_"] = lambda device: (lambda x: lambda: x.normal_())(torch.empty(1000, device=device))
CASES["bernoulli"] = _call(torch.bernoulli, (1000,), backward=False)
CASES["rand_like"] = _call(torch.rand_like, (1000,), backward=False)
CASES["randint"] = lambda device: lambda: torch.randint(0, 100, (1000,), device=device)
CASES["arange"] = lambda device: lambda: torch.arange(1000, device=device)
CASES["linspace"] = lambda device: lambda: torch.linspace(0, 1, 1000, device=device)
CASES["searchsorted"] = _call(lambda x, y: torch.searchsorted(x, y), (1000,), (500,), backward=False)
CASES["bucketize"] = _call(lambda x, y: torch.bucketize(x, y), (500,), (1000,), backward=False)
CASES["rand"] = lambda device: lambda: torch.rand(64, 100, device=device)
CASES["randint_like"] = _call(lambda x: torch.randint_like(x, 10), (1000,), backward=False)
CASES["logspace"] = lambda device: lambda: torch.logspace(0, 1, 1000, device=device)
CASES["eye"] = lambda device: lambda: torch.eye(100, device=device)
CASES["triu"] = _call(lambda x: x.triu(), (100, 100))
CASES["cummax"] = _call(lambda x: x.cummax(1)[0], (64, 100))
CASES["index_copy"] = _call(lambda x, y, at: (x * 1).index_copy(0, at, y), (64, 100), (5, 100), ((5,), L))
CASES["index_fill"] = _call(lambda x, at: (x * 1).index_fill(0, at, 0.0), (64, 100), ((5,), L))
CASES["rot90"] = _call(lambda x: x.rot90(1, (1, 2)), (8, 30, 40))
CASES["norm 1"] = _call(lambda x: x.norm(p=1, dim=1), (64, 100))
CASES["min dim"] = _call(lambda x: x.min(1)[0], (64, 100))
CASES["aminmax"] = _call(lambda x: sum(x.aminmax(dim=1)), (64, 100))
CASES["reflection_pad1d"] = _call(lambda x: functional.pad(x, (3, 3), "reflect"), (8, 4, 100))
CASES["reflection_pad2d"] = _call(lambda x: functional.pad(x, (1, 1, 1, 1), "reflect"), (8, 4, 30, 30))
CASES["replication_pad2d"] = _call(lambda x: functional.pad(x, (1, 1, 1, 1), "replicate"), (8, 4, 30, 30))
CASES["pairwise_distance"] = _call(functional.pairwise_distance, (64, 100), (64, 100))
CASES["diag_embed"] = _call(torch.diag_embed, (64, 20))
CASES["nanmedian"] = _call(lambda x: x.nanmedian(1)[0], (64, 100))
CASES["slice_scatter"] = _call(lambda x, y: x.slice_scatter(y, 1, 10, 20), (64, 100), (64, 10))
CASES["select_scatter"] = _call(lambda x, y: x.select_scatter(y, 1, 3), (64, 100), (64,))
CASES["addr"] = _call(torch.addr, (50, 30), (50,), (30,))
CASES["block_diag"] = _call(torch.block_diag, (50, 30), (20, 40))
CASES["channel_shuffle"] = _call(lambda x: functional.channel_shuffle(x, 2), (8, 4, 30, 30))
CASES["floor_divide"] = _call(lambda x, y: x // y, (64, 100), (64, 100), backward=False)
CASES["polar"] = _call(lambda x, y: torch.polar(x.abs(), y).real * 2, (64, 100), (64, 100))
CASES["poisson"] = _call(torch.poisson, (1000,), backward=False)
CASES["cross"] = _call(lambda x, y: torch.linalg.cross(x, y), (64, 3), (64, 3))
CASES["kron"] = _call(torch.kron, (10, 20), (5, 6))
CASES["tensordot"] = _call(lambda x, y: torch.tensordot(x, y, 1), (8, 10, 20), (20, 30))
CASES["interpolate bicubic"] = _call(
    lambda x: functional.interpolate(x, scale_factor=2, mode="bicubic"), (8, 4, 10, 10)
)
CASES["interpolate linear"] = _call(lambda x: functional.interpolate(x, scale_factor=2, mode="linear"), (8, 4, 10))
CASES["interpolate area"] = _call(lambda x: functional.interpolate(x, (5, 5), mode="area"), (8, 4, 10, 10))
CASES["lp_pool2d"] = _call(lambda x: functional.lp_pool2d(x, 2, 2), (8, 4, 30, 30))
CASES["max_pool3d"] = _call(lambda x: functional.max_pool3d(x, 2), (8, 4, 10, 10, 10))
CASES["max_unpool2d"] = _call(
    lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2), (8, 4, 30, 30)
)
CASES["adaptive_max_pool2d"] = _call(lambda x: functional.adaptive_max_pool2d(x, 5), (8, 4, 30, 30))
CASES["local_response_norm"] = _call(lambda x: functional.local_response_norm(x, 3), (8, 4, 30, 30))
CASES["triplet_margin_loss"] = _call(functional.triplet_margin_loss, (64, 100), (64, 100), (64, 100))
CASES["cosine_embedding_loss"] = _call(functional.cosine_embedding_loss, (64, 100), (64, 100), (64,))
CASES["margin_ranking_loss"] = _call(functional.margin_ranking_loss, (64,), (64,), (64,))
CASES["poisson_nll_loss"] = _call(functional.poisson_nll_loss, (64, 100), (64, 100))
CASES["to half"] = _call(lambda x: x.half().float() * 2, (64, 100))
for name in (
    "Adam",
    "AdamW",
    "SGD",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adamax",
    "NAdam",
    "RAdam",
    "ASGD",
    "Rprop",
    "Adafactor",
):
    CASES[f"optimizer {name}"] = lambda device, name=name: _optimize(device, getattr(torch.optim, name))
    if name != "Adafactor":
        CASES[f"optimizer {name} loop"] = lambda device, name=name: _optimize(
            device, getattr(torch.optim, name), foreach=False
        )
CASES["optimizer SGD momentum"] = lambda device: _optimize(
    device, torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.1
)
CASES["optimizer Adam amsgrad"] = lambda device: _optimize(device, torch.optim.Adam, amsgrad=True, weight_decay=0.1)
CASES["optimizer Adam fused"] = lambda device: _optimize(device, torch.optim.Adam, fused=True)
CASES["optimizer AdamW fused"] = lambda device: _optimize(device, torch.optim.AdamW, fused=True)
CASES["optimizer SGD fused"] = lambda device: _optimize(device, torch.optim.SGD, fused=True, momentum=0.9)
CASES["optimizer Adam capturable"] = lambda device: _optimize(device, torch.optim.Adam, capturable=True)
CASES["clip_grad_norm"] = lambda device: _clip(device, nn.utils.clip_grad_norm_, 1.0)
CASES["clip_grad_norm inf"] = lambda device: _clip(device, nn.utils.clip_grad_norm_, 1.0, float("inf"))
CASES["clip_grad_value"] = lambda device: _clip(device, nn.utils.clip_grad_value_, 1.0)
CASES["weight_norm"] = _layer(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(64, 128)), 32, 64)
CASES["spectral_norm"] = _layer(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(64, 128)), 32, 64)
CASES["checkpoint"] = lambda device: _checkpoint(device)
for name, dtype in (("fp16", H), ("bf16", BF)):
    for net in ("mlp", "cnn", "transformer", "norms", "lstm", "cells", "losses"):
        CASES[f"autocast {name} {net}"] = lambda device, dtype=dtype, net=net: _autocast(device, dtype, net)
    CASES[f"autocast {name} scaler"] = lambda device, dtype=dtype: _autocast(device, dtype, "mlp", scaler=True)
    CASES[f"autocast {name} twice"] = lambda device, dtype=dtype: _autocast(device, dtype, "mlp", times=2)
for net in ("mlp", "cnn", "transformer", "norms", "lstm"):
    CASES[f"bf16 model {net}"] = lambda device, net=net: _bf16(device, net)
CASES["create_graph"] = lambda device: _penalty(device)
CASES["vmap"] = lambda device: _vmap(device)


class _Self(nn.Module):
    def __init__(self, inner: nn.Module, **kwargs: Any) -> None:
        super().__init__()
        self.inner, self.kwargs = inner, kwargs

    def forward(self, x: Any) -> Any:
        return self.inner(x, x, x, **self.kwargs)[0]


class _Cross(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x, x)


def _assign(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    out[:, 2:4] = x[:, 2:4] * 2
    return out


def _eval_encoder(device: str) -> Callable[[], Any]:
    module = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2).to(device).eval()
    x = torch.zeros(32, 50, 64, device=device)

    def work() -> None:
        with torch.no_grad():
            module(x)

    return work


def _sample(device: str, kind: str) -> Callable[[], Any]:
    d = torch.distributions
    x = torch.ones(256, 8, device=device, requires_grad=True)
    validate = {"validate_args": False}

    def work() -> None:
        if kind in ("Normal", "Beta", "Gamma", "Laplace"):
            made = getattr(d, kind)(x, x, **validate)
        elif kind == "Dirichlet":
            made = d.Dirichlet(x, **validate)
        else:
            made = getattr(d, kind)(logits=x, **validate)
        drawn = made.sample()
        loss = made.log_prob(drawn).sum()
        if kind != "Laplace":
            loss = loss + made.entropy().sum()
        loss.backward()

    return work


def _tanh_normal(device: str) -> Callable[[], Any]:
    d = torch.distributions
    x = torch.ones(256, 8, device=device, requires_grad=True)

    def work() -> None:
        made = d.TransformedDistribution(
            d.Normal(x, x.exp(), validate_args=False), [d.TanhTransform(cache_size=1)], validate_args=False
        )
        made.log_prob(made.rsample()).sum().backward()

    return work


def _parameters(device: str) -> Any:
    shapes = [(512, 256), (512,), (100_000,), (32, 4, 8, 8)]
    return [nn.Parameter(torch.zeros(shape, device=device)) for shape in shapes]


def _optimize(device: str, kind: Any, **kwargs: Any) -> Callable[[], Any]:
    parameters = _parameters(device)
    optimizer = kind(parameters, **kwargs)
    for p in parameters:
        p.grad = torch.zeros_like(p)

    def work() -> None:
        optimizer.step()
        optimizer.step()

    return work


def _clip(device: str, clip: Any, *args: Any) -> Callable[[], Any]:
    parameters = _parameters(device)
    for p in parameters:
        p.grad = torch.zeros_like(p)
    return lambda: clip(parameters, *args)


def _checkpoint(device: str) -> Callable[[], Any]:
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64)).to(device)
    x = torch.zeros(256, 64, device=device, requires_grad=True)
    return lambda: checkpoint(net, x, use_reentrant=False).sum().backward()


def _net(name: str) -> Any:
    if name in ("mlp", "losses"):
        return nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)), (
            512,
            64,
        )
    if name == "cnn":
        return nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(5184, 128)
        ), (32, 4, 84, 84)
    if name == "transformer":
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2), (32, 50, 64)
    if name == "norms":
        return nn.Sequential(
            nn.Conv2d(4, 16, 3),
            nn.BatchNorm2d(16),
            nn.GELU(),
            nn.GroupNorm(4, 16),
            nn.Flatten(),
            nn.LayerNorm(16 * 18 * 18),
            nn.Linear(16 * 18 * 18, 32),
            nn.Softmax(-1),
        ), (64, 4, 20, 20)
    if name == "lstm":
        return nn.LSTM(64, 128, batch_first=True), (32, 20, 64)
    return nn.LSTMCell(64, 128), (32, 64)


def _autocast(device: str, dtype: torch.dtype, name: str, scaler: bool = False, times: int = 1) -> Callable[[], Any]:
    net, shape = _net(name)
    net = net.to(device)
    optimizer = torch.optim.Adam(net.parameters())
    scale = torch.amp.GradScaler("cuda", enabled=scaler)
    x = torch.zeros(shape, device=device)

    def step() -> None:
        with torch.autocast("cuda", dtype=dtype):
            out = net(x)
            for _ in range(times - 1):
                out = net(x)
            out = out[0] if isinstance(out, tuple) else out
            if name == "losses":
                loss = functional.mse_loss(out, torch.zeros_like(out)) + functional.cross_entropy(
                    out, torch.zeros(512, dtype=L, device=device)
                )
            else:
                loss = out.pow(2).mean()
        optimizer.zero_grad()
        scale.scale(loss).backward()
        scale.step(optimizer)
        scale.update()

    return lambda: (step(), step())


def _bf16(device: str, name: str) -> Callable[[], Any]:
    net, shape = _net(name)
    net = net.to(device).to(BF)
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.zeros(shape, device=device, dtype=BF)

    def work() -> None:
        out = net(x)
        out = out[0] if isinstance(out, tuple) else out
        out.float().pow(2).mean().backward()
        optimizer.step()

    return work


def _penalty(device: str) -> Callable[[], Any]:
    net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1)).to(device)
    x = torch.zeros(512, 64, device=device, requires_grad=True)

    def work() -> None:
        grad = torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]
        (grad.norm(dim=1) - 1).pow(2).mean().backward()

    return work


def _vmap(device: str) -> Callable[[], Any]:
    weights = torch.zeros(10, 64, 32, device=device, requires_grad=True)
    x = torch.zeros(256, 64, device=device)
    return lambda: torch.vmap(lambda w: x @ w)(weights).sum().backward()


def recorded(case: Case) -> Any:
    """Return the requests of one case on a CUDA build: +size for an allocation, -number of the freed one."""
    work = case("cuda")
    torch.cuda.memory._record_memory_history(max_entries=100_000, context=None)
    work()
    traces = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    events: list = []
    numbers: dict = {}
    for trace in traces:
        if trace["action"] == "alloc":
            numbers[trace["addr"]] = len([e for e in events if e[0] == "+"])
            events.append(("+", trace["size"]))
        elif trace["action"] == "free_completed":
            events.append(("-", numbers.get(trace["addr"], -1)))
    return events


def main(path: str) -> None:
    for _ in range(2):  # cuBLAS takes its workspaces once per thread
        x = torch.zeros(8, 8, device="cuda", requires_grad=True)
        (x @ x).sum().backward()
    found = {name: recorded(case) for name, case in CASES.items()}
    Path(path).write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
