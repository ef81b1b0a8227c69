"""What CUDA operators allocate inside: the one table of operator -> scratch, each with its reason.

An operator that is one call in Python may allocate and free on the device before it returns. A program is a generator
that says, in order, what is allocated (`alloc`), freed (`free`), and where the visible result comes (`out`); results it
does not place come last, scratch it does not free is freed then, the last first. Found by comparing recorded request
sequences of real runs (torch 2.14.1, CUDA 13, 2026-11) with the sequences followed here, and read off
aten/src/ATen/native.
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


# -- shapes that the meta device does not know -----------------------------------------------------------------------


def _like_first(first: Any, *rest: Any, **options: Any) -> Any:
    return torch.empty_like(first)


def _in_place(*args: Any, **options: Any) -> None:
    return None


SHAPES: dict[Any, Callable[..., Any]] = {
    _aten._sample_dirichlet.default: _like_first,
    _aten._standard_gamma.default: _like_first,
    _aten._fused_sgd_.default: _in_place,
    _aten._fused_sgd_.tensor_lr: _in_place,
}
