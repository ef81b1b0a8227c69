"""What CUDA operators allocate inside: the one table of operator -> scratch, each with its reason.

An operator that is one call in Python may allocate and free on the device before it returns. A program is a generator
that says, in order, what is allocated (`alloc`), freed (`free`), and where the visible result comes (`out`); results it
does not place come last, scratch it does not free is freed then, the last first. `scratch` writes such a sequence down:
a name with its size is allocated, a name alone is freed. Found by comparing recorded request
sequences of real runs (torch 2.14.1, CUDA 13, 2026-11) with the sequences followed here, and read off
aten/src/ATen/native.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from .cuda_reduce import GpuShape, reduce_scratch

_aten = torch.ops.aten


@dataclass(frozen=True)
class Step:
    """One step of an operator's inside."""

    # `out` places a result, `host` says that one is not on the card, `once` allocates for good, once, `cublas` does so
    # for cuBLAS and the thread, and `benchmark` tries the kernels of a convolution
    kind: Literal["alloc", "free", "out", "host", "once", "cublas", "benchmark"]
    name: str = "0"  # tells scratch blocks apart; for `out` and `host` the index of the result
    nbytes: int = 0  # for `out`, the size of its storage where that is larger than the result
    first: int = 0  # for `once`, what is taken and freed before


@dataclass(frozen=True)
class Call:
    """One call of an operator, as its program sees it."""

    args: Any
    kwargs: Any
    out: Any
    card: GpuShape

    def arg(self, index: int, name: str, default: Any = None) -> Any:
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)


Program = Callable[[Call], Iterator[Step]]

# Operators that call cuBLAS and so need its workspace.
MATMULS = {
    _aten.addmm.default, _aten.baddbmm.default, _aten.mv.default,
    _aten.addmv.default, _aten.addbmm.default, _aten.dot.default, _aten._addmm_activation.default,
}  # fmt: skip

PROGRAMS: dict[Any, Program] = {}
SHAPES: dict[Any, Callable[..., Any]] = {}  # of results that the meta device does not know


def _registering(table: dict[Any, Any]) -> Callable[..., Any]:
    def of(*operators: Any) -> Callable[[Any], Any]:
        def register(found: Any) -> Any:
            table.update(dict.fromkeys(operators, found))
            return found

        return register

    return of


program, shapes = _registering(PROGRAMS), _registering(SHAPES)


def nbytes(tensor: torch.Tensor, itemsize: int | None = None) -> int:
    return tensor.numel() * (tensor.element_size() if itemsize is None else itemsize)


OUT, CUBLAS = Step("out"), Step("cublas")


def scratch(*steps: Step | tuple[str, int] | str) -> Iterator[Step]:
    """Yield a request for each name with a size; a name alone is freed."""
    for each in steps:
        yield each if isinstance(each, Step) else Step("free", each) if isinstance(each, str) else Step("alloc", *each)


def outs(call: Call, *order: int) -> Iterator[Step]:
    """Yield the places of results, but for those that were not asked for."""
    yield from (Step("out", str(index)) for index in order if call.out[index] is not None)


def contiguous(**operands: torch.Tensor) -> Iterator[Step]:
    """Yield copies of the operands that are not contiguous."""
    yield from (Step("alloc", name, nbytes(each)) for name, each in operands.items() if not each.is_contiguous())


# operators that take nothing, and make their results in another order than they return them
for _operator, _order in {
    _aten.nll_loss2d_forward.default: (1, 0),
    _aten.native_dropout.default: (1, 0),  # Dropout.cu: the mask comes first
    _aten._thnn_fused_lstm_cell.default: (2, 0, 1),  # RNN.cu: the gates' workspace comes first
    _aten._thnn_fused_gru_cell.default: (1, 0),
    # EmbeddingBag.cu, _embedding_bag_cuda: sizes of bags, the bag of every index, the result, where the largest are
    _aten._embedding_bag.default: (2, 1, 0, 3),
    _aten._embedding_bag_forward_only.default: (2, 1, 0, 3),
}.items():
    PROGRAMS[_operator] = lambda call, order=_order: outs(call, *order)  # type: ignore[misc]


def reduction(
    call: Call, tensor: torch.Tensor, dims: Any, accumulator: int, values_per_load: int = 4
) -> Iterator[Step]:
    """Scratch of a reduction that many thread blocks share: partial results and one semaphore per output block."""
    given = dims if isinstance(dims, (list, tuple)) else [dims]
    whole = dims is None or dims == []
    reduced = list(range(tensor.dim())) if whole else [d % max(tensor.dim(), 1) for d in given]
    for partials, semaphores in reduce_scratch(
        tuple(tensor.shape), tensor.stride(), reduced, tensor.element_size(), accumulator, call.card,
        values_per_load=values_per_load,
    ):  # fmt: skip
        yield from scratch(("partials", partials), ("semaphores", semaphores), "semaphores", "partials")


def _reduced(accumulator: int = 0, *, at: int = 1, values_per_load: int = 4, casts: bool = False) -> Program:
    """Return the program of reductions that add up in so many bytes; 0: as the result, but halves in float32.

    Args:
        at: the place of the dimensions among the arguments.
        casts: the input becomes what the result is (ReduceOps.cpp, make_reduction), but for halves.
    """

    def steps(call: Call) -> Iterator[Step]:
        x = call.args[0]
        out = call.out if isinstance(call.out, torch.Tensor) else call.out[0]
        yield from [OUT] if out is call.out else [OUT, Step("out", "1")]
        if casts and x.dtype != out.dtype and not (x.element_size() == 2 and out.dtype == torch.float32):
            yield Step("alloc", "cast", nbytes(x, out.element_size()))
        size = accumulator or max(4, out.element_size())
        yield from reduction(call, x, call.arg(at, "dim"), size, values_per_load)

    return steps


program(
    _aten.sum.dim_IntList, _aten.mean.dim, _aten.amax.default, _aten.amin.default, _aten.sum.default,
    _aten.mean.default, _aten.max.default, _aten.min.default,
)(_reduced(casts=True))  # fmt: skip
program(
    _aten.any.default, _aten.all.default, _aten.any.dim, _aten.all.dim, _aten._is_all_true.default,
    _aten._is_any_true.default,
)(_reduced(1))  # fmt: skip
program(_aten.linalg_vector_norm.default)(_reduced(at=2))
# (value, index) pairs: 4 + 8 bytes, padded to 16
program(_aten.max.dim, _aten.min.dim, _aten.argmax.default, _aten.argmin.default)(_reduced(16))
# WelfordData<float, int32_t>: mean, m2, n, nf; ReduceMomentKernel.cu loads two values at a time
program(_aten.std.correction, _aten.var.correction, _aten.var_mean.correction, _aten.std_mean.correction)(
    _reduced(16, values_per_load=2)
)


@program(_aten.roll.default)
def _roll(call: Call) -> Iterator[Step]:
    # TensorTransformations.cpp, roll_common: one axis after the other; what each gives is kept until the last is done
    x = call.args[0]
    yield from contiguous(copy=x)
    for number in range(1, len(call.arg(2, "dims", ()))):
        yield from scratch((f"{number} axes", nbytes(x)), "copy")
    yield OUT


@program(_aten.cumprod.default)
def _running(call: Call) -> Iterator[Step]:
    # ReduceOps.cpp, impl_func_cum_ops: the input becomes what the result is
    yield OUT
    if call.args[0].dtype != call.out.dtype:
        yield Step("alloc", "cast", nbytes(call.args[0], call.out.element_size()))


@program(_aten.isinf.default)
def _infinite(call: Call) -> Iterator[Step]:
    if call.args[0].dtype.is_floating_point:  # abs(x) == inf
        yield Step("alloc", "magnitude", nbytes(call.args[0]))


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
    yield OUT
    yield from _copies(*call.args[:2])
    yield CUBLAS


@program(_aten.bmm.default)
def _products(call: Call) -> Iterator[Step]:
    if _OUTER_KERNEL and call.args[0].shape[2] == 1 and call.out.numel() and not call.out.is_complex():
        yield Step("out")  # torch/_native/ops/bmm_outer_product, a Triton kernel since torch 2.14
    else:
        yield from _product(call)


_OUTER_KERNEL = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)


@program(_aten.addmm.default, _aten.baddbmm.default, _aten._addmm_activation.default)
def _added_product(call: Call) -> Iterator[Step]:
    yield OUT
    yield from _copies(*call.args[1:3])


@program(_aten.mv.default)
def _product_with_vector(call: Call) -> Iterator[Step]:
    yield OUT
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
    yield from outs(call, *range(len(tensors)))


def _loss(at: int, *, stays: bool = False, copied: bool = False) -> Program:
    """Return the program of a loss whose reduction is its argument `at`.

    Args:
        stays: the result is first an array of all losses, then resized to the one number; its storage stays (Loss.cpp).
        copied: the one number is another tensor and then copied (Loss.cu).
    """

    def steps(call: Call) -> Iterator[Step]:
        x = call.args[0]
        if call.arg(at, "reduction", 1) == 0:
            return
        beside = ("reduced", x.element_size()) if copied else ("losses", nbytes(x))
        yield from scratch(*([Step("out", "0", nbytes(x)), beside] if stays else [beside, OUT]))
        yield from reduction(call, x, None, 4)

    return steps


program(_aten.mse_loss.default, _aten.smooth_l1_loss.default)(_loss(2, stays=True))
program(_aten.binary_cross_entropy.default)(_loss(3, stays=True, copied=True))
program(_aten.huber_loss.default)(_loss(2))


@program(_aten.binary_cross_entropy_with_logits.default)
def _logits_loss(call: Call) -> Iterator[Step]:
    yield Step("alloc", "log of sigmoid", nbytes(call.args[0]))
    if call.arg(4, "reduction", 1) == 0:
        yield OUT
    else:
        yield from scratch(("losses", nbytes(call.args[0])), OUT)
        yield from reduction(call, call.args[0], None, 4)


@program(_aten.log_sigmoid_forward.default)
def _log_sigmoid(call: Call) -> Iterator[Step]:
    yield Step("out", "0")
    yield Step("host", "1")  # a buffer that only the CPU needs


@program(_aten.normal.Tensor_Tensor, _aten.normal.float_Tensor)
def _normal(call: Call) -> Iterator[Step]:
    # DistributionTemplates.h: looks before and after whether a deviation is negative
    for after in ([OUT], []):
        yield Step("alloc", "least", 4)
        yield from reduction(call, call.args[1], None, 4)
        yield from scratch(("negative", 1), "negative", "least", *after)


@program(_aten.logsumexp.default)
def _logsumexp(call: Call) -> Iterator[Step]:
    # ReduceOps.cpp, logsumexp_out_impl: maxima are kept, infinities among them masked, exp(x - max) summed
    x, dims = call.args[0], call.arg(1, "dim")
    size = nbytes(call.out)
    yield Step("alloc", "maxima", size)
    yield from reduction(call, x, dims, 4)
    yield from scratch(("absolute", size), ("infinite", call.out.numel()), "infinite", "absolute")
    yield from scratch(("differences", nbytes(x)), OUT)
    yield from reduction(call, x, dims, 4)


@program(_aten.multinomial.default)
def _multinomial(call: Call) -> Iterator[Step]:
    # Distributions.cpp, multinomial of one sample: checks (finite, not negative, sums above zero), then the exponential
    # trick argmax(p / q) with q drawn for every entry
    given = call.args[0]
    rows = given.numel() // given.shape[-1]
    return scratch(
        OUT, ("max", 4), ("min", 4), ("finite", 1), ("positive", 1), ("valid", 1), "positive", "finite",
        ("sums", 4 * rows), ("zero", rows), ("any zero", 1), "zero", "sums", ("not", 1), "not",
        ("q", nbytes(given)), "q", "any zero", "valid", "max", "min",
    )  # fmt: skip


# -- shapes that the meta device does not know -----------------------------------------------------------------------


@shapes(_aten._sample_dirichlet.default, _aten._standard_gamma.default)
def _like_first(first: Any, *rest: Any, **options: Any) -> Any:
    return torch.empty_like(first)


@shapes(_aten._fused_sgd_.default, _aten._fused_sgd_.tensor_lr)
def _in_place(*args: Any, **options: Any) -> None:
    return None
