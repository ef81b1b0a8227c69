"""Operators that a card runs in another way than the meta device: attention, recurrent cells and layers, autocast.

PyTorch decides above autograd which kernel an operator becomes, and decides by device: on the meta device attention is
a chain of products and a recurrent layer a loop of them, while a card fuses them and keeps other tensors for the
backward pass. While `operators_as_on_card` lasts, such operators of meta tensors decide as on a card. The kernels sit
where autograd does (`AutogradMeta`), so that also calls from C++ are seen, and what they call is followed as usual.

Mirrors aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, transformers/attention.cpp and RNN.cpp of torch 2.14.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .cuda_reduce import GpuShape

_aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)
_FLASH_HEAD = 256  # the widest head that flash attention takes


@contextmanager
def operators_as_on_card(card: GpuShape) -> Iterator[dict[str, Any]]:
    """While it lasts, operators of meta tensors choose their kernels as on this card; gives these by name."""
    kernels = _Kernels(card).table()
    library = torch.library.Library("aten", "IMPL")
    for name, kernel in kernels.items():
        if hasattr(_aten, name.partition(".")[0]):  # rms_norm came with torch 2.4
            library.impl(name, kernel, "AutogradMeta")
    try:
        yield kernels
    finally:
        library._destroy()


def _like_first(first: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(first)


class _Kernels:
    def __init__(self, card: GpuShape) -> None:
        self.card = card

    def table(self) -> dict[str, Any]:
        return {
            "scaled_dot_product_attention": self.attention,
            "lstm_cell": self.lstm_cell,
            "gru_cell": self.gru_cell,
            "dropout": self.dropout,
            "linear": self.linear,
            "rms_norm": self.rms_norm,
            "one_hot": self.one_hot,
            "mish_backward": _like_first,  # one kernel on a card, a chain of operators elsewhere
            "softmax.int": partial(self.softmax, _aten._softmax),
            "log_softmax.int": partial(self.softmax, _aten._log_softmax),
            "ctc_loss.Tensor": self.ctc_loss,
            "lstm.input": self.lstm,
            "gru.input": partial(self.layer, _GRU),
            "rnn_tanh.input": partial(self.layer, _RNN_TANH),
            "rnn_relu.input": partial(self.layer, _RNN_RELU),
            "lstm.data": self.packed_lstm,
            "gru.data": partial(self.packed_layer, _GRU),
            "rnn_tanh.data": partial(self.packed_layer, _RNN_TANH),
            "rnn_relu.data": partial(self.packed_layer, _RNN_RELU),
        }

    # -- attention -----------------------------------------------------------------------------------------------

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        if query.dim() == 3 and key.dim() == 3 and value.dim() == 3:
            mask = attn_mask.unsqueeze(0) if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
            found = self.attention(
                query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), mask, dropout_p, is_causal, scale=scale,
                enable_gqa=enable_gqa,
            )  # fmt: skip
            return found.squeeze(0)
        mask = attn_mask
        backend = attention_backend(self.card, query, key, value, mask=mask, dropout=dropout_p, gqa=enable_gqa)
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.where(mask, 0.0, torch.scalar_tensor(-torch.inf, dtype=query.dtype, device=query.device))
        if backend == "flash":
            width = query.shape[-1]
            padded = [_padded(t, 8) for t in (query, key, value)]
            found = _first(_aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, False, scale=scale))
            return found[..., :width] if found.shape[-1] != width else found
        if backend == "efficient":
            kept = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
            if mask is not None:
                mask = _aligned_bias(mask, query, key)
            return _first(
                _aten._scaled_dot_product_efficient_attention(
                    query, key, value, mask, kept, dropout_p, is_causal, scale=scale
                )
            )
        return _first(
            _aten._scaled_dot_product_attention_math(
                query, key, value, mask, dropout_p, is_causal, None, scale=scale,
                **({"enable_gqa": True} if enable_gqa else {}),
            )
        )  # fmt: skip

    def dropout(self, x: Tensor, p: float, train: bool) -> Tensor:
        if not train or p == 0 or x.numel() == 0:
            return x
        if p == 1:
            return x * torch.zeros((), dtype=x.dtype, device=x.device)
        return _first(_aten.native_dropout(x, p, train))  # keeps a mask of bytes

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        # Linear.cpp; beside a dispatch mode PyTorch would add the bias into a tensor of its own
        if bias is None:
            return torch.matmul(x, weight.t())
        if x.dim() == 2:
            return torch.addmm(bias, x, weight.t())
        if x.is_contiguous():
            rows = x.reshape(-1, x.shape[-1])
            return torch.addmm(bias, rows, weight.t()).view(*x.shape[:-1], weight.shape[0])
        return torch.matmul(x, weight.t()).add_(bias)

    def rms_norm(self, x: Tensor, shape: list[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        found: Tensor = _RmsNorm.apply(x, weight, x.numel() // max(math.prod(shape), 1))
        return found

    def one_hot(self, x: Tensor, num_classes: int = -1) -> Tensor:
        if num_classes <= 0:
            raise ValueError("one_hot without num_classes depends on values")
        zeros = torch.zeros(*x.shape, num_classes, dtype=torch.int64, device=x.device)
        return zeros.scatter_(-1, x.unsqueeze(-1), 1)

    def softmax(self, operator: Any, x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
        fused = x.dtype == torch.float16 and dtype == torch.float32  # in one kernel, without a copy in float32
        found: Tensor = operator(x if fused or dtype is None else x.to(dtype), dim, fused)
        return found

    def ctc_loss(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int = 0,
        reduction: int = 1, zero_infinity: bool = False,
    ) -> Tensor:  # fmt: skip
        # LossCTC.cpp; beside a dispatch mode PyTorch would leave lengths that are on the host there
        found = _first(_aten._ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity))
        if zero_infinity:
            zero = torch.zeros((), dtype=found.dtype, device=found.device)
            found = torch.where(found == torch.inf, zero, found)
        if reduction == 1:
            return (found / target_lengths.to(found.device, found.dtype).clamp_min(1)).mean()
        return found.sum() if reduction == 2 else found

    # -- recurrent cells -----------------------------------------------------------------------------------------

    def lstm_cell(
        self, x: Tensor, hx: list[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        from_input, from_state = torch.matmul(x, w_ih.t()), torch.matmul(hx[0], w_hh.t())
        state, memory, _ = _aten._thnn_fused_lstm_cell(from_input, from_state, hx[1], b_ih, b_hh)
        return state, memory

    def gru_cell(
        self, x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
    ) -> Tensor:
        from_input, from_state = torch.matmul(x, w_ih.t()), torch.matmul(hx, w_hh.t())
        return _first(_aten._thnn_fused_gru_cell(from_input, from_state, hx, b_ih, b_hh))

    # -- recurrent layers: one call of cuDNN, whose weights are one block of memory ------------------------------

    def lstm(self, x: Tensor, hx: list[Tensor], params: list[Tensor], *layers: Any) -> Any:
        return _cudnn(_LSTM, x, hx[0], hx[1], params, _Layers(*layers))

    def layer(self, mode: int, x: Tensor, hx: Tensor, params: list[Tensor], *layers: Any) -> Any:
        return _cudnn(mode, x, hx, None, params, _Layers(*layers))[:2]

    def packed_lstm(
        self, data: Tensor, batch_sizes: Tensor, hx: list[Tensor], params: list[Tensor], *layers: Any
    ) -> Any:
        return self.lstm(data, hx, params, *layers, False, batch_sizes.tolist())

    def packed_layer(
        self, mode: int, data: Tensor, batch_sizes: Tensor, hx: Tensor, params: list[Tensor], *layers: Any
    ) -> Any:
        return self.layer(mode, data, hx, params, *layers, False, batch_sizes.tolist())


_RNN_RELU, _RNN_TANH, _LSTM, _GRU = range(4)  # cudnnRNNMode_t


@dataclass(frozen=True)
class _Layers:
    has_biases: bool
    number: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool
    batch_sizes: list[int] = field(default_factory=list)  # of packed sequences: how many go on at each step


def _cudnn(mode: int, x: Tensor, hx: Tensor, cx: Tensor | None, params: list[Tensor], shape: _Layers) -> Any:
    """Call `_cudnn_rnn` with the block that holds all weights, where they are one (`flatten_parameters`)."""
    if torch.is_autocast_enabled() and x.is_floating_point() and x.dtype != torch.float64:
        x, hx, cx, params = _cast_layer(torch.get_autocast_gpu_dtype(), x, hx, cx, params)
    storage = params[0].untyped_storage()
    joined = all(p.untyped_storage()._cdata == storage._cdata for p in params)
    block = params[0].new_empty(0).set_(storage) if joined else None
    hidden = hx.shape[-1]
    return _aten._cudnn_rnn(
        x, params, 4 if shape.has_biases else 2, block, hx, cx, mode, hidden, 0, shape.number, shape.batch_first,
        shape.dropout, shape.train, shape.bidirectional, shape.batch_sizes, None,
    )[:3]  # fmt: skip


def _cast_layer(dtype: torch.dtype, x: Tensor, hx: Tensor, cx: Tensor | None, params: list[Tensor]) -> Any:
    """Cast a recurrent layer for autocast: its weights into one block (autocast_mode's _cudnn_rnn_cast_reflatten)."""
    if any(weight.dtype != dtype for weight in params):
        params = list(_CastBlock.apply(dtype, *params))
    states = [None if state is None else state.to(dtype) for state in (hx, cx)]
    return x.to(dtype), *states, params


class _RmsNorm(torch.autograd.Function):
    """One kernel each way (_fused_rms_norm); in older releases a chain of operators, which takes more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, rows: int) -> Any:
        out, deviation = torch.empty_like(x), x.new_empty(rows, dtype=torch.float32)
        ctx.save_for_backward(x, weight, deviation)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, weight, _ = ctx.saved_tensors
        found = torch.empty_like(x), None if weight is None else torch.empty_like(weight)
        grad.contiguous()
        return *found, None


class _CastBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> Any:
        ctx.dtypes = [weight.dtype for weight in weights]
        block = weights[0].new_empty(sum(weight.numel() for weight in weights), dtype=dtype)
        views, place = [], 0
        for weight in weights:
            views.append(block[place : place + weight.numel()].view(weight.shape))
            place += weight.numel()
        return tuple(views)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        found = [None if g is None else g.to(dtype) for g, dtype in zip(reversed(grads), reversed(ctx.dtypes))]
        return None, *reversed(found)


def join_weights(module: torch.nn.RNNBase) -> Tensor | None:
    """Return the tensor that recurrent layers' weights are views of from now on, as `flatten_parameters` makes it."""
    weights = [weight for weight in module._flat_weights if weight is not None]
    if weights[0].dtype not in (torch.float16, torch.float32, torch.float64):
        return None  # what torch.backends.cudnn.is_acceptable refuses is copied at every call
    with torch.no_grad():
        block: Tensor = _aten._cudnn_rnn_flatten_weight(
            weights, 1, 0, 0, 0, 0, 0, False, False
        )  # what the engine reads
    return block


def attention_backend(
    card: GpuShape, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None, dropout: float, gqa: bool = False
) -> str:
    """Return which kernel a card takes: "flash", "efficient" or "math" (sdp_utils.cpp, select_sdp_backend)."""
    width = query.shape[-1]
    plain = all(t.dim() == 4 and t.stride(-1) == 1 and t.numel() > 0 for t in (query, key, value))
    heads = {t.shape[1] for t in (query, key, value)} if plain else set()
    if not plain or len({t.shape[0] for t in (query, key, value)}) != 1:
        return "math"
    trained = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if (
        torch.backends.cuda.flash_sdp_enabled() and query.dtype in _HALVES and card.capability >= (8, 0)
        and mask is None and width <= _FLASH_HEAD and key.shape[-1] == width == value.shape[-1]
        and (gqa or len(heads) == 1)
        # cards with little shared memory cannot train the widest heads with dropout
        and not (width > 192 and trained and dropout > 0 and card.capability in ((8, 6), (8, 9)))
    ):  # fmt: skip
        return "flash"
    dtypes = (torch.float32, torch.float16, *((torch.bfloat16,) if card.capability >= (8, 0) else ()))
    multiple = 4 if query.dtype == torch.float32 else 8
    if (
        torch.backends.cuda.mem_efficient_sdp_enabled() and query.dtype in dtypes and (gqa or len(heads) == 1)
        and key.shape[-1] == width and width % multiple == 0 and value.shape[-1] % multiple == 0
        and not (mask is not None and mask.requires_grad and mask.dim() != 4)
    ):  # fmt: skip
        return "efficient"
    return "math"


def _first(results: Any) -> Tensor:
    found: Tensor = results[0]
    return found


def _padded(tensor: Tensor, multiple: int) -> Tensor:
    missing = -tensor.shape[-1] % multiple
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def _aligned_bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return a mask for the memory-efficient kernel: rows that begin at multiples of 8 elements, then broadcast."""
    columns = mask.shape[-1]
    if columns % 8:
        mask = torch.nn.functional.pad(mask, (0, -columns % 8))[..., :columns]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
