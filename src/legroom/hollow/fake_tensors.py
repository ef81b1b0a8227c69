"""Follow every storage of a PyTorch program from birth to death, without memory, data or a GPU.

Tensors on the `meta` device have shapes and storages but no bytes; the real autograd engine, optimizers and library
code run on them as they would on a card. `StorageFollower` sits below autograd (a dispatch mode), sees each operator,
and writes down when a storage is born (an operator returned it) and when it dies (the last reference is gone). The
result is the request sequence a CUDA device's allocator would have seen, in order.

Meta tensors rather than FakeTensors: they are ordinary C++ tensors without a Python layer of their own, the type checks
of optimizers see plain Parameters, and Python references do not prolong lives.

Where the sequence on a card differs from the operators seen here, a mechanism is modelled:
- the autograd engine adds gradients in place on a card but out of place under any dispatch mode (`_kept_in_place`);
- operators allocate scratch inside (`scratch_table.py`);
- cuBLAS takes a workspace at its first use in each thread (`Workspaces`).
Values do not exist; `value_reads` says what those get who ask for one.

Known limitations: one device, one stream; no CUDA graphs or custom CUDA extensions; what Inductor compiles runs as
written.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import sort_scratch as _sort_scratch
from .conv_scratch import CONVOLUTIONS, in_bfloat16, laid_out
from .cuda_reduce import Card
from .op_scratch import Call, Step
from .records import Event, Values
from .recurrent_scratch import rnn_values
from .scratch_table import MATMULS, PROGRAMS, SHAPES
from .value_reads import ValueReads

DEVICE = torch.device("meta")
is_meta: Any = torch._C.TensorBase.is_meta.__get__  # type: ignore[attr-defined]  # whatever a tensor shows
_wrapped: Any = torch._C._functorch.is_functorch_wrapped_tensor


def storage_key(tensor: torch.Tensor) -> int:
    """Return what tells storages apart; that of the values of a sparse tensor, and of what functorch has wrapped."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except NotImplementedError:
        if _wrapped(tensor):
            return storage_key(torch._C._functorch.get_unwrapped(tensor))
        if tensor.layout is not torch.sparse_coo:
            return 0
        with torch._C._DisableTorchDispatch():
            return storage_key(tensor._values())


_aten = torch.ops.aten
_OWN_OPERATORS = {"aten", "prims", "prim", "profiler", "inductor"}  # torch's namespaces


@dataclass(frozen=True)
class Workspaces:
    """cuBLAS scratch of one card: taken after the outputs of the first matrix product of a thread, never given back."""

    cublas: int = Card().cublas
    card: Card = field(default_factory=Card)


class StorageFollower(TorchDispatchMode):
    """Records the births and deaths of device storages while it is entered.

    Args:
        workspaces: cuBLAS sizes of the card; None for a CPU, which has none and no operator scratch modelled either.
        trusted: folders of library code whose questions for values are answered.
        values: what others get who ask for some.
        searching: those of the trusted that ask whether they may stop; the answer is no.
        computing: a `RealValues`, which knows what others read.
    """

    def __init__(
        self,
        workspaces: Workspaces | None,
        trusted: tuple[str, ...],
        *,
        values: Values = "refuse",
        searching: tuple[str, ...] = (),
        computing: Any = None,
    ) -> None:
        super().__init__()
        self.workspaces = workspaces
        self._card = Card() if workspaces is None else workspaces.card
        self.events: list[Event] = []
        self.labels: dict[int, str] = {}
        self.sizes: dict[int, int] = {}
        self.recording = False
        self.live: dict[int, int] = {}  # storage address -> id
        self.reads = ValueReads(values, trusted, searching, computing)
        self._computing = computing
        self.unmodelled: dict[str, int] = {}  # operator -> bytes that it may need beyond what is written down
        self._refs: dict[int, Any] = {}
        self._elsewhere: dict[int, Any] = {}  # storages that a card does not have, or has on the host
        self._next = 0
        self._warm: set[str] = set()
        self._in_backward = False
        self._recipes: dict[Any, Any] = {}
        self.convolution = self.convolution_axes = 0
        self.convolved_bfloat16 = False  # so that the kernel depends on what cuDNN does there
        self.rnn_values = self._rnn_values = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise every operator goes through torch._dynamo's wrapper

    # -- what is written down ------------------------------------------------------------------------------------

    def adopt(self, tensor: torch.Tensor, label: str) -> None:
        """Count a tensor's storage as allocated on the device now (a copy from the host), unless it already is."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.live and storage._cdata not in self._elsewhere:
            self.born(storage, label)

    def relabel(self, tensor: torch.Tensor, label: str) -> None:
        """Say what a live storage turned out to be."""
        found = self.live.get(tensor.untyped_storage()._cdata)
        if found is not None:
            self.labels[found] = label

    def alloc(self, nbytes: int, label: str) -> int:
        """Write down an allocation that is no storage (scratch, workspace) and return its id."""
        number = self._next
        self._next += 1
        self.events.append(("alloc", number, nbytes))
        self.labels[number], self.sizes[number] = label, nbytes
        return number

    def free(self, number: int) -> None:
        self.events.append(("free", number))

    def born(self, storage: torch.UntypedStorage, label: str, nbytes: int = 0) -> None:
        nbytes = nbytes or storage.nbytes()
        if nbytes == 0:
            return
        key, number = storage._cdata, self.alloc(nbytes, label)
        self.live[key] = number

        def died(_: Any, key: int = key, number: int = number) -> None:
            # a storage's Python object lives as long as the storage itself
            del self.live[key], self._refs[key]
            self.events.append(("free", number))

        self._refs[key] = weakref.ref(storage, died)

    # -- what operators do ---------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = self._run(func, args, kwargs)
        if self._computing is not None:
            self._computing.follow(func, args, kwargs, out)
        return out

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func is _aten._local_scalar_dense.default and args[0].device.type == "meta":
            return self.reads.number(args[0])
        if func is _aten._to_copy.default and args[0].device.type == "meta":
            target = kwargs.get("device")
            if target is not None and torch.device(target).type == "cpu":
                return self.reads.array(args[0], kwargs.get("dtype") or args[0].dtype)
        if func in _SCALING:
            return args[0] if func is _aten._amp_update_scale_.default else None
        if not self.recording:
            return func(*args, **kwargs)
        backward = torch._C._current_graph_task_id() != -1
        if backward:
            self._enter_backward()
            kept = _kept_in_place(func, args)
            if kept is not None:
                if func is _aten.index_put.default and self.workspaces is not None:
                    self._run_program(PROGRAMS[func](Call(args, kwargs, kept, self.workspaces.card)), kept, [])
                return kept
        else:
            self._in_backward = False
        for given in args:
            # torch.tensor(number, device=...) makes its tensor behind the dispatcher's back: seen when first used
            if isinstance(given, torch.Tensor) and given.device.type == "meta":
                self.adopt(given, "temporaries")
        if func is _aten.index.Tensor and any(_is_mask(index) for index in args[1]):
            args = (args[0], self._where(args[1]))
        out = self._shapes(func, args, kwargs)
        births = [t for t in _tensors(out) if t.device.type == "meta" and t.untyped_storage()._cdata not in self.live]
        label = "temporaries"
        if func is _aten._to_copy.default and args[0].device.type == "cpu":
            label = "batch"
        program = PROGRAMS.get(func) if self.workspaces is not None else None
        if program is None:
            for tensor in births:
                if tensor.untyped_storage()._cdata not in self.live:
                    self.born(tensor.untyped_storage(), label)
        elif self.workspaces is not None:
            self._run_program(program(Call(args, kwargs, out, self.workspaces.card)), out, births)
        if func is _aten._cudnn_rnn.default:
            self._rnn_values += rnn_values(args)
            self.rnn_values = max(self.rnn_values, self._rnn_values)
        if func in MATMULS and self.workspaces is not None:
            self._warm_up(self._thread())
        self.reads.made(func, out)
        if func.namespace not in _OWN_OPERATORS:
            self._doubt(func, (*args, *kwargs.values(), out))
        return out

    def _where(self, indices: Any) -> list[Any]:
        """Return indices with masks replaced by the positions that they choose: all of them, for want of values.

        Raises:
            ValueRefused: code asks that may not.
        """
        found: list[Any] = []
        for index in indices:
            if not _is_mask(index):
                found.append(index)
                continue
            places = self.reads.mask(index)
            count = index.numel() if places is None else len(places)
            for axis in range(index.dim()):
                found.append(torch.empty(count, dtype=torch.int64, device=DEVICE))
                if places is not None:
                    self._computing.give(found[-1], places[:, axis])
            if self.workspaces is not None:
                steps = _sort_scratch.nonzero_steps(index.numel(), self.workspaces.card)
                self._run_program(steps, found[-1], [])
            self.born(found[-1].untyped_storage(), "temporaries", 8 * count * index.dim())
        return found

    def _doubt(self, func: Any, tensors: Any) -> None:
        """Note an operator of an extension: it may take as much scratch as all that goes in and comes out."""
        nbytes = sum(t.numel() * t.element_size() for t in _tensors(tensors))
        self.unmodelled[str(func)] = max(self.unmodelled.get(str(func), 0), nbytes)

    def _shapes(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run the operator on shapes; what it returned last time for the same shapes is made anew without asking.

        Most meta kernels are written in Python and slow, and an update repeats the same operators.
        """
        if func.__name__.startswith("_foreach_") and func._schema.is_mutable and all(map(is_meta, args[0])):
            return None  # writes in place; its scalars differ from step to step
        key = _key((func, args, tuple(sorted(kwargs.items()))) if kwargs else (func, args))
        ask = SHAPES.get(func, func)
        if key is None:
            return ask(*args, **kwargs)
        recipe = self._recipes.get(key, _UNKNOWN)  # None is one: of operators that return nothing
        if recipe is _UNKNOWN:
            out = ask(*args, **kwargs)
            if func in CONVOLUTIONS:
                out = laid_out(func, args, out, self._card)
            if func is _aten.convolution.default:
                self.convolved_bfloat16 |= in_bfloat16(*args[:2])
                size = sum(t.numel() * t.element_size() for t in (*args[:2], out))
                self.convolution, self.convolution_axes = max(
                    (self.convolution, self.convolution_axes), (size, out.dim() - 2)
                )
            unchanged = (
                not args or out is not args[0] or _key(out) == key[1][0]
            )  # unsqueeze_ and its like change shapes
            self._recipes[key] = _recipe(args, kwargs, out) if unchanged else _ASK
            return out
        return ask(*args, **kwargs) if recipe is _ASK else _follow(recipe, args)

    def _run_program(self, steps: Iterator[Step], out: Any, births: list[torch.Tensor]) -> None:
        held: dict[str, int] = {}
        waiting = list(births)
        for step in steps:
            if step.kind == "alloc":
                if step.nbytes:
                    held[step.name] = self.alloc(step.nbytes, "temporaries")
            elif step.kind == "free":
                if step.name in held:
                    self.free(held.pop(step.name))
            elif step.kind == "once":
                self._take_once(step.name, step.nbytes, step.first)
            elif step.kind == "cublas":
                self._warm_up(self._thread())
            elif step.kind != "benchmark":  # off, unless a program turns it on
                result = out if isinstance(out, torch.Tensor) else out[int(step.name)]
                tensor = result[0] if isinstance(result, list) else result
                if any(tensor is t for t in waiting):
                    waiting = [t for t in waiting if t is not tensor]
                    self._place(tensor, step)
        for number in reversed(held.values()):
            self.free(number)
        for tensor in waiting:
            self._place(tensor, _PLACED)

    def _place(self, tensor: torch.Tensor, step: Step) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata in self.live or storage._cdata in self._elsewhere:
            return
        if step.kind == "host":
            self._put_elsewhere(storage)
        else:
            self.born(storage, "temporaries", step.nbytes)

    def _put_elsewhere(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        self._elsewhere[key] = weakref.ref(storage, lambda _: self._elsewhere.pop(key, None))

    def _take_once(self, name: str, nbytes: int, first: int = 0) -> None:
        if name not in self._warm:
            self._warm.add(name)
            if first:
                self.free(self.alloc(first, "temporaries"))
            self.alloc(nbytes, "workspace")

    def _warm_up(self, thread: str) -> None:
        # The autograd engine runs CUDA's backward in a thread of its own, with its own cuBLAS handle and workspace.
        if self.workspaces is not None:
            self._take_once(thread, self.workspaces.cublas)

    def _thread(self) -> str:
        return "main" if torch._C._current_graph_task_id() == -1 else "backward"

    def _enter_backward(self) -> None:
        if not self._in_backward:
            self._in_backward = True
            self._rnn_values = 0
            for number in self.live.values():
                if self.labels[number] == "temporaries":
                    self.labels[number] = "activations"  # alive when backward starts: kept for it


# of GradScaler: they write in place, and the meta device has no kernels for them
_SCALING = {_aten._amp_foreach_non_finite_check_and_unscale_.default, _aten._amp_update_scale_.default}

_PLACED = Step("out")
_UNKNOWN = "unknown"
_ASK = "ask"  # this call's result cannot be made without the operator
_FIRST = "first"  # the result is the first argument, written to in place


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def _key(value: Any) -> Any:
    """Return what an operator's result shapes depend on, hashable; None where that cannot be told."""
    if isinstance(value, torch.Tensor):
        if not is_meta(value):
            return None  # values on the host may matter
        return (tuple(value.shape), value.stride(), value.dtype, value.storage_offset())
    if isinstance(value, (list, tuple)):
        keys = tuple(_key(each) for each in value)
        return None if None in keys else keys
    if value is None:
        return "none"
    return (type(value), value) if isinstance(value, _PLAIN) else None


_PLAIN = (bool, int, float, str, torch.dtype, torch.device, torch.memory_format, torch.layout, torch._ops.OpOverload)


def _recipe(args: Any, kwargs: Any, out: Any) -> Any:
    given = {t.untyped_storage()._cdata for t in _tensors((*args, *kwargs.values()))}
    if out is None:
        return None
    if args and out is args[0]:
        return _FIRST
    single = isinstance(out, torch.Tensor)
    if not single and not isinstance(out, (list, tuple)):
        return _ASK
    parts: list[tuple[Any, Any, torch.dtype] | None] = []
    for each in [out] if single else out:
        if each is None:
            parts.append(None)
        elif not isinstance(each, torch.Tensor) or not is_meta(each) or each.storage_offset():
            return _ASK
        elif each.untyped_storage()._cdata in given or each.untyped_storage().nbytes() != _dense_bytes(each):
            return _ASK  # a view, or a result with a larger storage
        else:
            parts.append((tuple(each.shape), each.stride(), each.dtype))
    return (single, type(out) is list, parts)


def _dense_bytes(tensor: torch.Tensor) -> int:
    reach = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    return 0 if tensor.numel() == 0 else reach * tensor.element_size()


def _follow(recipe: Any, args: Any) -> Any:
    if recipe is None:
        return None
    if recipe is _FIRST:
        return args[0]
    single, as_list, parts = recipe
    made = [None if p is None else torch.empty_strided(p[0], p[1], dtype=p[2], device=DEVICE) for p in parts]
    return made[0] if single else made if as_list else tuple(made)


def _tensors(out: Any) -> Iterator[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        yield out
    elif isinstance(out, (list, tuple)):
        for each in out:
            yield from _tensors(each)


# Backward formulas that write into a fresh tensor on a card, and out of place when a dispatch mode is active
# (`areAnyTensorSubclassLike` in torch/csrc/autograd/FunctionsManual.cpp): operator -> may the first argument be kept?
_OUT_OF_PLACE = {
    _aten.scatter.src, _aten.scatter.value, _aten.scatter_add.default, _aten.index_put.default,
    _aten.masked_fill.Scalar, _aten.index_add.default, _aten.masked_scatter.default,
}  # fmt: skip


def _kept_in_place(func: Any, args: Any) -> torch.Tensor | None:
    """Return the argument a card would have written into, None where it allocates a result as seen here."""
    # InputBuffer.cpp, accumulate(): into the gradient that came first, if nothing else holds it and it is dense
    if torch.is_grad_enabled():  # backward(create_graph=True): what is written into could not be differentiated
        return None
    node = _node()
    if node == "MaskedFillBackward0":
        return None
    if node == "IndexBackward0" and func is _aten.index_put.default:
        zeros: torch.Tensor = args[0]
        return zeros
    accumulates = func is _aten.add.Tensor and isinstance(args[1], torch.Tensor) and args[0].shape == args[1].shape
    if (accumulates or func in _OUT_OF_PLACE) and _unshared(args[0]):
        kept: torch.Tensor = args[0]  # not before: a name of ours is a reference more
        return kept
    return None


def _node() -> str:
    node = torch._C._current_autograd_node()
    return "" if node is None else str(node.name())


def _is_dense(tensor: torch.Tensor) -> bool:
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
        and _is_dense(tensor)
    )


@contextmanager
def foreach_as_on_cuda() -> Iterator[None]:
    """Let gradient clipping and optimizers choose their multi-tensor form as they do for parameters on a card."""
    # torch.optim shadows its own submodule `optimizer`, hence by name
    modules: list[Any] = [torch.utils._foreach_utils]
    modules += [module for name, module in list(sys.modules.items()) if name.startswith("torch.optim.")]
    with ExitStack() as stack:
        for module in modules:
            for name in _SUPPORTED:
                original = getattr(module, name, None)
                if original is not None:
                    stack.enter_context(mock.patch.object(module, name, _with_meta(original)))
        yield


# functions that say where optimizers may run as one kernel: over lists of tensors, fused, or in a graph
_SUPPORTED = (
    "_get_foreach_kernels_supported_devices",
    "_get_fused_kernels_supported_devices",
    "_get_capturable_supported_devices",
)  # fmt: skip


def _with_meta(original: Any) -> Any:
    @functools.wraps(original)
    def supported(*args: Any, **kwargs: Any) -> list[str]:
        return ["cuda", *original(*args, **kwargs), "meta"]

    return supported
