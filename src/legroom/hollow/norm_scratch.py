"""What the norms of CUDA allocate inside (see `op_scratch.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .cuda_reduce import last_power
from .op_scratch import Call, Step, contiguous, nbytes, outs, program, scratch, shapes

_aten = torch.ops.aten


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
