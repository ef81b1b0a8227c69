"""What CUDA operators allocate inside: the one table of operator -> scratch, each with its reason.

An operator that is one call in Python may allocate and free on the device before it returns. A program is a generator
that says, in order, what is allocated (`alloc`), freed (`free`), and where the visible result comes (`out`); results it
does not place come last, scratch it does not free is freed then. Found by comparing recorded request sequences of real
runs (torch 2.14.1, CUDA 13, 2026-11) with the sequences followed here, and read off aten/src/ATen/native.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from .cuda_reduce import Card, reduce_scratch

_aten = torch.ops.aten


@dataclass(frozen=True)
class Step:
    """One step of an operator's inside.

    Args:
        name: tells scratch blocks apart; for `out` the index of the result, for `host` that of one on the host.
        nbytes: for `out`, the size of its storage where that is larger than the result.
    """

    kind: Literal["alloc", "free", "out", "host"]
    name: str = "0"
    nbytes: int = 0


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
    _aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default, _aten.mv.default,
    _aten.addmv.default, _aten.addbmm.default, _aten.dot.default, _aten._addmm_activation.default,
}  # fmt: skip

PROGRAMS: dict[Any, Program] = {}


def _program(*operators: Any) -> Callable[[Program], Program]:
    def register(program: Program) -> Program:
        for operator in operators:
            PROGRAMS[operator] = program
        return program

    return register


def nbytes(tensor: torch.Tensor, itemsize: int | None = None) -> int:
    return tensor.numel() * (tensor.element_size() if itemsize is None else itemsize)


def _dims(tensor: torch.Tensor, dims: Any) -> list[int]:
    if dims is None or dims == []:
        return list(range(tensor.dim()))
    return [d % max(tensor.dim(), 1) for d in (dims if isinstance(dims, (list, tuple)) else [dims])]


def _reduction(
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


@_program(_aten.sum.dim_IntList, _aten.mean.dim, _aten.amax.default, _aten.amin.default)
def _sum(call: Call) -> Iterator[Step]:
    yield Step("out")
    yield from _cast_first(call)
    yield from _reduction(call, call.args[0], call.arg(1, "dim"), 4)


@_program(_aten.sum.default, _aten.mean.default, _aten.max.default, _aten.min.default)
def _sum_all(call: Call) -> Iterator[Step]:
    yield Step("out")
    yield from _cast_first(call)
    yield from _reduction(call, call.args[0], None, 4)


def _cast_first(call: Call) -> Iterator[Step]:
    # ReduceOps.cpp, make_reduction: the input becomes what the result is, but for half precision added up in float32
    x, out = call.args[0], call.out
    if x.dtype != out.dtype and not (x.element_size() == 2 and out.dtype == torch.float32):
        yield Step("alloc", "cast", nbytes(x, out.element_size()))


@_program(_aten.max.dim, _aten.min.dim, _aten.argmax.default, _aten.argmin.default)
def _select(call: Call) -> Iterator[Step]:
    # the accumulator is a (value, index) pair: 4 + 8 bytes, padded to 16
    yield Step("out", "0")
    if not isinstance(call.out, torch.Tensor):
        yield Step("out", "1")
    yield from _reduction(call, call.args[0], call.arg(1, "dim"), 16)


@_program(_aten.std.correction, _aten.var.correction)
def _spread(call: Call) -> Iterator[Step]:
    # WelfordData<float, int32_t>: mean, m2, n, nf; ReduceMomentKernel.cu loads two values at a time
    yield Step("out")
    yield from _reduction(call, call.args[0], call.arg(1, "dim"), 16, values_per_load=2)


def conv_format(x: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """Return the layout cuDNN convolves in: channels-last as soon as input or weight have it (ConvUtils.h)."""
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    found = {torch._prims_common.suggest_memory_format(t) for t in (x, weight) if t.dim() in (4, 5)}
    return last if last in found else torch.contiguous_format


@_program(_aten.convolution.default)
def _convolution(call: Call) -> Iterator[Step]:
    # weights are copied into the layout of the convolution where they do not have it
    x, weight = call.args[:2]
    yield Step("out")
    if x.dim() in (4, 5) and not weight.is_contiguous(memory_format=conv_format(x, weight)):
        yield Step("alloc", "weight", nbytes(weight))


@_program(_aten.convolution_backward.default)
def _convolution_backward(call: Call) -> Iterator[Step]:
    # cuDNN computes the gradients of input and weight; the bias gradient is an ordinary sum over batch and space
    grad = call.args[0]
    for index in range(3):
        if call.out[index] is not None:
            yield Step("out", str(index))
    if call.out[2] is not None:
        yield from _reduction(call, grad, [0, *range(2, grad.dim())], 4)


@_program(_aten._foreach_norm.Scalar)
def _foreach_norm(call: Call) -> Iterator[Step]:
    # ForeachReduceOp.cu: one partial norm per tensor and chunk of 65,536 elements, for the largest tensor's chunks
    tensors = call.args[0]
    chunks = max(-(-t.numel() // 65_536) for t in tensors)
    yield Step("alloc", "per chunk", len(tensors) * chunks * 4)
    for index in range(len(tensors)):
        yield Step("out", str(index))


@_program(_aten.mse_loss.default, _aten.smooth_l1_loss.default, _aten.huber_loss.default)
def _elementwise_loss(call: Call) -> Iterator[Step]:
    # Loss.cpp: the result is first an array of all losses, then resized to the one number; its storage stays
    if call.arg(2, "reduction", 1) == 0:
        return
    yield Step("out", "0", nbytes(call.args[0]))
    yield Step("alloc", "losses", nbytes(call.args[0]))


@_program(_aten.logsumexp.default)
def _logsumexp(call: Call) -> Iterator[Step]:
    # ReduceOps.cpp, logsumexp_out_impl: maxima are kept, infinities among them masked, exp(x - max) summed
    x, dims = call.args[0], call.arg(1, "dim")
    size = nbytes(call.out)
    yield Step("alloc", "maxima", size)
    yield from _reduction(call, x, dims, 4)
    yield Step("alloc", "absolute", size)
    yield Step("alloc", "infinite", call.out.numel())
    yield Step("free", "infinite")
    yield Step("free", "absolute")
    yield Step("alloc", "differences", nbytes(x))
    yield Step("out")
    yield from _reduction(call, x, dims, 4)
    yield Step("free", "differences")


@_program(_aten.multinomial.default)
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


@_program(_aten._softmax_backward_data.default)
def _softmax_backward(call: Call) -> Iterator[Step]:
    # SoftMax.cu, softmax_backward_cuda_out: grad * output is computed first; log_softmax needs no such product
    yield Step("out")
    yield Step("alloc", "product", nbytes(call.args[0]))


@_program(_aten._scaled_dot_product_efficient_attention.default)
def _efficient_attention(call: Call) -> Iterator[Step]:
    # attention.cu, _efficient_attention_forward; the state of the random numbers is on the host if there is dropout
    yield Step("out", "0")
    yield Step("out", "1")
    where: Literal["host", "out"] = "host" if call.arg(5, "dropout_p", 0.0) else "out"
    yield Step(where, "2")
    yield Step(where, "3")
    value = call.args[2]
    if value.element_size() == 2 and value.shape[-1] > 128:
        yield Step("alloc", "sums in float32", nbytes(call.out[0], 4))


@_program(_aten._scaled_dot_product_efficient_attention_backward.default)
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
    half = query.element_size() == 2
    if half:
        yield Step("alloc", "delta", 4 * batch * heads * rows)
    else:
        yield Step("alloc", "products", nbytes(grad))
        yield Step("alloc", "sums", 4 * batch * heads * rows)
        yield Step("free", "products")
        yield Step("alloc", "delta", 4 * batch * heads * rows)
        yield Step("free", "sums")
    yield Step("alloc", "workspace", batch * heads * _attention_workspace(query, key, value))


def _attention_workspace(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    """Return what the memory-efficient backward takes per head: tiles of the query's gradient, each with a lock."""
    half, width = query.element_size() == 2, max(query.shape[-1], value.shape[-1])
    tile = 128 if width > 64 else 64
    tiles = -(-query.shape[2] // tile) * -(-query.shape[-1] // tile)
    floats = tiles * (4 + tile * tile)
    if half and width > tile:  # gradients of key and value do not stay in registers
        floats += -(-key.shape[2] // 64) * 64 * 2 * -(-width // tile) * tile
    return 4 * (-(-floats // 4) * 4)


@_program(_aten._scaled_dot_product_flash_attention.default)
def _flash_attention(call: Call) -> Iterator[Step]:
    # flash_api.cpp, mha_fwd: result, log-sum-exp, and the state of the random numbers, which is on the card
    yield Step("out", "0")
    yield Step("out", "1")
    for index, given in enumerate(call.out):
        if isinstance(given, torch.Tensor) and index > 1:
            yield Step("out" if given.numel() and index in (6, 7) else "host", str(index))


@_program(_aten._scaled_dot_product_flash_attention_backward.default)
def _flash_attention_backward(call: Call) -> Iterator[Step]:
    # flash_api.cpp, mha_bwd: rows rounded to 128, heads to 32 or 64
    grad, query = call.args[:2]
    if not grad.transpose(1, 2).is_contiguous():
        yield Step("alloc", "gradient", nbytes(grad))
    for index in range(3):
        yield Step("out", str(index))
    batch, heads, rows, width = query.shape
    rows, width = -(-rows // 128) * 128, -(-width // 32) * 32 if width <= 128 else -(-width // 64) * 64
    yield Step("alloc", "softmax", 4 * batch * heads * rows)
    yield Step("alloc", "query in float32", 4 * batch * heads * rows * width)


@_program(_aten.embedding_dense_backward.default)
def _embedding_backward(call: Call) -> Iterator[Step]:
    # Embedding.cu, embedding_dense_backward_cuda, and EmbeddingBackwardKernel.cu: many indices are sorted first
    grad, indices, symbols = call.args[:3]
    number, width = indices.numel(), grad.shape[-1]
    if not grad.is_contiguous():
        yield Step("alloc", "gradient", nbytes(grad))
    if number <= 3072:
        yield Step("out")
        return
    for name in ("sorted", "order", "range"):
        yield Step("alloc", name, 8 * number)
    yield Step("alloc", "sort", radix_sort_bytes(number, 16))
    yield Step("free", "sort")
    yield Step("free", "range")
    yield Step("out")
    yield Step("alloc", "segments", 8 * number)
    yield Step("alloc", "number of segments", 8)
    segments = min(number, symbols)
    yield Step("alloc", "parts per segment", 8 * segments)
    yield Step("alloc", "offsets", 8 * segments)
    yield Step("alloc", "number of parts", 8)
    parts = number // 10 + segments
    yield Step("alloc", "part offsets", 8 * parts)
    yield Step("alloc", "sums of parts", 4 * parts * width)


def radix_sort_bytes(number: int, pair: int) -> int:
    """Return about what cub takes to sort so many keys with their values, each pair of so many bytes: a copy."""
    return number * pair + (-(-number // 4096) + 8) * 1024


@_program(_aten.native_dropout.default)
def _dropout(call: Call) -> Iterator[Step]:
    # Dropout.cu: the mask comes first
    yield Step("out", "1")
    yield Step("out", "0")


@_program(_aten._thnn_fused_lstm_cell.default)
def _lstm_cell(call: Call) -> Iterator[Step]:
    # RNN.cu: the gates' workspace comes first
    for index in (2, 0, 1):
        yield Step("out", str(index))


@_program(_aten._thnn_fused_lstm_cell_backward_impl.default)
def _lstm_cell_backward(call: Call) -> Iterator[Step]:
    for index in range(3):
        if call.out[index] is not None:
            yield Step("out", str(index))
    if call.out[2] is not None:
        yield from _reduction(call, call.out[0], [0], 4)


@_program(_aten._thnn_fused_gru_cell.default)
def _gru_cell(call: Call) -> Iterator[Step]:
    yield Step("out", "1")
    yield Step("out", "0")


@_program(_aten._thnn_fused_gru_cell_backward.default)
def _gru_cell_backward(call: Call) -> Iterator[Step]:
    for index in range(3):
        yield Step("out", str(index))
    for gates, bias in ((0, 3), (1, 4)):
        if call.out[bias] is not None:
            yield Step("out", str(bias))
            yield from _reduction(call, call.out[gates], [0], 4)


@_program(_aten._cudnn_rnn.default)
def _recurrent(call: Call) -> Iterator[Step]:
    # cudnn/RNN.cpp: the input time first; the reserve space is billed beside the allocator (`rnn_values`)
    x, batch_first = call.args[0], call.args[10]
    if batch_first and not x.transpose(0, 1).is_contiguous():
        yield Step("alloc", "input", nbytes(x))
    for index in range(3):
        yield Step("out", str(index))
    if call.args[3] is None:
        yield Step("alloc", "weights", sum(nbytes(weight) for weight in call.args[1]))


@_program(_aten._cudnn_rnn_backward.default)
def _recurrent_backward(call: Call) -> Iterator[Step]:
    # cudnn/RNN.cpp: gradients that nobody asked for begin as zeros; weights' gradients are one block
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


def rnn_values(args: Any) -> int:
    """Return the bytes of one value per time step, sample, layer and direction, of recurrent layers in training."""
    x, hx = args[0], args[4]
    return x.element_size() * x.shape[0] * x.shape[1] * hx.shape[0] * hx.shape[-1] if args[12] else 0


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
    first, second = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    output = x.new_empty((first, second, hidden * (2 if bidirectional else 1)))
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


SHAPES: dict[Any, Callable[..., Any]] = {
    _aten._thnn_fused_lstm_cell.default: _lstm_cell_shapes,
    _aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_cell_backward_shapes,
    _aten._thnn_fused_gru_cell.default: _gru_cell_shapes,
    _aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward_shapes,
    _aten._cudnn_rnn.default: _recurrent_shapes,
    _aten._cudnn_rnn_backward.default: _recurrent_backward_shapes,
}
