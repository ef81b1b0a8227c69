"""Tensors with shapes and storages but no bytes, and where an operator on them differs from one on a GPU.

Tensors on the `meta` device go through the real autograd engine, optimizers and library code as a GPU's would. Meta
tensors rather than FakeTensors: they are ordinary C++ tensors without a Python layer of their own, the type checks of
optimizers see plain Parameters, and Python references do not prolong lives.

The autograd engine adds gradients in place on a GPU but out of place under any dispatch mode (`kept_in_place`). Most
meta kernels are written in Python and slow, and an update repeats the same operators: what one returned is made anew
from a recipe (`recipe_of`, `follow`).

Known limitations: no custom CUDA extensions; what Inductor compiles runs as written.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch

DEVICE = torch.device("meta")
is_meta: Any = torch._C.TensorBase.is_meta.__get__  # type: ignore[attr-defined]  # whatever a tensor shows
_wrapped: Any = torch._C._functorch.is_functorch_wrapped_tensor


def storage_key(tensor: torch.Tensor) -> int:
    """Return what tells storages apart, also of what functorch has wrapped; 0 of a tensor that has none."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except NotImplementedError:
        return storage_key(torch._C._functorch.get_unwrapped(tensor)) if _wrapped(tensor) else 0


_aten = torch.ops.aten

ASK = "ask"  # this call's result cannot be made without the operator
_FIRST = "first"  # the result is the first argument, written to in place


_PLAIN = (bool, int, float, str, torch.dtype, torch.device, torch.memory_format, torch.layout, torch._ops.OpOverload)


def recipe_of(args: Any, kwargs: Any, out: Any) -> Any:
    given = {t.untyped_storage()._cdata for t in tensors_in((*args, *kwargs.values()))}
    if out is None:
        return None
    if args and out is args[0]:
        return _FIRST
    single = isinstance(out, torch.Tensor)
    if not single and not isinstance(out, (list, tuple)):
        return ASK
    parts: list[tuple[Any, Any, torch.dtype] | None] = []
    for each in [out] if single else out:
        if each is None:
            parts.append(None)
        elif not isinstance(each, torch.Tensor) or not is_meta(each) or each.storage_offset():
            return ASK
        else:
            reach = 1 + sum((n - 1) * step for n, step in zip(each.shape, each.stride())) if each.numel() else 0
            storage = each.untyped_storage()
            if storage._cdata in given or storage.nbytes() != reach * each.element_size():
                return ASK  # a view, or a result with a larger storage
            parts.append((tuple(each.shape), each.stride(), each.dtype))
    return (single, type(out) is list, parts)


def follow(recipe: Any, args: Any) -> Any:
    if recipe is None:
        return None
    if recipe is _FIRST:
        return args[0]
    single, as_list, parts = recipe
    made = [None if p is None else torch.empty_strided(p[0], p[1], dtype=p[2], device=DEVICE) for p in parts]
    return made[0] if single else made if as_list else tuple(made)


def tensors_in(out: Any) -> Iterator[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        yield out
    elif isinstance(out, (list, tuple)):
        for each in out:
            yield from tensors_in(each)


# Backward formulas that write into a fresh tensor on a card, and out of place when a dispatch mode is active
# (`areAnyTensorSubclassLike` in torch/csrc/autograd/FunctionsManual.cpp): operator -> may the first argument be kept?
OUT_OF_PLACE = {
    _aten.scatter.src, _aten.scatter.value, _aten.scatter_add.default, _aten.index_put.default,
    _aten.masked_fill.Scalar, _aten.index_add.default, _aten.masked_scatter.default,
}  # fmt: skip


def kept_in_place(func: Any, args: Any) -> torch.Tensor | None:
    """Return the argument a card would have written into, None where it allocates a result as seen here."""
    # InputBuffer.cpp, accumulate(): into the gradient that came first, if nothing else holds it and it is dense
    if torch.is_grad_enabled():  # backward(create_graph=True): what is written into could not be differentiated
        return None
    current = torch._C._current_autograd_node()
    node = "" if current is None else str(current.name())
    if node == "MaskedFillBackward0":
        return None
    if node == "IndexBackward0" and func is _aten.index_put.default:
        zeros: torch.Tensor = args[0]
        return zeros
    accumulates = func is _aten.add.Tensor and isinstance(args[1], torch.Tensor) and args[0].shape == args[1].shape
    if (accumulates or func in OUT_OF_PLACE) and _unshared(args[0]):
        kept: torch.Tensor = args[0]  # not before: a name of ours is a reference more
        return kept
    return None


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether elements lie together without gaps, in whatever order (TensorImpl.cpp)."""
    expected = 1
    for stride, size in sorted(pair for pair in zip(tensor.stride(), tensor.shape) if pair[1] != 1):
        if size == 0:
            return True
        if stride != expected:
            return False
        expected *= size
    return True


# References seen from inside a dispatch mode on a tensor (and on its storage) that only the engine holds; a test
# holds these against the installed torch.
_ENGINE_ONLY_TENSOR_REFS = 4
_ENGINE_ONLY_STORAGE_REFS = 2


# torch 2.3 does not count a tensor's own references; its storage's then decide
_count_uses: Any = getattr(torch.Tensor, "_use_count", lambda tensor: 0)


def _unshared(tensor: torch.Tensor) -> bool:
    return (
        is_meta(tensor)
        and _count_uses(tensor) <= _ENGINE_ONLY_TENSOR_REFS
        and torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) <= _ENGINE_ONLY_STORAGE_REFS
        and is_dense(tensor)
    )


@contextmanager
def foreach_as_on_cuda() -> Iterator[None]:
    """Let gradient clipping and optimizers choose their multi-tensor form as they do for parameters on a card."""

    def with_meta(original: Any) -> Any:
        @functools.wraps(original)
        def supported(*args: Any, **kwargs: Any) -> list[str]:
            return ["cuda", *original(*args, **kwargs), "meta"]

        return supported

    # torch.optim shadows its own submodule `optimizer`, hence by name
    modules: list[Any] = [torch.utils._foreach_utils]
    modules += [module for name, module in list(sys.modules.items()) if name.startswith("torch.optim.")]
    with ExitStack() as stack:
        for module in modules:
            for name in (name for name in _SUPPORTED if hasattr(module, name)):
                stack.enter_context(mock.patch.object(module, name, with_meta(getattr(module, name))))
        yield


# functions that say where optimizers may run as one kernel: over lists of tensors, fused, or in a graph
_SUPPORTED = (
    "_get_foreach_kernels_supported_devices",
    "_get_fused_kernels_supported_devices",
    "_get_capturable_supported_devices",
)  # fmt: skip


# -- what the arguments of an operator say: whether a card is concerned, and what the result's shape depends on ------

# the value of a number sets these operators' shapes; others' shapes depend on whole numbers at most
NUMBERS_MATTER = {
    overload
    for packet in (
        *(_aten.arange, _aten.range, _aten.linspace, _aten.logspace),
        *(getattr(_aten, name) for name in dir(_aten) if "upsample" in name or "interpolate" in name),
    )
    for overload in (getattr(packet, name) for name in packet.overloads())
}


def describe(values: Any, key: list[Any], numbers: bool) -> bool:
    """Add what result shapes depend on to a key; False where that cannot be told."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if not is_meta(value):
                return False  # values on the host may matter
            key += (value.shape, value.stride(), value.dtype)
        elif isinstance(value, float) and not numbers:
            key.append(value == 0.0)  # attention without dropout takes other scratch
        elif isinstance(value, (list, tuple)):
            key.append(len(value))
            if not describe(value, key, numbers):
                return False
        elif isinstance(value, _PLAIN):
            key.append(value)
            key.append(type(value))
        elif value is not None:
            return False
        else:
            key.append(None)
    return True


def zeros(value: Any) -> Any:
    """Return arguments with zeros on the host in the place of card tensors."""
    if isinstance(value, torch.Tensor):
        return unwritten(value.shape, value.dtype) if is_meta(value) else value
    if isinstance(value, dict):
        return {name: zeros(each) for name, each in value.items()}
    return type(value)(zeros(each) for each in value) if isinstance(value, (list, tuple)) else value


def hollowed(value: Any) -> Any:
    """Return results on the host as card tensors."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)
    return tuple(hollowed(each) for each in value) if isinstance(value, (list, tuple)) else value


def constants(func: Any, args: Any) -> Any:
    """Return arguments with numbers as tensors where an operator takes these."""
    kinds = [str(each.type) for each in func._schema.arguments]
    return [torch.tensor(x) if k == "Tensor" and type(x) in (int, float, bool) else x for x, k in zip(args, kinds)]


def concerned(args: Any, kwargs: Any) -> bool:
    for value in args:
        if isinstance(value, torch.Tensor):
            if is_meta(value):
                return True
        elif isinstance(value, (list, tuple)) and value and concerned(value, ()):
            return True
    if kwargs:
        for name, value in kwargs.items():
            if name == "device":
                if value is not None and torch.device(value).type in ("cuda", "meta"):
                    return True
            elif isinstance(value, torch.Tensor):
                if is_meta(value):
                    return True
            elif name == "pin_memory" and value:
                return True
    return False


def same_order(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether the elements of two tensors of one shape lie in the same order."""
    return one.shape == other.shape and all(
        a == b for a, b, size in zip(one.stride(), other.stride(), one.shape) if size != 1
    )


def unwritten(shape: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return zeros that take no memory until they are written to."""
    size = torch.empty(0, dtype=dtype).element_size()
    count = int(np.prod(shape)) if len(shape) else 1
    found = torch.from_numpy(np.zeros(count * size, dtype=np.uint8))
    return found.view(dtype).view(tuple(shape))
