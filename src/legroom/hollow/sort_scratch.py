"""What sorts take inside on a card, and the operators that sort: randperm, sort, gradients of embeddings and indices.

PyTorch sorts with cub's radix sort, which says how much it needs before it runs. The sizes here follow
cub/device/dispatch/dispatch_radix_sort.cuh ("onesweep") as CUDA 13 builds it for sm80 to sm89; newer cards take tiles
of other sizes, which changes some KiB per million keys. Order and names follow aten/src/ATen/native/cuda of torch
2.14: Sort.cu, Randperm.cu, EmbeddingBackwardKernel.cu, Indexing.cu.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from .cuda_reduce import GpuShape
from .op_scratch import OUT, Call, Step, contiguous, nbytes, outs, program, scratch

_aten = torch.ops.aten
_ALIGNED = 256  # every part of a temporary begins at a multiple of it
_SINGLE_TILE = 2304  # as many pairs are sorted by one block of threads, in place
_SMALL_SORT = 4096  # rows as long as this are sorted by one block each
_FEW_ROWS = 128  # fewer long rows than this are sorted as one long row, twice
_SORTED_INDICES = 3072  # an embedding's gradient from more indices than this sorts them


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def radix_sort_bytes(number: int, key: int, bits: int, *, values: bool = True) -> int:
    """Return cub's temporary for sorting so many keys of so many bytes by so many of their bits, with 8-byte values."""
    if number <= _SINGLE_TILE:
        return 1
    passes = -(-bits // 8)
    per_thread = (17 if key == 4 and values else 21) * 4 // (8 if values else max(key, 4))
    tiles = -(-number // (384 * per_thread))
    size = passes * 256 * 8 + _aligned(4 * passes) + tiles * 256 * 4  # digits, counters, what tiles tell each other
    if key < 4:  # another algorithm, whose counts are as many as the blocks that a card runs at once (128 processors)
        return 5_287_936 + _aligned(number * key) + _aligned(number * 8) + _ALIGNED - 1
    if passes > 1:  # a second pair of arrays to go to and fro
        size += _aligned(number * key) + (_aligned(number * 8) if values else 0)
    return size + _ALIGNED - 1


def scan_bytes(number: int, tile: int, state: int = 16) -> int:
    """Return the temporary of a scan or a selection over so many values: what each tile tells the next."""
    return _aligned((-(-number // tile) + 32) * state) + 2 * _ALIGNED - 1


def _bits(largest: int) -> int:
    return max(1, largest.bit_length())


@program(_aten.sort.default, _aten.sort.stable)
def _sort(call: Call) -> Iterator[Step]:
    x = call.args[0]
    stable = len(call.args) > 1 and (call.args[1] is None or isinstance(call.args[1], bool)) and "dim" in call.kwargs
    dim = call.kwargs.get("dim", -1) if stable else call.arg(1, "dim", -1)
    yield from outs(call, 0, 1)
    if x.dim() == 0 or x.numel() == 0:
        return
    length, key = x.shape[dim], x.element_size()
    if length <= _SMALL_SORT:
        yield Step("alloc", "positions", 8 * length)
        return
    if x.stride(dim) != 1 or not x.is_contiguous():
        yield from scratch(("input", nbytes(x)), ("values", nbytes(x)), ("indices", 8 * x.numel()))
    number, rows = x.numel(), x.numel() // length
    yield Step("alloc", "positions", 8 * number)
    if rows == 1:
        yield Step("alloc", "sort", radix_sort_bytes(number, key, 8 * key))
    elif rows < _FEW_ROWS:
        sort, by_row = radix_sort_bytes(number, key, 8 * key), radix_sort_bytes(number, 8, _bits(rows))
        yield from scratch(
            ("order", 8 * number), ("sorted", nbytes(x)), ("sort", sort), "sort", "sorted", ("sort by row", by_row)
        )
    else:
        yield Step("alloc", "sort", _aligned(nbytes(x)) + _aligned(8 * number) + _ALIGNED - 1)


@program(_aten.randperm.default, _aten.randperm.generator)
def _randperm(call: Call) -> Iterator[Step]:
    # random keys are so wide that no two of them are likely to be the same
    number = call.args[0]
    yield OUT
    if number == 0:
        return
    wide = number - (6 * number * number + 1) / (12 * math.log(0.9))
    bits = min(64, math.ceil(math.log2(wide)))
    key = 4 if bits <= 32 else 8
    yield from scratch(
        ("seed", 8), "seed", ("positions", 8 * number), ("keys", key * number), ("sorted keys", key * number),
        ("sort", radix_sort_bytes(number, key, bits)),
    )  # fmt: skip


@program(_aten.embedding.default)
def _embedding(call: Call) -> Iterator[Step]:
    # Embedding.cpp: rows are chosen by one list of indices
    indices = call.args[1]
    if indices.dim() > 1 and not indices.is_contiguous():
        yield Step("alloc", "indices", nbytes(indices))
    yield OUT


@program(_aten.embedding_dense_backward.default)
def _embedding_backward(call: Call) -> Iterator[Step]:
    # Embedding.cu, embedding_dense_backward_cuda: many indices are sorted, then summed in parts of ten
    grad, indices, symbols = call.args[:3]
    number, width = indices.numel(), grad.shape[-1]
    yield from contiguous(gradient=grad, indices=indices)
    if number <= _SORTED_INDICES:
        yield OUT
        return
    yield from _summed_rows(number, width, symbols)


@program(_aten._embedding_bag_backward.default, _aten._embedding_bag_dense_backward.default)
def _bag_backward(call: Call) -> Iterator[Step]:
    # EmbeddingBag.cu: as above whatever the number of indices, unless the largest values are looked for
    names = [each.name for each in _bag_arguments(len(call.args))]
    given = dict(zip(names, call.args)) | call.kwargs
    if given.get("mode") == _MAX or given.get("sparse"):
        yield OUT
        return
    yield from _summed_rows(given["indices"].numel(), call.args[0].shape[-1], given["num_weights"])


_MAX = 2  # embedding_bag's mode


def _bag_arguments(number: int) -> Any:
    """Return the arguments of the operator that takes so many: with offsets, it is the one above."""
    both = (_aten._embedding_bag_backward.default, _aten._embedding_bag_dense_backward.default)
    return (both[0] if number > 10 else both[1])._schema.arguments


def _summed_rows(number: int, width: int, symbols: int) -> Iterator[Step]:
    """Yield what adding up rows by index takes: indices are sorted, and rows summed in parts of ten."""
    segments = min(number, symbols)
    parts = number // 10 + segments
    # long segments are added up in place, and what is kept is the segment of each part
    in_place = symbols * 30 <= number and symbols < 512
    yield from _sorted_indices(number, symbols)
    yield from scratch(
        "sort", "range", OUT, ("segments", 8 * number), ("number of segments", 8), ("unique", 8 * number),
        ("selection", scan_bytes(number, 320)), "selection", "unique", ("parts per segment", 8 * segments),
        ("offsets", 8 * segments), ("scan", scan_bytes(segments, 896)), "scan", ("number of parts", 8),
        ("part offsets", 8 * parts), ("sums of parts", 8 * parts if in_place else 4 * parts * width),
    )  # fmt: skip


def _sorted_indices(number: int, symbols: int) -> Iterator[Step]:
    size = 8 * number
    sort = radix_sort_bytes(number, 8, _bits(symbols))
    return scratch(("sorted", size), ("order", size), ("range", size), ("sort", sort))


def nonzero_steps(number: int, card: GpuShape) -> Iterator[Step]:
    """Yield what finding the positions that a mask chooses takes, before they are written down (Nonzero.cu)."""
    # five waves of eight blocks per multiprocessor leave a sum each
    sums = 1 if number <= _SMALL_SORT else 4 * 40 * card.multiprocessors + _ALIGNED - 1
    return scratch(("count", 4), ("sums", sums), "sums", ("selection", scan_bytes(number, 640, 8)))


@program(_aten.cumsum.default)
def _cumsum(call: Call) -> Iterator[Step]:
    yield OUT
    x = call.args[0]
    if x.numel() > 1 and max(x.shape) == x.numel():  # one row: cub's scan
        wide = call.out.element_size() == 8
        yield Step("alloc", "scan", scan_bytes(x.numel(), 896 if wide else 1920, 16 if wide else 8))


def index_put_steps(x: Any, indices: Any, values: Any) -> Iterator[Step]:
    """Yield what adding values at indices takes: they are sorted, so that equal ones meet."""
    given = [each for each in indices if each is not None]
    shape = torch.broadcast_shapes(*(each.shape for each in given))
    number = math.prod(shape)
    if number == 0:
        return
    for place, index in enumerate(given):
        wrapped, linear, size = f"wrapped {place}", f"linear {place}", 8 * index.numel()
        yield from scratch((wrapped, size), (linear, size), wrapped, *([linear] if place else []))
    yield from contiguous(values=values)
    covered = [dim for dim, each in enumerate(indices) if each is not None]
    slots = math.prod(x.shape[: covered[-1] + 1])
    yield from _sorted_indices(number, slots)


@program(_aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default)
def _index_put(call: Call) -> Iterator[Step]:
    yield OUT
    if call.arg(3, "accumulate", False) and all(i is None or i.dtype == torch.int64 for i in call.args[1]):
        yield from index_put_steps(call.args[0], call.args[1], call.args[2])
