"""Operators that a card runs in another way than the meta device: attention, recurrent cells and layers, autocast.

PyTorch decides above autograd which kernel an operator becomes, and decides by device: on the meta device attention is
a chain of products and a recurrent layer a loop of them, while a card fuses them and keeps other tensors for the
backward pass. While `operators_as_on_card` lasts, such operators of meta tensors decide as on a card. The kernels sit
where autograd does (`AutogradMeta`), so that also calls from C++ are seen, and what they call is followed as usual.

Mirrors aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, transformers/attention.cpp and RNN.cpp of torch 2.14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .cuda_reduce import Card

_aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)
_FLASH_HEAD = 256  # the widest head that flash attention takes


@contextmanager
def operators_as_on_card(card: Card) -> Iterator[dict[str, Any]]:
    """While it lasts, operators of meta tensors choose their kernels as on this card; gives these by name."""
    kernels = _Kernels(card).table()
    library = torch.library.Library("aten", "IMPL")
    for name, kernel in kernels.items():
        library.impl(name, kernel, "AutogradMeta")
    try:
        yield kernels
    finally:
        library._destroy()


class _Kernels:
    def __init__(self, card: Card) -> None:
        self.card = card

    def table(self) -> dict[str, Any]:
        return {
            "scaled_dot_product_attention": self.attention,
            "lstm_cell": self.lstm_cell,
            "gru_cell": self.gru_cell,
            "dropout": self.dropout,
            "lstm.input": self.lstm,
            "gru.input": partial(self.layer, _GRU),
            "rnn_tanh.input": partial(self.layer, _RNN_TANH),
            "rnn_relu.input": partial(self.layer, _RNN_RELU),
        }

    # -- attention -----------------------------------------------------------------------------------------------

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
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
                query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
            )
        )

    def dropout(self, x: Tensor, p: float, train: bool) -> Tensor:
        if not train or p == 0 or x.numel() == 0:
            return x
        if p == 1:
            return x * torch.zeros((), dtype=x.dtype, device=x.device)
        return _first(_aten.native_dropout(x, p, train))  # keeps a mask of bytes

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

    def lstm(
        self, x: Tensor, hx: list[Tensor], params: list[Tensor], has_biases: bool, num_layers: int, dropout: float,
        train: bool, bidirectional: bool, batch_first: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        shape = _Layers(has_biases, num_layers, dropout, train, bidirectional, batch_first)
        output, state, memory = _cudnn(_LSTM, x, hx[0], hx[1], params, shape)
        return output, state, memory

    def layer(
        self, mode: int, x: Tensor, hx: Tensor, params: list[Tensor], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        shape = _Layers(has_biases, num_layers, dropout, train, bidirectional, batch_first)
        output, state, _ = _cudnn(mode, x, hx, None, params, shape)
        return output, state


_RNN_RELU, _RNN_TANH, _LSTM, _GRU = range(4)  # cudnnRNNMode_t


@dataclass(frozen=True)
class _Layers:
    has_biases: bool
    number: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool


def _cudnn(mode: int, x: Tensor, hx: Tensor, cx: Tensor | None, params: list[Tensor], shape: _Layers) -> Any:
    """Call `_cudnn_rnn` with the block that holds all weights, where they are one (`flatten_parameters`)."""
    storage = params[0].untyped_storage()
    joined = all(p.untyped_storage()._cdata == storage._cdata for p in params)
    block = params[0].new_empty(0).set_(storage) if joined else None
    hidden = hx.shape[-1]
    return _aten._cudnn_rnn(
        x, params, 4 if shape.has_biases else 2, block, hx, cx, mode, hidden, 0, shape.number, shape.batch_first,
        shape.dropout, shape.train, shape.bidirectional, [], None,
    )[:3]  # fmt: skip


def join_weights(module: torch.nn.RNNBase, made: Callable[[Tensor], None]) -> None:
    """Make the weights of recurrent layers views of one tensor, as `flatten_parameters` does on a card.

    Args:
        made: is told of that tensor, before the others go.
    """
    weights = [weight for weight in module._flat_weights if weight is not None]
    block = weights[0].new_empty(sum(weight.numel() for weight in weights))
    made(block)
    place = 0
    for weight in weights:
        weight.data = block[place : place + weight.numel()].view(weight.shape)
        place += weight.numel()


def attention_backend(
    card: Card, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None, dropout: float, gqa: bool = False
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
        torch.backends.cuda.mem_efficient_sdp_enabled() and query.dtype in dtypes and not gqa and len(heads) == 1
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
    """Return a mask for the memory-efficient kernel: rows that begin at multiples of 16 elements, then broadcast."""
    columns = mask.shape[-1]
    if columns % 16:
        mask = torch.nn.functional.pad(mask, (0, -columns % 16))[..., :columns]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
