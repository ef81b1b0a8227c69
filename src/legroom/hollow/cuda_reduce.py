"""How much scratch a CUDA reduction takes: partial results when several thread blocks share one output.

A sum over the batch (every bias gradient) of a wide layer is split over blocks, and each block leaves its part in
global memory: 16 MiB for a 1024-wide layer at batch 2048, more than the layer's weights. Whether and how it splits
depends on the card's size. Mirrors `setReduceConfig` in aten/src/ATen/native/cuda/Reduce.cuh (torch 2.14); operands
are as TensorIterator arranges them: reduced dimensions first, ordered by stride, neighbours joined.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MAX_THREADS = 512  # max_reduce_threads
_WARP = 32
_MIN_VALUES, _MAX_VALUES = 16, 256  # values per thread
_INDEX_LIMIT = 2**31 - 1  # larger extents are split in two: 32-bit indexing


@dataclass(frozen=True)
class GpuShape:
    """What a card's kernels are shaped by; the default is what an RTX 4090 has."""

    multiprocessors: int = 128
    threads_per_multiprocessor: int = 1536
    capability: tuple[int, int] = (8, 9)
    # cuDNN convolves bfloat16. It does from sm80 on, unless TORCH_CUDNN_V8_API_DISABLED is set.
    cudnn_bfloat16: bool = True

    @property
    def cublas(self) -> int:
        """The workspace that PyTorch gives cuBLAS per thread: CUBLAS_WORKSPACE_CONFIG's default, 32 MiB on Hopper."""
        return 32 << 20 if self.capability[0] == 9 else 8_519_680

    def __str__(self) -> str:
        return f"{self.multiprocessors} multiprocessors, compute capability {self.capability[0]}.{self.capability[1]}"


def card_with(multiprocessors: int | None, capability: tuple[int, int] | None) -> GpuShape:
    """Return a card as far as it is known; the rest is an RTX 4090's."""
    known = GpuShape()
    capability = capability or known.capability
    threads = 1024 if capability == (7, 5) else 1536 if capability in _SMALL else 2048
    v8_api = os.environ.get("TORCH_CUDNN_V8_API_DISABLED") != "1"  # as PyTorch reads it
    return GpuShape(multiprocessors or known.multiprocessors, threads, capability, capability >= (8, 0) and v8_api)


_SMALL = ((8, 6), (8, 7), (8, 9), (12, 0), (12, 1))  # 1,536 threads per multiprocessor; others have 2,048


@dataclass(frozen=True)
class _Dim:
    size: int
    stride: int  # of the input, in elements
    out_stride: int  # 0 when reduced


def reduce_scratch(
    shape: Sequence[int], strides: Sequence[int], dims: Sequence[int], itemsize: int, accumulator: int,
    card: GpuShape, *, values_per_load: int = 4,
) -> Iterator[tuple[int, int]]:  # fmt: skip
    """Yield (partial results, semaphores) in bytes for each kernel of the reduction that needs them."""
    yield from _launches(_arrange(shape, strides, set(dims)), itemsize, accumulator, card, values_per_load)


def _arrange(shape: Sequence[int], strides: Sequence[int], reduced: set[int]) -> list[_Dim]:
    found, out_stride = [], 1
    for index in reversed(range(len(shape))):
        if index in reduced:
            found.append(_Dim(shape[index], strides[index], 0))
        else:
            found.append(_Dim(shape[index], strides[index], out_stride))
            out_stride *= shape[index]
    found = [d for d in found if d.size != 1]
    found.sort(key=lambda d: (d.out_stride != 0, d.out_stride, d.stride))
    joined: list[_Dim] = []
    for dim in found:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.size * last.stride == dim.stride
            and last.size * last.out_stride == dim.out_stride
            and (last.out_stride == 0) == (dim.out_stride == 0)
        ):
            joined[-1] = _Dim(last.size * dim.size, last.stride, last.out_stride)
        else:
            joined.append(dim)
    return joined


def _launches(
    dims: list[_Dim], itemsize: int, accumulator: int, card: GpuShape, values_per_load: int
) -> Iterator[tuple[int, int]]:
    extents = [(d.size - 1) * max(d.stride, d.out_stride) * itemsize for d in dims]
    if sum((d.size - 1) * d.stride * itemsize for d in dims) + itemsize > _INDEX_LIMIT:
        widest = extents.index(max(extents))
        half = dims[widest].size // 2
        for size in (half, dims[widest].size - half):
            part = [_Dim(size, d.stride, d.out_stride) if i == widest else d for i, d in enumerate(dims)]
            yield from _launches(part, itemsize, accumulator, card, values_per_load)
        return
    sizes = _config(dims, accumulator, card, values_per_load)
    if sizes is not None:
        yield sizes


def _config(dims: list[_Dim], accumulator: int, card: GpuShape, values_per_load: int) -> tuple[int, int] | None:
    reduced = [d for d in dims if d.out_stride == 0]
    kept = [d for d in dims if d.out_stride != 0]
    outputs = inputs = 1
    for dim in kept:
        outputs *= dim.size
    for dim in reduced:
        inputs *= dim.size
    fastest = True
    vector = 1  # outputs loaded at once
    dim0, dim1 = 1, 1
    if dims:
        fastest = not kept or (bool(reduced) and reduced[0].stride < kept[0].stride)
        dim0, dim1 = (inputs, outputs) if fastest else (outputs, inputs)
        stride = dims[0].stride if fastest else kept[0].stride
        if stride == 1:
            if fastest and dim0 > 128 and len(dims) == 1 and values_per_load >= 4:
                dim0 //= 4
            elif not fastest:
                vector = _output_vector(dims, kept[0])
                dim0 //= vector
    most = _MAX_THREADS // vector
    width_limit = last_power(dim0) if dim0 < most else most
    height_limit = last_power(dim1) if dim1 < most else most
    width = min(width_limit, _WARP)
    height = min(height_limit, most // width)
    width = min(width_limit, most // height)

    step_input = step_output = 1
    if fastest:
        step_input *= width
    else:
        step_output *= width
    across_warps = -(-inputs // step_input) >= min(height * 16, _MAX_VALUES)
    if across_warps:
        step_input *= height
    else:
        step_output *= height
    grid = -(-(outputs // vector) // step_output)
    per_thread = -(-inputs // step_input)
    target = card.multiprocessors * (card.threads_per_multiprocessor // (width * height))
    if not (across_warps and per_thread >= _MAX_VALUES and grid <= target):
        return None
    blocks = max(min(-(-target // grid), -(-per_thread // _MIN_VALUES)), -(-per_thread // _MAX_VALUES))
    if blocks <= 1:
        return None
    partials = accumulator * outputs * blocks
    if not fastest:
        partials *= width * vector  # lanes hold different outputs
    return partials, 4 * grid


def _output_vector(dims: list[_Dim], fastest_kept: _Dim) -> int:
    vector = 4
    for number in (fastest_kept.size, *(d.stride for d in dims if d is not fastest_kept)):
        while number % vector:
            vector //= 2
    return vector


def last_power(number: int) -> int:
    """Return the largest power of two that is not above a number."""
    return 1 << (max(number, 1).bit_length() - 1)
