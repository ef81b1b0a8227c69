"""Makes hollow tensors look like a card's from Python: their device, their moves, and how they are made from data.

Only what PyTorch decides above its dispatcher, or where the meta device differs from a card there, is replaced; all
else goes through the follower. Inside the follower tensors show their real device.
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any, Callable

import torch

from .dispatching import Follower
from .fake_tensors import is_meta as shown_is_meta
from .fake_tensors import storage_key
from .host_memory import PinnedPool, default_device

_aten = torch.ops.aten
_Base: Any = torch._C.TensorBase

_raw_device: Any = _Base.device.__get__


def install(follower: Follower) -> None:
    """Replace what shows or moves tensors; for the rest of the process."""
    _properties(follower)
    _moves(follower)
    _makers(follower)
    _grouping(follower)
    _scripting()


_modes = getattr(torch._C, "_len_torch_function_stack")  # noqa: B009  not in torch's stubs


def is_meta(value: Any) -> bool:
    """Return whether a tensor is meta, whatever it shows.

    A mode such as `torch.set_default_device` sends torch's own getter to the one that we put in its place.
    """
    if _modes():
        with torch._C.DisableTorchFunction():
            return bool(shown_is_meta(value))
    return bool(shown_is_meta(value))


def hollow(follower: Follower, value: Any) -> bool:
    """Return whether a value is a tensor of a card."""
    return isinstance(value, torch.Tensor) and is_meta(value) and follower.record_of(value) is not None


def card_device(follower: Follower, device: Any) -> torch.device | None:
    """Return the card that is named, with its index; None where another device is."""
    if device is None:
        return None
    if isinstance(device, int) and not isinstance(device, bool):
        return torch.device("cuda", follower.card_at(device).index)
    if isinstance(device, (str, torch.device)):
        found = torch.device(device)
        if found.type == "cuda":
            return follower.card_at(found.index).device
    return None


def _properties(follower: Follower) -> None:
    here, records = follower.here, follower.records

    def device(self: Any) -> Any:
        if here.inside or not is_meta(self):
            return _raw_device(self)
        record = records.get(storage_key(self))
        return _raw_device(self) if record is None else record.card.device

    def is_cuda(self: Any) -> bool:
        return not here.inside and is_meta(self) and storage_key(self) in records

    def shows_meta(self: Any) -> bool:
        return bool(is_meta(self)) and (here.inside > 0 or storage_key(self) not in records)

    tensor: Any = torch.Tensor
    tensor.device, tensor.is_cuda, tensor.is_meta = property(device), property(is_cuda), property(shows_meta)
    storage: Any = torch.UntypedStorage
    raw_storage_device = torch._C.StorageBase.device.__get__  # type: ignore[attr-defined]

    def storage_device(self: Any) -> Any:
        record = None if here.inside else records.get(self._cdata)
        return raw_storage_device(self) if record is None else record.card.device

    storage.device = property(storage_device)
    storage.is_cuda = property(lambda self: storage_device(self).type == "cuda")

    def get_device(self: Any) -> int:
        found = device(self)
        return -1 if found.type == "cpu" else int(found.index or 0)

    tensor.get_device = get_device
    torch.get_device = get_device  # type: ignore[assignment]
    pointer = _Base.data_ptr

    def data_ptr(self: Any) -> int:
        return follower.address(self) if is_meta(self) else int(pointer(self))

    tensor.data_ptr = data_ptr
    raw_storage_pointer = torch._C.StorageBase.data_ptr  # type: ignore[attr-defined]

    def storage_pointer(self: Any) -> int:  # torch.load keeps a storage for all its tensors where this is not 0
        record = records.get(self._cdata)
        return int(raw_storage_pointer(self)) if record is None else follower.storage_address(record)

    storage.data_ptr = storage_pointer
    raw_resize = torch._C.StorageBase.resize_  # type: ignore[attr-defined]

    def resize(self: Any, nbytes: int) -> Any:  # behind the dispatcher's back, as FSDP frees and restores parameters
        if follower.following and not here.inside:
            follower.resize(self, int(nbytes))
        return raw_resize(self, nbytes)

    storage.resize_ = resize
    raw_new = storage.__new__

    def new(kind: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        card = card_device(follower, device) if follower.following and not here.inside else None
        if card is None:
            return raw_new(kind, *args, **({} if device is None else {"device": device}), **kwargs)
        content = args[0] if args else kwargs.get("size", 0)
        sized = isinstance(content, int)
        bytes_ = (torch.empty if sized else torch.tensor)(content, dtype=torch.uint8, device=card)
        return bytes_.untyped_storage()

    storage.__new__ = staticmethod(new)
    data = _Base.data

    def set_data(self: Any, value: Any) -> None:
        self.__dict__.pop("_legroom_gradient", None)
        if is_meta(self) == is_meta(value):
            data.__set__(self, value)
            return
        with torch.no_grad():  # a card's tensor and a host's are of one kind there, and of two here
            gradient, other = self.grad, value.detach()
            other.requires_grad_(self.requires_grad)
            torch._C._swap_tensor_impl(self, other)
            data.__set__(other, other.new_empty(0))  # a graph may hold it, which there would hold the new data
            if gradient is not None:  # it stays where it is, until it is moved in its turn
                self.grad = value.detach()
                self.grad._legroom_gradient = gradient

    tensor.data = property(data.__get__, set_data)
    compatible = torch._has_compatible_shallow_copy_type

    def has_compatible(input: torch.Tensor, from_: torch.Tensor) -> bool:  # torch._dynamo compares these names
        return bool(compatible(input, from_)) or hollow(follower, input) or hollow(follower, from_)

    torch._has_compatible_shallow_copy_type = has_compatible


def _moves(follower: Follower) -> None:
    tensor: Any = torch.Tensor
    to, cuda, cpu, kind, tolist = tensor.to, tensor.cuda, tensor.cpu, tensor.type, tensor.tolist
    setitem, numpy = tensor.__setitem__, tensor.numpy

    def move(self: Any, device: torch.device, dtype: Any = None, **options: Any) -> Any:
        copy = options.pop("copy", False)
        options = {name: value for name, value in options.items() if value is not None}
        if hollow(follower, self) and self.device == device:
            if dtype is None and not copy and "memory_format" not in options:
                return self
            return to(self, self.dtype if dtype is None else dtype, copy=copy, **options)
        if hollow(follower, self) and self.requires_grad and torch.is_grad_enabled():
            return _Across.apply(self, device, dtype, options)
        if is_lazy(self):  # such parameters let few functions pass
            with torch._C.DisableTorchFunctionSubclass():
                return _aten._to_copy.default(self, dtype=dtype, device=device, **options)
        return _aten._to_copy.default(self, dtype=dtype, device=device, **options)

    @functools.wraps(to)
    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        device, dtype, rest = _parsed(follower, args, kwargs)
        if device is None:
            if hollow(follower, self) and _named_meta(args, kwargs):
                with torch._C._DisableTorchDispatch():  # leaves the card: nothing of it is followed any more
                    return torch.empty_strided(self.shape, self.stride(), dtype=dtype or self.dtype, device="meta")
            return to(self, *args, **kwargs)
        return move(self, device, dtype, **rest)

    @functools.wraps(cuda)
    def to_cuda(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        found = card_device(follower, "cuda" if device is None else device)
        if found is None:
            raise ValueError(f"Invalid device, must be cuda device: {device}")
        return move(self, found, non_blocking=non_blocking, memory_format=memory_format)

    @functools.wraps(kind)
    def typed(self: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if dtype is None:
            name = kind(self)
            return name.replace("torch.meta.", "torch.cuda.") if hollow(follower, self) else name
        name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", "") if isinstance(dtype, type) else ""
        if isinstance(dtype, type):
            name = f"{dtype.__module__}.{dtype.__name__}"
        if name.startswith("torch.cuda."):
            wanted = getattr(torch, name.rpartition(".")[2]).dtype
            return move(self, follower.card_at(None).device, wanted, non_blocking=non_blocking)
        return kind(self, dtype, non_blocking, **kwargs)

    @functools.wraps(tolist)
    def listed(self: Any) -> Any:
        return tolist(cpu(self.detach()) if hollow(follower, self) else self)

    @functools.wraps(setitem)
    def set_item(self: Any, key: Any, value: Any) -> None:
        if isinstance(value, (bool, int, float)) and hollow(follower, self):
            value = torch.tensor(value, dtype=self.dtype)  # on a card a number stays on the host
        setitem(self, key, value)

    @functools.wraps(numpy)
    def as_numpy(self: Any, *args: Any, **kwargs: Any) -> Any:
        if hollow(follower, self):
            if kwargs.get("force"):
                return numpy(cpu(self.detach()))
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
                "memory first."
            )
        return numpy(self, *args, **kwargs)

    shown = tensor.__repr__

    def show(self: Any, *, tensor_contents: Any = None) -> Any:
        if not hollow(follower, self):
            return shown(self, tensor_contents=tensor_contents)
        if not follower.has_values(self):
            return f"tensor(..., device='{self.device}', size={tuple(self.shape)}, dtype={self.dtype})"
        grad = f", grad_fn=<{type(self.grad_fn).__name__}>" if self.grad_fn is not None else ""
        return f"{shown(cpu(self.detach()))[:-1]}, device='{self.device}'{grad})"

    tensor.__repr__ = show
    tensor.to, tensor.cuda, tensor.type, tensor.tolist = moved, to_cuda, typed, listed
    tensor.__setitem__, tensor.numpy = set_item, as_numpy

    pool = PinnedPool(follower.journal)
    pool.install(torch)

    def pin_memory(self: Any, device: Any = None) -> Any:
        if hollow(follower, self):
            raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
        found = self.clone()
        pool.add(found)
        return found

    tensor.pin_memory = pin_memory
    tensor.is_pinned = lambda self, device=None: getattr(self, "_legroom_pinned", False)

    def record_stream(self: Any, stream: Any) -> None:
        if hollow(follower, self) and stream != torch.cuda.current_stream():  # on its own stream it has no effect
            what = "record_stream, which keeps a block until another stream is done with it"
            follower.tell("unmodelled", what=what)

    tensor.record_stream = record_stream
    _leaving(follower)


def _leaving(follower: Follower) -> None:
    """Refuse to hand tensors of the card to other libraries (dlpack) and processes (CUDA IPC): they have no bytes."""
    import multiprocessing.reduction

    from torch.multiprocessing import reductions

    tensor: Any = torch.Tensor
    packed, shared, reduced = tensor.__dlpack__, tensor.share_memory_, reductions.reduce_tensor

    def dlpack(self: Any, *args: Any, **kwargs: Any) -> Any:
        if hollow(follower, self):
            raise follower.refused("dlpack of a tensor on the GPU")
        return packed(self, *args, **kwargs)

    def share_memory(self: Any) -> Any:
        return self if hollow(follower, self) else shared(self)  # a card's memory is shared as it is

    def reduce(each: Any) -> Any:
        if hollow(follower, each):
            raise follower.refused("sending a tensor on the GPU to another process (CUDA IPC)")
        return reduced(each)

    module: Any = torch.utils.dlpack
    top: Any = torch
    module.to_dlpack = top.to_dlpack = lambda each: each.__dlpack__()
    tensor.__dlpack__, tensor.share_memory_ = dlpack, share_memory
    reductions.reduce_tensor = reduce
    for kind in (torch.Tensor, torch.nn.parameter.Parameter):
        multiprocessing.reduction.ForkingPickler.register(kind, reduce)


class _Across(torch.autograd.Function):
    """A copy to another card: PyTorch's own would send the gradient to "meta", which is any of them."""

    @staticmethod
    def forward(ctx: Any, source: Any, device: torch.device, dtype: Any, options: Any) -> Any:
        ctx.source = source.device, source.dtype
        return _aten._to_copy.default(source, dtype=dtype, device=device, **options)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].to(*ctx.source), None, None, None


is_lazy: Callable[[Any], bool] = importlib.import_module("torch.nn.parameter").is_lazy  # torch hides the module


def _named_meta(args: Any, kwargs: Any) -> bool:
    device = kwargs.get("device", args[0] if args else None)
    return isinstance(device, (str, torch.device)) and torch.device(device).type == "meta"


def _parsed(follower: Follower, args: Any, kwargs: Any) -> tuple[torch.device | None, Any, dict[str, Any]]:
    """Return the card that `.to(...)` names (None: none), the dtype, and what else is said."""
    rest = {name: kwargs[name] for name in ("non_blocking", "copy", "memory_format") if name in kwargs}
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    left = list(args)
    other = kwargs.get("other")
    if left and isinstance(left[0], torch.Tensor):
        other = left.pop(0)
    if other is not None:
        if not hollow(follower, other):
            return None, None, {}
        device, dtype = other.device, other.dtype
    elif left:
        if isinstance(left[0], torch.dtype):
            dtype = left.pop(0)
        else:
            device = left.pop(0)
            if left and (left[0] is None or isinstance(left[0], torch.dtype)):
                dtype = left.pop(0)
    for name in ("non_blocking", "copy"):
        if left:
            rest[name] = left.pop(0)
    return card_device(follower, device), dtype, rest


def _makers(follower: Follower) -> None:
    """Data that is put on a card is made on the host and copied, as PyTorch does it."""
    module: Any = torch
    for name in ("tensor", "as_tensor", "asarray"):
        setattr(module, name, _on_host_first(follower, getattr(module, name)))
    sparse_coo = module.sparse_coo_tensor

    @functools.wraps(sparse_coo)
    def sparse(*args: Any, **kwargs: Any) -> Any:
        if card_device(follower, kwargs.get("device") or default_device()) is not None:
            raise follower.refused("a sparse_coo tensor on the GPU")
        return sparse_coo(*args, **kwargs)

    module.sparse_coo_tensor = sparse
    tensor: Any = torch.Tensor
    old_new = tensor.new

    @functools.wraps(old_new)
    def new(self: Any, *args: Any, **kw: Any) -> Any:
        if not hollow(follower, self) or kw:
            return old_new(self, *args, **kw)
        sizes = args[0] if args and isinstance(args[0], torch.Size) else args
        if all(isinstance(each, int) for each in sizes):
            return torch.empty(tuple(sizes), dtype=self.dtype, device=self.device)
        return torch.tensor(args[0], dtype=self.dtype, device=self.device)

    tensor.new = new
    new_tensor = tensor.new_tensor

    @functools.wraps(new_tensor)
    def made(
        self: Any, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **kw: Any
    ) -> Any:
        if device is None and hollow(follower, self):
            device = self.device
        if card_device(follower, device) is None:
            return new_tensor(self, data, dtype=dtype, device=device, requires_grad=requires_grad, **kw)
        return torch.tensor(data, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad)

    tensor.new_tensor = made


def _scripting() -> None:
    """Let `torch.jit.script` compile the functions that were replaced here as what they replace."""
    here = str(Path(__file__).parent)

    def replaced(function: Any) -> Any:
        ours = getattr(getattr(function, "__code__", None), "co_filename", "").startswith(here)
        return getattr(function, "__wrapped__", function) if ours else function

    for module, name in (("torch.jit._builtins", "_find_builtin"), ("torch.jit._recursive", "try_compile_fn")):
        inside: Any = importlib.import_module(module)
        asked = getattr(inside, name)
        setattr(inside, name, lambda function, *args, asked=asked: asked(replaced(function), *args))


def _on_host_first(follower: Follower, maker: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(maker)
    def made(data: Any, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None and maker.__name__ != "tensor" and hollow(follower, data):
            return maker(data, *args, **kwargs)
        if device is None:
            device = default_device()
        card = card_device(follower, device)
        if card is None:
            if maker.__name__ == "tensor" and hollow(follower, data):
                return data.detach().clone()
            return maker(data, *args, **kwargs)
        kwargs = {name: value for name, value in kwargs.items() if name != "device"}
        if hollow(follower, data):
            made = data.to(card, kwargs.get("dtype") or data.dtype, copy=maker.__name__ == "tensor")
            return (
                made.detach().requires_grad_(kwargs.get("requires_grad", False)) if maker.__name__ == "tensor" else made
            )
        wants = kwargs.pop("requires_grad", False)
        found = maker(data, *args, **kwargs, device="cpu")
        found = found.to(card)
        return found.requires_grad_() if wants else found

    return made


def _grouping(follower: Follower) -> None:
    """Group tensors by card as optimizers ask for it, who otherwise see the meta device."""
    module: Any = torch._C
    group = module._group_tensors_by_device_and_dtype

    def grouped(lists: Any, with_indices: bool = False) -> Any:
        found: dict[Any, Any] = {}
        for (device, dtype), (columns, indices) in group(lists, with_indices).items():
            if device.type != "meta":
                found[device, dtype] = (columns, indices)
                continue
            for at, first in enumerate(columns[0]):
                record = follower.record_of(first)
                key = (device if record is None else record.card.device, dtype)
                into, numbers = found.setdefault(key, ([[] for _ in columns], []))
                for one, column in zip(into, columns):
                    if column:
                        one.append(column[at])
                if with_indices:
                    numbers.append(indices[at])
        return found

    module._group_tensors_by_device_and_dtype = grouped
