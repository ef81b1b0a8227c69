"""`torch.cuda` and `torch.accelerator` of cards that are not there.

PyTorch's own Python code of these modules is kept; what it calls in C++ (`torch._C._cuda_…`) is answered from the
simulated cards. Everything in C++ that is not answered raises one line that names it, on CPU and CUDA builds alike.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
import types
from typing import Any, Callable

import torch

from . import card_files
from .card import nothing
from .cuda_objects import install_generators, install_graphs, install_process_groups, install_streams
from .dispatching import Follower
from .host_memory import default_device

C: Any = torch._C
MODELLED = ("expandable_segments", "max_split_size_mb", "release_lock_on_cudamalloc")  # of the allocator's settings


class NotSimulated(RuntimeError):
    """Something of the card that a rehearsal does not simulate."""


def install(follower: Follower) -> None:
    """Answer for the card from now on."""
    parts = (_answers, install_streams, install_graphs, _memory_history)
    table = {name: answer for part in parts for name, answer in part(follower).items()}

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        raise NotSimulated(f"torch._C.{name} is not simulated in a rehearsal")

    for name in dir(C):
        if name.startswith(("_cuda_", "_accelerator_")) and name not in table:
            setattr(C, name, functools.partial(refuse, name))
    for name, answer in table.items():
        setattr(C, name, answer)

    def missing(name: str) -> Any:
        if name.startswith(("_cuda_", "_accelerator_")):
            raise AttributeError(f"torch._C.{name} is not simulated in a rehearsal")
        raise AttributeError(f"module 'torch._C' has no attribute '{name}'")

    C.__getattr__ = missing  # a CPU build has no names to refuse
    install_generators(follower)
    card_files.install(follower)
    _nvml(follower)
    install_process_groups(follower)
    _typed_tensors(follower)
    text = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    for name, value in (each.strip().partition(":")[::2] for each in text.split(",") if each.strip()):
        if name not in MODELLED and not name.startswith("pinned_") and (name, value) != ("backend", "native"):
            follower.journal.json("unmodelled", what=f"{name} in PYTORCH_CUDA_ALLOC_CONF")
    cuda: Any = torch.cuda
    cuda._lazy_init = lambda: None
    cuda.is_available = lambda: bool(follower.cards)
    cuda.is_initialized = lambda: True
    cuda._initialized = True
    cuda._exchange_device, cuda._maybe_exchange_device = C._cuda_exchangeDevice, C._cuda_maybeExchangeDevice
    cuda.device_count = lambda: len(follower.cards)
    cuda.get_device_properties = lambda device=None: _Properties(follower.card_at(_index(device)).plan)
    cuda._get_device_properties = lambda index: _Properties(follower.card_at(index).plan)
    cuda.is_bf16_supported = lambda including_emulation=True: True
    cuda.memory.mem_get_info = cuda.mem_get_info = lambda device=None: _memory_info(follower, _index(device))
    cuda.get_arch_list = lambda: [f"sm_{a}{b}" for a, b in {card.plan.capability for card in follower.cards}]
    cuda.can_device_access_peer = lambda device, peer: False
    cuda._lazy_call = lambda callable, **kwargs: callable()
    torch.backends.cuda.is_built = lambda: True
    torch._use_cudnn_rnn_flatten_weight = lambda: True
    modes = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}  # cudnnRNNMode_t
    importlib.import_module("torch.backends.cudnn.rnn").get_cudnn_mode = modes.__getitem__  # type: ignore[attr-defined]
    cudnn: Any = torch.backends.cudnn
    inside = cudnn.is_acceptable.__globals__  # the module itself is hidden behind one that has properties
    for name, answer in (("_init", lambda: True), ("is_available", lambda: True), ("version", lambda: 91900)):
        inside[name] = answer
        setattr(cudnn, name, answer)


def _typed_tensors(follower: Follower) -> None:
    """Make `torch.cuda.FloatTensor` and its like, which old code calls and passes to `Tensor.type`."""

    class Kind(type):
        dtype: torch.dtype

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype

    def made(cls: Any, *args: Any) -> Any:
        return getattr(torch, cls.__name__)(*args).to(follower.card_at(None).device)

    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"):
        dtype = getattr(torch, f"{name}Tensor").dtype
        kind = Kind(f"{name}Tensor", (), {"__new__": made, "dtype": dtype, "__module__": "torch.cuda"})
        setattr(torch.cuda, f"{name}Tensor", kind)

    set_type = torch.set_default_tensor_type
    tensor: Any = torch.Tensor

    def from_default_type(cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Make what `torch.Tensor(...)` makes of sizes and of data; a default device alone does not reach it."""
        if cls is not tensor or kwargs or any(isinstance(each, tensor) for each in args):
            return torch._C.TensorBase.__new__(cls, *args, **kwargs)
        if all(isinstance(each, int) for each in args) or isinstance(args[0], torch.Size):
            return torch.empty(*args, dtype=torch.get_default_dtype())
        return torch.tensor(args[0], dtype=torch.get_default_dtype())

    def set_default_type(t: Any, /) -> None:
        name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        on_card = name.startswith("torch.cuda.")
        if on_card or default_device() is not None:
            torch.set_default_device("cuda" if on_card else None)
        if on_card:
            importlib.import_module("torch._dynamo")  # while the constructor is still the one whose signature it checks
            tensor.__new__ = from_default_type
        elif "__new__" in vars(tensor):
            tensor.__new__ = torch._C.TensorBase.__new__
        if on_card:
            torch.set_default_dtype(getattr(torch, name.rpartition(".")[2]).dtype)
        else:
            set_type(t)

    torch.set_default_tensor_type = set_default_type


def _index(device: Any) -> int | None:
    if device is None or isinstance(device, int):
        return device
    return torch.device(device).index


def _memory_info(follower: Follower, index: int | None) -> tuple[int, int]:
    card = follower.figures(follower.card_at(index).index)
    return card.free_bytes, card.plan.nbytes


class _Properties:
    """What `torch.cuda.get_device_properties` returns."""

    def __init__(self, plan: Any) -> None:
        self.name = plan.name
        self.major, self.minor = plan.capability
        self.total_memory = plan.nbytes
        self.multi_processor_count = plan.multiprocessors
        self.max_threads_per_multi_processor = plan.shape.threads_per_multiprocessor
        self.warp_size, self.regs_per_multiprocessor = 32, 65_536
        self.is_integrated = self.is_multi_gpu_board = 0
        self.shared_memory_per_block, self.shared_memory_per_multiprocessor = 49_152, 102_400
        self.shared_memory_per_block_optin, self.L2_cache_size = 101_376, 75_497_472
        self.gcnArchName = plan.name
        self.uuid = "00000000-0000-0000-0000-000000000000"

    def __repr__(self) -> str:
        return f"_CudaDeviceProperties({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def _scattered(tensor: Any, devices: Any, sizes: Any = None, dim: int = 0, streams: Any = None) -> Any:
    """Divide a batch among cards, as nn.DataParallel does (csrc/cuda/comm.cpp); views where it is there already."""
    parts = tensor.chunk(len(devices), dim) if sizes is None else tensor.split(list(sizes), dim)
    return [part.to(torch.device("cuda", index), non_blocking=True) for part, index in zip(parts, devices)]


def _gathered(tensors: Any, dim: int, destination: int | None = None) -> Any:
    device = torch.device("cpu") if destination == -1 else torch.device("cuda", destination or 0)
    return torch.cat([tensor.to(device) for tensor in tensors], dim)


def _answers(follower: Follower) -> dict[str, Callable[..., Any]]:
    here = follower.here

    def set_device(index: int) -> None:
        if index >= 0:
            here.device = follower.card_at(index).index

    def exchange(index: int) -> int:
        before = here.device
        set_device(index)
        return before

    def empty_cache(*_: Any) -> None:
        for card in follower.cards:
            follower.empty_cache(card)

    def fraction(value: float, index: int) -> None:
        card = follower.card_at(index)
        card.fraction = value
        allowed = int(value * card.plan.nbytes)
        card.limit_to(allowed if card.plan.limit is None else min(allowed, card.plan.limit))

    def stats(index: int) -> Any:
        return follower.figures(index).memory_stats()

    return {
        **dict.fromkeys(_NOTHING, nothing),
        **dict.fromkeys(_EXCHANGES, exchange),
        "_cuda_getDeviceCount": lambda: len(follower.cards),
        "_cuda_getDevice": lambda: here.device,
        "_cuda_setDevice": set_device,
        "_cuda_emptyCache": empty_cache,
        "_cuda_memoryStats": stats,
        "_cuda_resetPeakMemoryStats": lambda index: follower.figures(index).reset_peaks(),
        "_cuda_setMemoryFraction": fraction,
        "_cuda_getMemoryFraction": lambda index: follower.card_at(index).fraction,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_hostMemoryStats": dict,
        "_accelerator_getDeviceCapability": lambda index: {"supported_dtypes": set()},
        "_cuda_isInBadFork": lambda: not follower.following,
        "_cuda_get_sync_debug_mode": lambda: 0,
        "_accelerator_getAccelerator": lambda: torch.device("cuda") if follower.cards else None,
        "_accelerator_getDeviceIndex": lambda: here.device,
        "_accelerator_setDeviceIndex": set_device,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_emptyCache": empty_cache,
        "_accelerator_getDeviceStats": stats,
        "_accelerator_resetPeakStats": lambda index: follower.figures(index).reset_peaks(),
        "_accelerator_getMemoryInfo": lambda index: _memory_info(follower, index),
        "_get_accelerator": lambda check=False: torch.device("cuda"),
        "_scatter": _scattered,
        "_gather": _gathered,
    }


_NOTHING = (
    "_cuda_init", "_cuda_synchronize", "_cuda_resetAccumulatedMemoryStats", "_cuda_ipc_collect", "_host_emptyCache",
    "_cuda_clearCublasWorkspaces", "_accelerator_emptyHostCache", "_cuda_set_sync_debug_mode",
    "_accelerator_synchronizeDevice", "_accelerator_resetAccumulatedStats",
)  # fmt: skip
_EXCHANGES = (
    "_cuda_exchangeDevice", "_cuda_maybeExchangeDevice", "_accelerator_exchangeDevice",
    "_accelerator_maybeExchangeDevice",
)  # fmt: skip


_NO_HISTORY = (
    "torch.cuda.memory: history and snapshots are empty in a rehearsal, and not written (the timeline: --html FILE)"
)


def _memory_history(follower: Follower) -> dict[str, Any]:
    """Accept the calls of `torch.cuda.memory` that record memory, and say once that nothing is.

    A snapshot has no segments here, and is not written to a file: an earlier one, of a real run, may be there.
    """
    said: list[bool] = []

    def record(*_: Any, **__: Any) -> dict[str, Any]:
        if not said:
            said.append(True)
            follower.journal.json("note", text=_NO_HISTORY)
        traces: list[Any] = [[] for _ in follower.cards]
        return {"segments": [], "device_traces": traces, "allocator_settings": {}, "external_annotations": []}

    memory: Any = torch.cuda.memory
    memory._dump_snapshot = record
    names = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy", "_cuda_memorySnapshot")
    return {**dict.fromkeys(names, record), "_cuda_isHistoryEnabled": lambda: False}


class NVMLError(Exception):
    """What `pynvml` raises."""


def _nvml(follower: Follower) -> None:
    """Replace NVML's Python module, `pynvml`, if it is there to be imported."""
    if importlib.util.find_spec("pynvml") is None:
        return
    module: Any = types.ModuleType("pynvml")

    def memory(handle: int, version: Any = None) -> Any:
        total, free = _memory_info(follower, handle)[::-1]
        return types.SimpleNamespace(total=total, free=free, used=total - free)

    def device(index: int) -> int:
        if not 0 <= index < len(follower.cards):
            raise NVMLError("Invalid Argument")
        return index

    def unknown(name: str) -> Any:
        if name.startswith("NVML_"):
            return 0
        raise AttributeError(f"pynvml.{name} is not simulated in a rehearsal")

    vars(module).update(
        NVMLError=NVMLError, NVMLError_DriverNotLoaded=NVMLError, NVMLError_NotSupported=NVMLError, nvmlInit=nothing,
        nvmlInitWithFlags=nothing, nvmlShutdown=nothing, nvmlDeviceGetHandleByIndex=device, __getattr__=unknown,
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetCount=lambda: len(follower.cards),
        nvmlDeviceGetName=lambda handle: follower.cards[handle].plan.name,
        nvmlDeviceGetIndex=lambda handle: handle,
        nvmlDeviceGetUtilizationRates=lambda handle: types.SimpleNamespace(gpu=0, memory=0),
        nvmlDeviceGetTemperature=lambda handle, sensor: 40,
        nvmlDeviceGetPowerUsage=lambda handle: 50_000,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [],
        nvmlDeviceGetUUID=lambda handle: f"GPU-00000000-0000-0000-0000-{handle:012d}",
        nvmlSystemGetDriverVersion=lambda: "580.00",
    )  # fmt: skip
    sys.modules["pynvml"] = module
