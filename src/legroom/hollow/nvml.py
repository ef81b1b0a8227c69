"""NVML's Python module, where the program has one installed, answering for hollow cards."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

from .dispatching import Follower


class NVMLError(Exception):
    """What `pynvml` raises."""


class _Memory:
    def __init__(self, total: int, free: int) -> None:
        self.total, self.free, self.used = total, free, total - free


class _Rates:
    gpu = memory = 0


def install(follower: Follower) -> None:
    """Replace `pynvml` if it is there to be imported."""
    if importlib.util.find_spec("pynvml") is None:
        return
    module: Any = types.ModuleType("pynvml")

    def memory(handle: int, version: Any = None) -> _Memory:
        card = follower.figures(handle)
        return _Memory(card.plan.nbytes, card.free_bytes)

    def device(index: int) -> int:
        if not 0 <= index < len(follower.cards):
            raise NVMLError("Invalid Argument")
        return index

    def nothing(*_: Any) -> None:
        return None

    def unknown(name: str) -> Any:
        if name.startswith("NVML_"):
            return 0
        raise AttributeError(f"pynvml.{name} is not simulated in a rehearsal")

    module.NVMLError = module.NVMLError_DriverNotLoaded = module.NVMLError_NotSupported = NVMLError
    module.nvmlInit = module.nvmlInitWithFlags = module.nvmlShutdown = nothing
    module.nvmlDeviceGetCount = lambda: len(follower.cards)
    module.nvmlDeviceGetHandleByIndex = device
    module.nvmlDeviceGetMemoryInfo = memory
    module.nvmlDeviceGetName = lambda handle: follower.cards[handle].plan.name
    module.nvmlDeviceGetIndex = lambda handle: handle
    module.nvmlDeviceGetUtilizationRates = lambda handle: _Rates()
    module.nvmlDeviceGetTemperature = lambda handle, sensor: 40
    module.nvmlDeviceGetPowerUsage = lambda handle: 50_000
    module.nvmlDeviceGetComputeRunningProcesses = lambda handle: []
    module.nvmlDeviceGetUUID = lambda handle: f"GPU-00000000-0000-0000-0000-{handle:012d}"
    module.nvmlSystemGetDriverVersion = lambda: "580.00"
    module.__getattr__ = unknown
    sys.modules["pynvml"] = module
