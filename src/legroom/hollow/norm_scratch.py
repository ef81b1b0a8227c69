"""What the norms of CUDA allocate inside (see `op_scratch.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .cuda_reduce import last_power
from .op_scratch import SHAPES, Call, Step, nbytes, program

_aten = torch.ops.aten


@program(_aten.native_layer_norm.default)
def _layer_norm(call: Call) -> Iterator[Step]:
    if not call.args[0].is_contiguous():
        yield Step("alloc", "input", nbytes(call.args[0]))
    for index in range(3):
        yield Step("out", str(index))


@program(_aten.native_layer_norm_backward.default)
def _layer_norm_backward(call: Call) -> Iterator[Step]:
    if not call.args[1].is_contiguous():
        yield Step("alloc", "input", nbytes(call.args[1]))
    for index in range(3):
        if call.out[index] is not None:
            yield Step("out", str(index))
    if not call.args[0].is_contiguous():
        yield Step("alloc", "gradient", nbytes(call.args[0]))


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
        yield Step("alloc", "parts", 4 * values * channels * blocks)
        yield Step("alloc", "semaphores", 4 * -(-channels // width))
        yield Step("free", "semaphores")
        yield Step("free", "parts")


@program(_aten.native_batch_norm_backward.default)
def _batch_norm_backward(call: Call) -> Iterator[Step]:
    # cudnn/BatchNorm.cpp for images; Normalization.cu for vectors, which first sums up gradients per channel
    grad, x = call.args[:2]
    training = call.args[7]
    if x.dim() == 2 and training:
        yield Step("alloc", "sum", 4 * x.shape[1])
        yield Step("alloc", "product", 4 * x.shape[1])
        for index in (1, 2):
            if call.out[index] is not None:
                yield Step("out", str(index))
        yield from _channel_sums(x, 2)
        if call.out[0] is not None:
            yield Step("out", "0")
        return
    if training and x.dim() in (4, 5) and x.dtype != torch.bfloat16:
        layout = torch._prims_common.suggest_memory_format(x)
        if not grad.is_contiguous(memory_format=layout):
            yield Step("alloc", "gradient", nbytes(grad))
    for index in range(3):
        if call.out[index] is not None:
            yield Step("out", str(index))


@program(_aten.native_group_norm.default)
def _group_norm(call: Call) -> Iterator[Step]:
    # group_norm_kernel.cu: scale and shift per sample and channel, in float32
    samples, channels, groups = call.args[3], call.args[4], call.args[6]
    for index in range(3):
        yield Step("out", str(index))
    if call.args[0].element_size() == 2:
        yield Step("alloc", "mean", 4 * samples * groups)
        yield Step("alloc", "deviation", 4 * samples * groups)
    if call.args[5] > 1:
        yield Step("alloc", "scale", 4 * samples * channels)
        yield Step("alloc", "shift", 4 * samples * channels)


@program(_aten.native_group_norm_backward.default)
def _group_norm_backward(call: Call) -> Iterator[Step]:
    samples, channels, space, groups = call.args[5:9]
    for index in range(3):
        if call.out[index] is not None:
            yield Step("out", str(index))
    if space <= 1:
        return
    yield Step("alloc", "sums of products", 4 * samples * channels)
    yield Step("alloc", "sums", 4 * samples * channels)
    if call.out[0] is not None:
        yield Step("alloc", "factor", 4 * samples * groups)
        yield Step("alloc", "offset", 4 * samples * groups)
        yield Step("alloc", "scale", 4 * samples * channels)
        yield Step("free", "offset")
        yield Step("free", "factor")
        yield Step("free", "scale")


def _batch_norm_backward_shapes(grad: Any, x: Any, *rest: Any) -> Any:
    found = _aten.native_batch_norm_backward.default(grad, x, *rest)
    return (None if found[0] is None else torch.empty_like(x), *found[1:])  # the meta kernel forgets the layout


SHAPES.update(
    {
        _aten.native_batch_norm_backward.default: _batch_norm_backward_shapes,
    }
)
