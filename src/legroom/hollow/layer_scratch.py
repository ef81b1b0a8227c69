"""What softmax, attention and norms of CUDA allocate inside (see `op_scratch.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from .cuda_reduce import GpuShape, last_power
from .op_scratch import OUT, Call, Step, contiguous, nbytes, outs, program, scratch, shapes

_aten = torch.ops.aten


@program(_aten._softmax_backward_data.default)
def _softmax_backward(call: Call) -> Iterator[Step]:
    # SoftMax.cu, softmax_backward_cuda_out: grad * output is computed first; log_softmax needs no such product
    return scratch(OUT, ("product", nbytes(call.args[0])))


@program(*([_aten._safe_softmax.default] if hasattr(_aten, "_safe_softmax") else ()))  # from torch 2.5 on
def _safe_softmax(call: Call) -> Iterator[Step]:
    # attention.cpp: rows that are masked throughout are looked for
    count = call.out.numel()
    rows = count // max(call.out.shape[-1], 1)
    return scratch(OUT, ("masked", count), ("masked rows", rows), ("zero", call.out.element_size()))


@program(_aten._scaled_dot_product_efficient_attention.default)
def _efficient_attention(call: Call) -> Iterator[Step]:
    # attention.cu, _efficient_attention_forward; the state of the random numbers is on the host if there is dropout
    drops = call.arg(5, "dropout_p", 0.0)
    yield from (Step("host" if drops else "out", index) for index in ("2", "3"))
    yield from outs(call, 0, 1)
    value = call.args[2]
    if value.element_size() == 2 and value.shape[-1] > 128:
        yield Step("alloc", "sums in float32", nbytes(call.out[0], 4))


@program(_aten._scaled_dot_product_efficient_attention_backward.default)
def _efficient_attention_backward(call: Call) -> Iterator[Step]:
    # attention_backward.cu, _efficient_attention_backward, and kernel_backward.h for tiles and the workspace
    grad, query, key, value = call.args[:4]
    yield from contiguous(gradient=grad.transpose(1, 2))
    yield from outs(call, 0, 1, 2, 3)
    batch, heads, rows = query.shape[:3]
    yield from _per_head(key, value, heads)
    sums = 4 * batch * heads * rows
    if query.element_size() == 2:
        yield Step("alloc", "delta", sums)
    else:
        yield from scratch(("products", nbytes(grad)), ("sums", sums), ("delta", sums), "sums", "products")
    workspace = batch * heads * _attention_workspace(call.card, query, key, value)
    yield from scratch(("workspace", workspace), "delta")


def _per_head(key: torch.Tensor, value: torch.Tensor, heads: int) -> Iterator[Step]:
    """Yield the gradients per head of keys that heads share."""
    if key.shape[1] != heads:
        yield Step("alloc", "keys per head", nbytes(key) // key.shape[1] * heads)
        yield Step("alloc", "values per head", nbytes(value) // value.shape[1] * heads)


def _attention_workspace(card: GpuShape, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    """Return what the memory-efficient backward takes per head: tiles of the query's gradient, each with a lock."""
    half, width = query.element_size() == 2, max(query.shape[-1], value.shape[-1])
    tall = wide = 64
    if half and width > 128:
        tall = 128
    elif half and width > 64 and card.capability not in _LITTLE_SHARED:
        tall = wide = 128
    tiles = -(-query.shape[2] // tall) * -(-query.shape[-1] // wide)
    floats = tiles * (4 + tall * wide)
    if half and width > wide:  # gradients of key and value do not stay in registers
        floats += -(-key.shape[2] // 64) * 64 * 2 * -(-width // 128) * 128
    return 4 * (-(-floats // 4) * 4)


_LITTLE_SHARED = ((8, 6), (8, 7), (8, 9), (12, 0), (12, 1))  # cards with 100 KiB of shared memory per block


@program(_aten._scaled_dot_product_flash_attention.default)
def _flash_attention(call: Call) -> Iterator[Step]:
    # flash_api.cpp, mha_fwd: result, log-sum-exp, and the state of the random numbers, which is on the card
    yield from outs(call, 0, 1)
    query, key = call.args[:2]
    if not call.arg(3, "dropout_p", 0.0):
        splits = _key_splits(call, query, key)
        batch, heads, rows, width = query.shape
        if splits > 1:  # parts of the result, from parts of the keys
            yield Step("alloc", "parts of log-sum-exp", 4 * splits * batch * heads * rows)
            yield Step("alloc", "parts of result", 4 * splits * batch * heads * rows * _rounded_width(width))
    else:
        yield from scratch(("random", 16), Step("out", "7"), Step("out", "6"), "random")
    for index, given in enumerate(call.out):
        if isinstance(given, torch.Tensor) and index > 1:
            yield Step("out" if given.numel() and index in (6, 7) else "host", str(index))
    yield from scratch("parts of log-sum-exp", "parts of result")


def _rounded_width(width: int) -> int:
    return -(-width // 32) * 32 if width <= 128 else -(-width // 64) * 64


def _key_splits(call: Call, query: torch.Tensor, key: torch.Tensor) -> int:
    """Return into how many parts flash attention splits the keys to keep a card busy (num_splits_heuristic)."""
    batch, heads, rows, width = query.shape
    tile = 256 if width <= 64 else 128 if width <= 128 else 64
    blocks, work, places = -(-key.shape[2] // tile), batch * heads * -(-rows // 64), 2 * call.card.multiprocessors
    if work >= 0.8 * places:
        return 1
    busy = {}
    for splits in range(1, min(128, places, blocks) + 1):
        if splits == 1 or -(-blocks // splits) != -(-blocks // (splits - 1)):
            waves = work * splits / places
            busy[splits] = waves / math.ceil(waves)
    return min(splits for splits, share in busy.items() if share >= 0.85 * max(busy.values()))


@program(_aten._scaled_dot_product_flash_attention_backward.default)
def _flash_attention_backward(call: Call) -> Iterator[Step]:
    # flash_api.cpp, mha_bwd: rows rounded to 128, heads to 32 or 64
    grad, query, key, value, out = call.args[:5]
    yield from contiguous(gradient=grad.transpose(1, 2), result=out.transpose(1, 2))
    yield from outs(call, 0, 1, 2)
    batch, heads, rows, width = query.shape
    rows, width = -(-rows // 128) * 128, _rounded_width(width)
    yield Step("alloc", "softmax", 4 * batch * heads * rows)
    yield Step("alloc", "query in float32", 4 * batch * heads * rows * width)
    yield from _per_head(key, value, heads)


@shapes(_aten._scaled_dot_product_efficient_attention_backward.default)
def _shared_keys_shapes(grad: Any, query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> Any:
    found = _aten._scaled_dot_product_efficient_attention_backward.default(grad, query, key, value, *rest, **options)
    if query.shape[1] == key.shape[1]:
        return found
    return found[0], torch.empty_like(key), torch.empty_like(value), found[3]


@program(_aten.native_layer_norm.default)
def _layer_norm(call: Call) -> Iterator[Step]:
    yield from contiguous(input=call.args[0])
    yield from outs(call, 0, 1, 2)


@program(_aten.native_layer_norm_backward.default)
def _layer_norm_backward(call: Call) -> Iterator[Step]:
    yield from contiguous(input=call.args[1])
    yield from outs(call, 0, 1, 2)
    yield from contiguous(gradient=call.args[0])


@program(_aten.native_batch_norm.default)
def _batch_norm(call: Call) -> Iterator[Step]:
    x, training = call.args[0], call.args[5]
    yield Step("out", "0")
    for index in ("1", "2"):  # in evaluation the running ones do
        yield Step("out" if training else "host", index)
    if x.dim() == 2 and training:
        yield from _channel_sums(x, 4)


def _channel_sums(x: torch.Tensor, values: int) -> Iterator[Step]:
    """Scratch of sums over the rows of a matrix that many thread blocks share (Normalization.cuh)."""
    rows, channels = x.shape
    width = min(last_power(channels), 32)
    height = min(last_power(-(-rows // 16)), 512 // width)
    if width * height != 512:
        width = min(last_power(channels), 512 // height)
    blocks = min(-(-rows // (height * 16)), 128)
    if blocks >= 8:
        parts, semaphores = 4 * values * channels * blocks, 4 * -(-channels // width)
        yield from scratch(("parts", parts), ("semaphores", semaphores), "semaphores", "parts")


@program(_aten.native_batch_norm_backward.default)
def _batch_norm_backward(call: Call) -> Iterator[Step]:
    # cudnn/BatchNorm.cpp for images; Normalization.cu for vectors, which first sums up gradients per channel
    grad, x = call.args[:2]
    training = call.args[7]
    if x.dim() == 2 and training:
        yield from scratch(("sum", 4 * x.shape[1]), ("product", 4 * x.shape[1]))
        yield from outs(call, 1, 2)
        yield from _channel_sums(x, 2)
        yield from outs(call, 0)
        return
    if training and x.dim() in (4, 5) and x.dtype != torch.bfloat16:
        layout = torch._prims_common.suggest_memory_format(x)
        if not grad.is_contiguous(memory_format=layout):
            yield Step("alloc", "gradient", nbytes(grad))
    yield from outs(call, 0, 1, 2)


@program(_aten.native_group_norm.default)
def _group_norm(call: Call) -> Iterator[Step]:
    # group_norm_kernel.cu: scale and shift per sample and channel, in float32
    samples, channels, groups = call.args[3], call.args[4], call.args[6]
    per_group, per_channel = 4 * samples * groups, 4 * samples * channels
    yield from outs(call, 0, 1, 2)
    if call.args[0].element_size() == 2:
        yield from scratch(("mean", per_group), ("deviation", per_group))
    if call.args[5] > 1:
        yield from scratch(("scale", per_channel), ("shift", per_channel))


@program(_aten.native_group_norm_backward.default)
def _group_norm_backward(call: Call) -> Iterator[Step]:
    samples, channels, space, groups = call.args[5:9]
    per_group, per_channel = 4 * samples * groups, 4 * samples * channels
    yield from outs(call, 0, 1, 2)
    if space > 1:
        yield from scratch(("sums of products", per_channel), ("sums", per_channel))
        if call.out[0] is not None:
            yield from scratch(
                ("factor", per_group), ("offset", per_group), ("scale", per_channel), "offset", "factor", "scale"
            )


@shapes(_aten.native_batch_norm_backward.default)
def _batch_norm_backward_shapes(grad: Any, x: Any, *rest: Any) -> Any:
    found = _aten.native_batch_norm_backward.default(grad, x, *rest)
    return (None if found[0] is None else torch.empty_like(x), *found[1:])  # the meta kernel forgets the layout
