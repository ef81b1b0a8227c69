"""What CUDA operators allocate inside: the one table of operator -> scratch, each with its reason.

An operator that is one call in Python may allocate and free on the device before it returns. A program is a generator
that says, in order, what is allocated (`alloc`), freed (`free`), and where the visible result comes (`out`); results it
does not place come last, scratch it does not free is freed then, the last first. Found by comparing recorded request
sequences of real runs (torch 2.14.1, CUDA 13, 2026-11) with the sequences followed here, and read off
aten/src/ATen/native.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from .cuda_reduce import Card, last_power, reduce_scratch

_aten = torch.ops.aten


@dataclass(frozen=True)
class Step:
    """One step of an operator's inside.

    Args:
        kind: `out` places a result, `host` says that one is not on the card, `once` allocates for good, once,
            `cublas` does so for cuBLAS and the thread, and `benchmark` tries the kernels of a convolution.
        name: tells scratch blocks apart; for `out` and `host` the index of the result.
        nbytes: for `out`, the size of its storage where that is larger than the result.
        first: for `once`, what is taken and freed before.
    """

    kind: Literal["alloc", "free", "out", "host", "once", "cublas", "benchmark"]
    name: str = "0"
    nbytes: int = 0
    first: int = 0


@dataclass(frozen=True)
class Call:
    """One call of an operator, as its program sees it."""

    args: Any
    kwargs: Any
    out: Any
    card: Card

    def arg(self, index: int, name: str, default: Any = None) -> Any:
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)


Program = Callable[[Call], Iterator[Step]]

# Operators that call cuBLAS and so need its workspace.
MATMULS = {
    _aten.addmm.default, _aten.baddbmm.default, _aten.mv.default,
    _aten.addmv.default, _aten.addbmm.default, _aten.dot.default, _aten._addmm_activation.default,
}  # fmt: skip

PROGRAMS: dict[Any, Program] = {}


def program(*operators: Any) -> Callable[[Program], Program]:
    def register(found: Program) -> Program:
        for operator in operators:
            PROGRAMS[operator] = found
        return found

    return register


def nbytes(tensor: torch.Tensor, itemsize: int | None = None) -> int:
    return tensor.numel() * (tensor.element_size() if itemsize is None else itemsize)


def _dims(tensor: torch.Tensor, dims: Any) -> list[int]:
    if dims is None or dims == []:
        return list(range(tensor.dim()))
    return [d % max(tensor.dim(), 1) for d in (dims if isinstance(dims, (list, tuple)) else [dims])]


def reduction(
    call: Call, tensor: torch.Tensor, dims: Any, accumulator: int, values_per_load: int = 4
) -> Iterator[Step]:
    """Scratch of a reduction that many thread blocks share: partial results and one semaphore per output block."""
    for partials, semaphores in reduce_scratch(
        tuple(tensor.shape), tensor.stride(), _dims(tensor, dims), tensor.element_size(), accumulator, call.card,
        values_per_load=values_per_load,
    ):  # fmt: skip
        yield Step("alloc", "partials", partials)
        yield Step("alloc", "semaphores", semaphores)
        yield Step("free", "semaphores")
        yield Step("free", "partials")


@program(_aten.sum.dim_IntList, _aten.mean.dim, _aten.amax.default, _aten.amin.default)
def _sum(call: Call) -> Iterator[Step]:
    yield Step("out")
    yield from _cast_first(call)
    yield from reduction(call, call.args[0], call.arg(1, "dim"), _sum_bytes(call.out))


@program(_aten.sum.default, _aten.mean.default, _aten.max.default, _aten.min.default)
def _sum_all(call: Call) -> Iterator[Step]:
    yield Step("out")
    yield from _cast_first(call)
    yield from reduction(call, call.args[0], None, _sum_bytes(call.out))


def _sum_bytes(out: torch.Tensor) -> int:
    return max(4, out.element_size())  # half precision is added up in float32


@program(
    _aten.any.default, _aten.all.default, _aten.any.dim, _aten.all.dim, _aten._is_all_true.default,
    _aten._is_any_true.default,
)  # fmt: skip
def _any(call: Call) -> Iterator[Step]:
    yield Step("out")
    yield from reduction(call, call.args[0], call.arg(1, "dim"), 1)


@program(_aten.linalg_vector_norm.default)
def _norm(call: Call) -> Iterator[Step]:
    yield Step("out")
    yield from reduction(call, call.args[0], call.arg(2, "dim"), _sum_bytes(call.out))


def _cast_first(call: Call) -> Iterator[Step]:
    # ReduceOps.cpp, make_reduction: the input becomes what the result is, but for half precision added up in float32
    x, out = call.args[0], call.out
    if x.dtype != out.dtype and not (x.element_size() == 2 and out.dtype == torch.float32):
        yield Step("alloc", "cast", nbytes(x, out.element_size()))


@program(_aten.roll.default)
def _roll(call: Call) -> Iterator[Step]:
    # TensorTransformations.cpp, roll_common: one axis after the other; what each gives is kept until the last is done
    x = call.args[0]
    if not x.is_contiguous():
        yield Step("alloc", "copy", nbytes(x))
    for number in range(1, len(call.arg(2, "dims", ()))):
        yield Step("alloc", f"{number} axes", nbytes(x))
        yield Step("free", "copy")
    yield Step("out")


@program(_aten.cumsum.default, _aten.cumprod.default)
def _running(call: Call) -> Iterator[Step]:
    # ReduceOps.cpp, impl_func_cum_ops: the input becomes what the result is
    yield Step("out")
    if call.args[0].dtype != call.out.dtype:
        yield Step("alloc", "cast", nbytes(call.args[0], call.out.element_size()))


@program(_aten.isinf.default)
def _infinite(call: Call) -> Iterator[Step]:
    if call.args[0].dtype.is_floating_point:  # abs(x) == inf
        yield Step("alloc", "magnitude", nbytes(call.args[0]))


@program(_aten.max.dim, _aten.min.dim, _aten.argmax.default, _aten.argmin.default)
def _select(call: Call) -> Iterator[Step]:
    # the accumulator is a (value, index) pair: 4 + 8 bytes, padded to 16
    yield Step("out", "0")
    if not isinstance(call.out, torch.Tensor):
        yield Step("out", "1")
    yield from reduction(call, call.args[0], call.arg(1, "dim"), 16)


@program(_aten.std.correction, _aten.var.correction, _aten.var_mean.correction, _aten.std_mean.correction)
def _spread(call: Call) -> Iterator[Step]:
    # WelfordData<float, int32_t>: mean, m2, n, nf; ReduceMomentKernel.cu loads two values at a time
    yield Step("out")
    if not isinstance(call.out, torch.Tensor):
        yield Step("out", "1")
    yield from reduction(call, call.args[0], call.arg(1, "dim"), 16, values_per_load=2)


# -- matrix products: cuBLAS reads rows or columns that lie together; other operands are copied (CUDABlas, Blas.cpp) ---


def _readable(matrix: torch.Tensor) -> bool:
    (rows, columns), (down, right) = matrix.shape[-2:], matrix.stride()[-2:]
    if (right == 1 and down >= max(1, columns)) or (down == 1 and right >= max(1, rows)):
        return True
    return matrix.dim() == 2 and matrix.numel() > 0 and 0 not in (down, right) and matrix.is_contiguous()


def _copies(*operands: torch.Tensor) -> Iterator[Step]:
    for place, operand in enumerate(operands):
        if operand.numel() and not _readable(operand):
            yield Step("alloc", f"operand {place}", nbytes(operand))


@program(_aten.mm.default)
def _product(call: Call) -> Iterator[Step]:
    yield Step("out")
    yield from _copies(*call.args[:2])
    yield Step("cublas")


@program(_aten.bmm.default)
def _products(call: Call) -> Iterator[Step]:
    if _OUTER_KERNEL and call.args[0].shape[2] == 1 and call.out.numel() and not call.out.is_complex():
        yield Step("out")  # torch/_native/ops/bmm_outer_product, a Triton kernel since torch 2.14
    else:
        yield from _product(call)


_OUTER_KERNEL = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)


@program(_aten.addmm.default, _aten.baddbmm.default, _aten._addmm_activation.default)
def _added_product(call: Call) -> Iterator[Step]:
    yield Step("out")
    yield from _copies(*call.args[1:3])


@program(_aten.mv.default)
def _product_with_vector(call: Call) -> Iterator[Step]:
    yield Step("out")
    matrix, vector = call.args[:2]
    yield from _copies(matrix)
    if vector.numel() > 1 and vector.stride(0) == 0:
        yield Step("alloc", "vector", nbytes(vector))


# -- norms -----------------------------------------------------------------------------------------------------------


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


# -- losses and draws ------------------------------------------------------------------------------------------------


@program(_aten._foreach_norm.Scalar)
def _foreach_norm(call: Call) -> Iterator[Step]:
    # ForeachReduceOp.cu: one partial norm per tensor and chunk of 65,536 elements, for the largest tensor's chunks
    tensors = call.args[0]
    chunks = max(-(-t.numel() // 65_536) for t in tensors)
    yield Step("alloc", "per chunk", len(tensors) * chunks * 4)
    for index in range(len(tensors)):
        yield Step("out", str(index))


@program(_aten.mse_loss.default, _aten.smooth_l1_loss.default)
def _elementwise_loss(call: Call) -> Iterator[Step]:
    # Loss.cpp: the result is first an array of all losses, then resized to the one number; its storage stays
    if call.arg(2, "reduction", 1) == 0:
        return
    yield Step("out", "0", nbytes(call.args[0]))
    yield Step("alloc", "losses", nbytes(call.args[0]))
    yield from reduction(call, call.args[0], None, 4)


@program(_aten.binary_cross_entropy.default)
def _entropy_loss(call: Call) -> Iterator[Step]:
    # Loss.cu: as above, but the one number is another tensor and then copied
    if call.arg(3, "reduction", 1) == 0:
        return
    yield Step("out", "0", nbytes(call.args[0]))
    yield Step("alloc", "reduced", call.args[0].element_size())
    yield from reduction(call, call.args[0], None, 4)


@program(_aten.huber_loss.default)
def _huber_loss(call: Call) -> Iterator[Step]:
    if call.arg(2, "reduction", 1) != 0:
        yield Step("alloc", "losses", nbytes(call.args[0]))
        yield Step("out")
        yield from reduction(call, call.args[0], None, 4)


@program(_aten.binary_cross_entropy_with_logits.default)
def _logits_loss(call: Call) -> Iterator[Step]:
    size = nbytes(call.args[0])
    yield Step("alloc", "log of sigmoid", size)
    if call.arg(4, "reduction", 1) == 0:
        yield Step("out")
        return
    yield Step("alloc", "losses", size)
    yield Step("out")
    yield from reduction(call, call.args[0], None, 4)


@program(_aten.nll_loss2d_forward.default)
def _pixel_loss(call: Call) -> Iterator[Step]:
    yield Step("out", "1")
    yield Step("out", "0")


@program(_aten.log_sigmoid_forward.default)
def _log_sigmoid(call: Call) -> Iterator[Step]:
    yield Step("out", "0")
    yield Step("host", "1")  # a buffer that only the CPU needs


@program(_aten.normal.Tensor_Tensor, _aten.normal.float_Tensor)
def _normal(call: Call) -> Iterator[Step]:
    # DistributionTemplates.h: looks before and after whether a deviation is negative
    for step in ("out", "free"):
        yield Step("alloc", "least", 4)
        yield from reduction(call, call.args[1], None, 4)
        yield Step("alloc", "negative", 1)
        yield Step("free", "negative")
        yield Step("free", "least")
        if step == "out":
            yield Step("out")


@program(_aten.logsumexp.default)
def _logsumexp(call: Call) -> Iterator[Step]:
    # ReduceOps.cpp, logsumexp_out_impl: maxima are kept, infinities among them masked, exp(x - max) summed
    x, dims = call.args[0], call.arg(1, "dim")
    size = nbytes(call.out)
    yield Step("alloc", "maxima", size)
    yield from reduction(call, x, dims, 4)
    yield Step("alloc", "absolute", size)
    yield Step("alloc", "infinite", call.out.numel())
    yield Step("free", "infinite")
    yield Step("free", "absolute")
    yield Step("alloc", "differences", nbytes(x))
    yield Step("out")
    yield from reduction(call, x, dims, 4)
    yield Step("free", "differences")


@program(_aten.multinomial.default)
def _multinomial(call: Call) -> Iterator[Step]:
    # Distributions.cpp, multinomial of one sample: checks (finite, not negative, sums above zero), then the exponential
    # trick argmax(p / q) with q drawn for every entry
    probabilities = call.args[0]
    rows = probabilities.numel() // probabilities.shape[-1]
    yield Step("out")
    yield Step("alloc", "max", 4)
    yield Step("alloc", "min", 4)
    yield Step("alloc", "finite", 1)
    yield Step("alloc", "positive", 1)
    yield Step("alloc", "valid", 1)
    yield Step("free", "positive")
    yield Step("free", "finite")
    yield Step("alloc", "sums", 4 * rows)
    yield Step("alloc", "zero", rows)
    yield Step("alloc", "any zero", 1)
    yield Step("free", "zero")
    yield Step("free", "sums")
    yield Step("alloc", "not", 1)
    yield Step("free", "not")
    yield Step("alloc", "q", nbytes(probabilities))
    yield Step("free", "q")
    yield Step("free", "any zero")
    yield Step("free", "valid")
    yield Step("free", "max")
    yield Step("free", "min")


@program(_aten._softmax_backward_data.default)
def _softmax_backward(call: Call) -> Iterator[Step]:
    # SoftMax.cu, softmax_backward_cuda_out: grad * output is computed first; log_softmax needs no such product
    yield Step("out")
    yield Step("alloc", "product", nbytes(call.args[0]))


@program(*([_aten._safe_softmax.default] if hasattr(_aten, "_safe_softmax") else ()))  # from torch 2.5 on
def _safe_softmax(call: Call) -> Iterator[Step]:
    # attention.cpp: rows that are masked throughout are looked for
    yield Step("out")
    yield Step("alloc", "masked", call.out.numel())
    yield Step("alloc", "masked rows", call.out.numel() // max(call.out.shape[-1], 1))
    yield Step("alloc", "zero", call.out.element_size())


@program(_aten._scaled_dot_product_efficient_attention.default)
def _efficient_attention(call: Call) -> Iterator[Step]:
    # attention.cu, _efficient_attention_forward; the state of the random numbers is on the host if there is dropout
    where: Literal["host", "out"] = "host" if call.arg(5, "dropout_p", 0.0) else "out"
    for index, kind in (("2", where), ("3", where), ("0", "out"), ("1", "out")):
        yield Step("host" if kind == "host" else "out", index)
    value = call.args[2]
    if value.element_size() == 2 and value.shape[-1] > 128:
        yield Step("alloc", "sums in float32", nbytes(call.out[0], 4))


@program(_aten._scaled_dot_product_efficient_attention_backward.default)
def _efficient_attention_backward(call: Call) -> Iterator[Step]:
    # attention_backward.cu, _efficient_attention_backward, and kernel_backward.h for tiles and the workspace
    grad, query, key, value = call.args[:4]
    if not grad.transpose(1, 2).is_contiguous():
        yield Step("alloc", "gradient", nbytes(grad))
    for index in range(3):
        yield Step("out", str(index))
    if call.out[3] is not None:
        yield Step("out", "3")
    batch, heads, rows = query.shape[:3]
    if key.shape[1] != heads:  # keys shared by heads: gradients per head first
        yield Step("alloc", "keys per head", nbytes(key) // key.shape[1] * heads)
        yield Step("alloc", "values per head", nbytes(value) // value.shape[1] * heads)
    sums = 4 * batch * heads * rows
    if query.element_size() == 2:
        yield Step("alloc", "delta", sums)
    else:
        yield Step("alloc", "products", nbytes(grad))
        yield Step("alloc", "sums", sums)
        yield Step("alloc", "delta", sums)
        yield Step("free", "sums")
        yield Step("free", "products")
    yield Step("alloc", "workspace", batch * heads * _attention_workspace(call.card, query, key, value))
    yield Step("free", "delta")


def _attention_workspace(card: Card, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
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
    yield Step("out", "0")
    yield Step("out", "1")
    query, key = call.args[:2]
    if not call.arg(3, "dropout_p", 0.0):
        splits = _key_splits(call, query, key)
        batch, heads, rows, width = query.shape
        if splits > 1:  # parts of the result, from parts of the keys
            yield Step("alloc", "parts of log-sum-exp", 4 * splits * batch * heads * rows)
            yield Step("alloc", "parts of result", 4 * splits * batch * heads * rows * _rounded_width(width))
    else:
        yield Step("alloc", "random", 16)
        yield Step("out", "7")
        yield Step("out", "6")
        yield Step("free", "random")
    for index, given in enumerate(call.out):
        if isinstance(given, torch.Tensor) and index > 1:
            yield Step("out" if given.numel() and index in (6, 7) else "host", str(index))
    yield Step("free", "parts of log-sum-exp")
    yield Step("free", "parts of result")


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
    if not grad.transpose(1, 2).is_contiguous():
        yield Step("alloc", "gradient", nbytes(grad))
    if not out.transpose(1, 2).is_contiguous():
        yield Step("alloc", "result", nbytes(out))
    for index in range(3):
        yield Step("out", str(index))
    batch, heads, rows, width = query.shape
    rows, width = -(-rows // 128) * 128, _rounded_width(width)
    yield Step("alloc", "softmax", 4 * batch * heads * rows)
    yield Step("alloc", "query in float32", 4 * batch * heads * rows * width)
    if key.shape[1] != heads:
        yield Step("alloc", "keys per head", nbytes(key) // key.shape[1] * heads)
        yield Step("alloc", "values per head", nbytes(value) // value.shape[1] * heads)


@program(_aten.native_dropout.default)
def _dropout(call: Call) -> Iterator[Step]:
    # Dropout.cu: the mask comes first
    yield Step("out", "1")
    yield Step("out", "0")


@program(_aten._thnn_fused_lstm_cell.default)
def _lstm_cell(call: Call) -> Iterator[Step]:
    # RNN.cu: the gates' workspace comes first
    for index in (2, 0, 1):
        yield Step("out", str(index))


@program(_aten._thnn_fused_lstm_cell_backward_impl.default)
def _lstm_cell_backward(call: Call) -> Iterator[Step]:
    for index in range(3):
        if call.out[index] is not None:
            yield Step("out", str(index))
    if call.out[2] is not None:
        yield from reduction(call, call.out[0], [0], 4)


@program(_aten._thnn_fused_gru_cell.default)
def _gru_cell(call: Call) -> Iterator[Step]:
    yield Step("out", "1")
    yield Step("out", "0")


@program(_aten._thnn_fused_gru_cell_backward.default)
def _gru_cell_backward(call: Call) -> Iterator[Step]:
    for index in range(3):
        yield Step("out", str(index))
    for gates, bias in ((0, 3), (1, 4)):
        if call.out[bias] is not None:
            yield Step("out", str(bias))
            yield from reduction(call, call.out[gates], [0], 4)


@program(_aten._cudnn_rnn.default)
def _recurrent(call: Call) -> Iterator[Step]:
    # cudnn/RNN.cpp: the input time first; the reserve space is billed beside the allocator (`rnn_values`)
    x, batch_first, dropout, training = (call.args[index] for index in (0, 10, 11, 12))
    if batch_first and not x.transpose(0, 1).is_contiguous():
        yield Step("alloc", "input", nbytes(x))
    if dropout and training:
        yield Step("once", "state of cuDNN's dropout", _DROPOUT_STATE, first=8)
    for index in range(3):
        yield Step("out", str(index))
    if call.args[3] is None:
        yield Step("out", "4")  # weights that are no block are copied into one, which backward needs again


_DROPOUT_STATE = 2 << 20


@program(_aten._cudnn_rnn_backward.default)
def _recurrent_backward(call: Call) -> Iterator[Step]:
    # cudnn/RNN.cpp: gradients that were not asked for begin as zeros; weights' gradients are one block
    x, batch_first = call.args[0], call.args[14]
    states = (("output", call.args[6], call.args[7]), ("state", call.args[4], call.args[8]))
    memory = () if call.args[5] is None else (("memory", call.args[5], call.args[9]),)
    for name, like, grad in (*states, *memory):
        if grad is None:
            yield Step("alloc", f"{name} zeros", nbytes(like))
    copied = batch_first and not x.transpose(0, 1).is_contiguous()
    if copied:
        yield Step("alloc", "input", nbytes(x))
    grad = call.args[7]
    if batch_first and grad is not None and not grad.transpose(0, 1).is_contiguous():
        yield Step("alloc", "output time first", nbytes(grad))
    for index in range(3):
        if call.out[index] is not None:
            yield Step("out", str(index))
    yield Step("free", "output time first")
    yield Step("free", "input")
    if copied:
        yield Step("alloc", "input again", nbytes(x))
    if call.out[3]:
        yield Step("out", "3")


@program(_aten._pack_padded_sequence.default)
def _pack(call: Call) -> Iterator[Step]:
    # PackedSequence.cpp: sequences that end together are cut off together; the parts are then joined
    x, lengths, batch_first = call.args[:3]
    x = x.transpose(0, 1) if batch_first else x
    before, batch = 0, x.shape[1]
    for number, length in enumerate(reversed(lengths.tolist())):
        if length > before:
            part = x[before:length, : batch - number]
            if not part.is_contiguous():
                yield Step("alloc", f"part {number}", nbytes(part))
            before = length
    yield Step("out", "0")
    yield Step("host", "1")
    for number in range(batch):
        yield Step("free", f"part {number}")


@program(_aten._ctc_loss.default)
def _ctc_loss(call: Call) -> Iterator[Step]:
    # LossCTC.cu: lengths of inputs and targets, where targets begin, then what is kept
    for name in ("lengths", "target lengths", "offsets"):
        yield Step("alloc", name, 8 * call.args[0].shape[1])
    yield Step("out", "1")
    yield Step("out", "0")


@program(_aten._ctc_loss_backward.default)
def _ctc_loss_backward(call: Call) -> Iterator[Step]:
    for name in ("lengths", "target lengths", "offsets"):
        yield Step("alloc", name, 8 * call.args[1].shape[1])
    yield Step("alloc", "log of beta", nbytes(call.args[6]))
    yield Step("out")
    yield Step("free", "log of beta")


def rnn_values(args: Any) -> int:
    """Return the bytes of one value per time step, sample, layer and direction, of recurrent layers in training."""
    x, hx = args[0], args[4]
    samples = math.prod(x.shape[:-1])  # packed sequences have one axis for both
    return x.element_size() * samples * hx.shape[0] * hx.shape[-1] if args[12] else 0


# -- shapes that the meta device does not know -----------------------------------------------------------------------


def _lstm_cell_shapes(gates: Any, hidden: Any, memory: Any, *bias: Any) -> Any:
    like = memory.new_empty
    return like(memory.shape), like(memory.shape), like(gates.shape)


def _lstm_cell_backward_shapes(grad: Any, grad_memory: Any, memory: Any, after: Any, gates: Any, bias: bool) -> Any:
    return (
        gates.new_empty(gates.shape),
        memory.new_empty(memory.shape),
        gates.new_empty(gates.shape[1:]) if bias else None,
    )


def _gru_cell_shapes(gates: Any, hidden: Any, state: Any, *bias: Any) -> Any:
    return state.new_empty(state.shape), state.new_empty((state.shape[0], 5 * state.shape[1]))


def _gru_cell_backward_shapes(grad: Any, workspace: Any, bias: bool) -> Any:
    rows, width = grad.shape
    gates = [grad.new_empty((rows, 3 * width)) for _ in range(2)]
    return (*gates, grad.new_empty((rows, width)), *(grad.new_empty(3 * width) if bias else None for _ in range(2)))


def _recurrent_shapes(
    x: Any, weights: Any, per_layer: int, block: Any, hx: Any, cx: Any, mode: int, hidden: int, projected: int,
    layers: int, batch_first: bool, dropout: float, train: bool, bidirectional: bool, *rest: Any,
) -> Any:  # fmt: skip
    steps = (x.shape[1], x.shape[0]) if batch_first else x.shape[:-1]
    output = x.new_empty((*steps, hidden * (2 if bidirectional else 1)))
    state, memory = hx.new_empty(hx.shape), hx.new_empty(0) if cx is None else cx.new_empty(cx.shape)
    if block is None:
        block = x.new_empty(sum(weight.numel() for weight in weights))
    return output.transpose(0, 1) if batch_first else output, state, memory, x.new_empty(0), block.detach()


def _recurrent_backward_shapes(x: Any, weights: Any, per_layer: int, block: Any, hx: Any, cx: Any, *rest: Any) -> Any:
    batch_first, mask = rest[8], rest[-1]
    shape = (x.shape[1], x.shape[0], x.shape[2]) if batch_first else x.shape
    grad = x.new_empty(shape)
    joined, place, parts = x.new_empty(sum(weight.numel() for weight in weights)), 0, []
    for weight in weights if mask[3] else ():
        parts.append(joined[place : place + weight.numel()].view(weight.shape))
        place += weight.numel()
    memory = None if cx is None else cx.new_empty(cx.shape)
    return grad.transpose(0, 1) if batch_first else grad, hx.new_empty(hx.shape), memory, parts


def _ctc_loss_shapes(log_probs: Any, targets: Any, lengths: Any, target_lengths: Any, *rest: Any) -> Any:
    steps, batch = log_probs.shape[:2]
    longest = max(target_lengths, default=0)
    return log_probs.new_empty((batch,)), log_probs.new_empty((batch, steps, 2 * longest + 1))


def _ctc_loss_backward_shapes(grad: Any, log_probs: Any, *rest: Any) -> Any:
    return log_probs.new_empty(log_probs.shape)


def _like_first(first: Any, *rest: Any, **options: Any) -> Any:
    return torch.empty_like(first)


def _batch_norm_backward_shapes(grad: Any, x: Any, *rest: Any) -> Any:
    found = _aten.native_batch_norm_backward.default(grad, x, *rest)
    return (None if found[0] is None else torch.empty_like(x), *found[1:])  # the meta kernel forgets the layout


def _shared_keys_shapes(grad: Any, query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> Any:
    found = _aten._scaled_dot_product_efficient_attention_backward.default(grad, query, key, value, *rest, **options)
    if query.shape[1] == key.shape[1]:
        return found
    return found[0], torch.empty_like(key), torch.empty_like(value), found[3]


def _in_place(*args: Any, **options: Any) -> None:
    return None


SHAPES: dict[Any, Callable[..., Any]] = {
    _aten._ctc_loss.default: _ctc_loss_shapes,
    _aten._ctc_loss_backward.default: _ctc_loss_backward_shapes,
    _aten._sample_dirichlet.default: _like_first,
    _aten._standard_gamma.default: _like_first,
    _aten._scaled_dot_product_efficient_attention_backward.default: _shared_keys_shapes,
    _aten._fused_sgd_.default: _in_place,
    _aten._fused_sgd_.tensor_lr: _in_place,
    _aten.native_batch_norm_backward.default: _batch_norm_backward_shapes,
    _aten._thnn_fused_lstm_cell.default: _lstm_cell_shapes,
    _aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_cell_backward_shapes,
    _aten._thnn_fused_gru_cell.default: _gru_cell_shapes,
    _aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward_shapes,
    _aten._cudnn_rnn.default: _recurrent_shapes,
    _aten._cudnn_rnn_backward.default: _recurrent_backward_shapes,
}
