"""What convolutions allocate inside, by the kernel that PyTorch takes for them (aten/src/ATen/native/Convolution.cpp).

Most are cuDNN's. bfloat16 is convolved by cuDNN from sm80 on, unless TORCH_CUDNN_V8_API_DISABLED is set; elsewhere one
sample after the other is unrolled into columns, which a matrix product takes, and groups one after the other.
Depthwise ones are PyTorch's own. cuDNN's workspace is not here: nobody knows it without a card.

Recorded with torch 2.14.1, CUDA 13 (tests/hollow/operator_cases.py, "bf16" and "half").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from .cuda_reduce import GpuShape
from .op_scratch import CUBLAS, OUT, Call, Step, nbytes, outs, program, reduction, scratch

_aten = torch.ops.aten
CONVOLUTIONS = {_aten.convolution.default, _aten.convolution_backward.default}


def conv_format(x: torch.Tensor, weight: torch.Tensor, card: GpuShape) -> torch.memory_format:
    """Return the layout of a convolution: channels-last for cuDNN as soon as input or weight have it (ConvUtils.h)."""
    if unrolled(x, weight, card):
        return torch.contiguous_format
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    found = {torch._prims_common.suggest_memory_format(t) for t in (x, weight) if t.dim() in (4, 5)}
    return last if last in found else torch.contiguous_format


def laid_out(func: Any, args: Any, out: Any, card: GpuShape) -> Any:
    """Return the results of a convolution in their layout, which its meta kernels forget: flattening then copies."""
    if func is _aten.convolution.default:
        return torch.empty_like(out, memory_format=conv_format(args[0], args[1], card))
    if func is _aten.convolution_backward.default and unrolled(args[1], args[2], card):
        return tuple(None if t is None else torch.empty_like(t, memory_format=torch.contiguous_format) for t in out)
    return out


def in_bfloat16(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return whether the kernel of a convolution depends on what cuDNN does with bfloat16."""
    return torch.bfloat16 in (x.dtype, weight.dtype) and not _depthwise(x, weight)


def unrolled(x: torch.Tensor, weight: torch.Tensor, card: GpuShape) -> bool:
    """Return whether a convolution is a product of unrolled windows and not cuDNN's."""
    return not card.cudnn_bfloat16 and in_bfloat16(x, weight)


def _depthwise(x: torch.Tensor, weight: torch.Tensor) -> bool:
    return weight.shape[1] == 1 and x.dim() in (3, 4) and x.shape[1] > 1 and weight.shape[0] % x.shape[1] == 0


def _depthwise_by_cudnn(x: torch.Tensor, weight: torch.Tensor, stride: Any, dilation: Any) -> bool:
    """Return whether cuDNN takes a depthwise one: some in float16 (check_cudnn_depthwise_workload_with_filter)."""
    if x.dtype != torch.float16 or x.dim() != 4 or x.shape[1] < 32 or any(step != 1 for step in dilation):
        return False
    (samples, channels, height, width), (high, wide), step = x.shape, weight.shape[2:], stride[-1]
    if stride[0] != step and height != 1:
        return False
    if height == 1 and step == 1:
        return True
    if high != wide or wide not in (1, 3, 5) or width < 7 or step > 2:
        return False
    if step == 1:
        return True
    if wide == 1:
        return (samples == 1 and width <= 28) or (1 < samples <= 16 and channels >= 128 and width <= 7)
    return samples == 1 or channels >= 512 or (channels >= 256 and width >= 28)


@program(_aten.convolution.default)
def _convolution(call: Call) -> Iterator[Step]:
    # input and weights are copied into the layout of the convolution where they do not have it
    x, weight = call.args[:2]
    layout = conv_format(x, weight, call.card)
    if unrolled(x, weight, call.card):
        yield from _unrolled(call)
        return
    if x.dim() in (4, 5) and not x.is_contiguous(memory_format=layout):
        yield Step("alloc", "input", nbytes(x))
    yield Step("out")
    if x.dim() in (4, 5) and not weight.is_contiguous(memory_format=layout):
        yield Step("alloc", "weight", nbytes(weight))
    if not _own_kernel(call, x, weight, layout):
        yield _benchmark(call, "forward", x, weight, layout)


def _own_kernel(call: Call, x: torch.Tensor, weight: torch.Tensor, layout: torch.memory_format) -> bool:
    """Return whether PyTorch's own kernel for depthwise convolutions is taken, not cuDNN's."""
    at = 4 if isinstance(call.out, tuple) else 3  # backward has the sizes of a bias first
    by_cudnn = _depthwise_by_cudnn(x, weight, call.args[at], call.args[at + 2])
    return _depthwise(x, weight) and not by_cudnn and layout == torch.contiguous_format


def _benchmark(call: Call, what: str, x: torch.Tensor, weight: torch.Tensor, layout: torch.memory_format) -> Step:
    """Return the step at which cuDNN's kernels are tried (ConvShared.h, ConvolutionParams)."""
    at = 4 if isinstance(call.out, tuple) else 3
    key = (what, x.dtype, tuple(x.shape), tuple(weight.shape), *map(str, call.args[at : at + 6]), layout)
    return Step("benchmark", str(key))


@program(_aten.convolution_backward.default)
def _convolution_backward(call: Call) -> Iterator[Step]:
    # cuDNN computes the gradients of input and weight; the bias gradient is an ordinary sum over batch and space
    grad, x, weight = call.args[:3]
    if unrolled(x, weight, call.card):
        yield from _unrolled_backward(call)
        return
    layout = conv_format(x, weight, call.card)
    scattered = grad.dim() in (4, 5) and not grad.is_contiguous(memory_format=layout)
    if scattered and layout != torch.contiguous_format:
        yield Step("alloc", "gradient", nbytes(grad))
        scattered = False
    if x.dim() in (4, 5) and not x.is_contiguous(memory_format=layout):
        yield Step("alloc", "input", nbytes(x))
    own = _own_kernel(call, x, weight, layout)
    for name in ("1", "0") if own else ("0", "1"):
        if call.out[int(name)] is not None:
            if scattered and name == "1":
                yield Step("alloc", "gradient of weight", nbytes(grad))
            yield Step("out", name)
            if scattered and name == "0":
                yield Step("alloc", "gradient of input", nbytes(grad))
            if not own:
                yield _benchmark(call, f"backward {name}", x, weight, layout)
            if scattered and name == "0":
                yield Step("free", "gradient of input")
    yield from scratch("gradient of weight", "input", "gradient")
    if call.out[2] is not None:
        yield Step("out", "2")
        yield from reduction(call, grad, [0, *range(2, grad.dim())], 4)


# -- unrolled: slow_conv2d, slow_conv_transpose2d and 3d, slow_conv_dilated2d and 3d ---------------------------------


def _columns(call: Call, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> int:
    """Return the bytes of one sample's windows, of one group."""
    backward = call.args[0] is out
    transposed, groups = call.args[7 if backward else 6], call.args[9 if backward else 8]
    channels = out.shape[1] // groups if transposed else weight.shape[1]
    return x.element_size() * channels * math.prod(weight.shape[2:]) * math.prod((x if transposed else out).shape[2:])


def _unrolled(call: Call) -> Iterator[Step]:
    x, weight, bias = call.args[:3]
    transposed, groups = call.args[6], call.args[8]
    columns = _columns(call, x, weight, call.out)
    if math.prod(weight.shape[2:]) == 1 and not transposed and x.dim() < 5:
        columns = 0  # windows of one pixel are the sample itself
    ones = call.out.element_size() * math.prod(call.out.shape[2:]) if transposed and bias is not None else 0
    for group in range(groups):
        if groups > 1 or not x.is_contiguous():
            yield Step("alloc", "input", nbytes(x) // groups)
        if not weight.is_contiguous():
            yield Step("alloc", "weight", nbytes(weight) // groups)
        part = OUT if groups == 1 else (f"part {group}", nbytes(call.out) // groups)
        yield from scratch(part, ("columns", columns), CUBLAS, ("ones", ones), "ones", "columns", "weight", "input")
    if groups > 1:
        yield from scratch(OUT, *(f"part {group}" for group in range(groups)))


def _unrolled_backward(call: Call) -> Iterator[Step]:
    grad, x, weight = call.args[:3]
    groups = call.args[9]
    for group in range(groups):
        if groups > 1 or not grad.is_contiguous():
            yield Step("alloc", "gradient", nbytes(grad) // groups)
        if groups > 1 or not x.is_contiguous():
            yield Step("alloc", "input", nbytes(x) // groups)
        if not weight.is_contiguous():
            yield Step("alloc", "weight", nbytes(weight) // groups)
        yield from _results(call, group, groups)
        yield from scratch("columns", "weight", "input", "gradient")
    if groups > 1:
        yield from outs(call, 0, 1, 2)
        yield from scratch(*(f"{index} of {group}" for index in (2, 1, 0) for group in range(groups)))


def _results(call: Call, group: int, groups: int) -> Iterator[Step]:
    """The gradients of one group in the order of their kernel, and its columns; `call.out` are those of all groups."""
    grad, x, weight = call.args[:3]
    columns = ("columns", _columns(call, x, weight, grad)), CUBLAS

    def result(index: int) -> Iterator[Step]:
        found = call.out[index]
        if found is not None:
            whole = groups == 1
            yield Step("out", str(index)) if whole else Step("alloc", f"{index} of {group}", nbytes(found) // groups)

    if call.args[7]:  # transposed: columns for the input's gradient, and again for the weight's
        yield from result(0)
        if call.out[0] is not None:
            yield from scratch(*columns, "columns")
        yield from result(1)
        yield from result(2)
        if call.out[1] is not None:
            yield from scratch(*columns)
    elif x.dim() == 5 or any(step != 1 for step in call.args[6]):  # dilated; the sum of every sample for the bias
        for index in range(3):
            yield from result(index)
        yield from scratch(*columns)
        if call.out[2] is not None:
            yield from scratch(("sum", nbytes(call.out[2]) // groups), "sum")
    else:
        one_pixel = math.prod(weight.shape[2:]) == 1
        yield from result(0)
        if call.out[0] is not None:
            yield from scratch(*columns)
        yield from result(2)
        yield from result(1)
        if call.out[0] is None and not one_pixel:
            yield from scratch(*columns)
