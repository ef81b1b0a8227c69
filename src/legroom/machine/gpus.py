"""The GPUs a training process would see, by NVML.

NVML answers without a CUDA context, which would itself take 300-500 MB of the memory that is asked about. It knows
nothing of CUDA_VISIBLE_DEVICES, so that is applied here. No package, no driver, or an NVML error means no GPU, never
an exception: a machine without one is the ordinary case.

Known limits: plain indices count in the order of the PCI bus as NVML does (CUDA's own default puts the fastest card
first when cards differ). Boards that share their memory with the host report no memory of their own and are left out.

Where NVML shows none (no `nvidia-ml-py`, or a container that hides the driver's files), torch is asked, in a process of
its own, since importing it and making a CUDA context takes seconds and hundreds of megabytes: only by a command that is
about to train, and only where torch is a CUDA build.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from legroom.machine.versions import is_installed
from legroom.model.machine import Gpu, Machine

# Without one of these no NVIDIA driver is there; /dev/dxg is the one of Windows' Linux subsystem.
_DRIVER_SIGNS = ("dev/nvidiactl", "dev/dxg", "proc/driver/nvidia")


def read_gpus(*, root: Path, visible: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that `visible` (CUDA_VISIBLE_DEVICES) lets through, in the order of `cuda:0`, `cuda:1`, ..."""
    nvml = _load_nvml(root)
    return () if nvml is None else gpus_by_nvml(nvml, visible)


def gpus_by_nvml(nvml: Any, visible: str | None) -> tuple[Gpu, ...]:
    """Return the same, as the `pynvml`-like module shows them."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver library, or no kernel module
        return ()
    try:
        return tuple(_describe(nvml, visible))
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _describe(nvml: Any, visible: str | None) -> Iterator[Gpu]:
    for handle in _visible_handles(nvml, visible):
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            name = _text(nvml.nvmlDeviceGetName(handle))
        except nvml.NVMLError:
            continue
        capability = None
        with suppress(nvml.NVMLError):  # MIG slices do not say
            major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
            capability = (int(major), int(minor))
        yield Gpu(name, int(memory.total), int(memory.free), capability)


def _visible_handles(nvml: Any, visible: str | None) -> list[Any]:
    """Return the device handles in CUDA's order.

    As CUDA does: an empty list hides everything, the first entry that names no device ends the list, and a list with
    a device in it twice is void.
    """
    # one by one, because a card that has fallen off the bus must not hide the others
    count = _attempt(nvml, nvml.nvmlDeviceGetCount) or 0
    handles = [_attempt(nvml, nvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
    if visible is None:
        return [handle for handle in handles if handle is not None]
    uuids = [_attempt(nvml, nvml.nvmlDeviceGetUUID, handle) for handle in handles]
    chosen: dict[object, Any] = {}
    for entry in (part.strip() for part in visible.split(",")):
        key, handle = _pick(nvml, entry, handles, uuids)
        if handle is None:
            break
        if key in chosen:
            return []
        chosen[key] = handle
    return list(chosen.values())


def _pick(nvml: Any, entry: str, handles: list[Any], uuids: list[Any]) -> tuple[object, Any]:
    if entry.isascii() and entry.isdecimal():
        index = int(entry)
        return index, handles[index] if index < len(handles) else None
    if entry.startswith("MIG-"):
        return entry, _attempt(nvml, nvml.nvmlDeviceGetHandleByUUID, entry)
    if entry.startswith("GPU-"):
        matches = [index for index, uuid in enumerate(uuids) if uuid is not None and _text(uuid).startswith(entry)]
        if len(matches) == 1:  # a prefix must be unique
            return matches[0], handles[matches[0]]
    return entry, None


def _attempt(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    if None in arguments:  # a handle that could not be had
        return None
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _load_nvml(root: Path) -> Any:
    """Return the module `pynvml`, None where it could not find a GPU anyway (importing it takes 10-30 ms)."""
    if sys.platform.startswith("linux") and not any((root / sign).exists() for sign in _DRIVER_SIGNS):
        return None
    if not is_installed("nvidia-ml-py"):
        return None
    try:
        return import_module("pynvml")
    except ImportError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


TIMEOUT_S = 120.0
_ASK = """
import json, torch
cards = []
for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
    about = torch.cuda.get_device_properties(number)
    free, total = torch.cuda.mem_get_info(number)
    cards.append([about.name, total, free, about.major, about.minor])
print(json.dumps(cards))
"""


def with_gpus_by_torch(machine: Machine) -> Machine:
    """Return the machine with the GPUs that torch finds, as it is where some are known or torch is for CPUs."""
    if machine.gpus or "+cu" not in machine.versions.get("torch", ""):
        return machine
    return replace(machine, gpus=_ask_torch())


def _ask_torch() -> tuple[Gpu, ...]:
    command = [sys.executable, "-P", "-c", _ASK]
    try:
        said = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True, stdin=subprocess.DEVNULL)
        cards = json.loads(said.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):  # a driver that is too old, a card that fell off the bus
        return ()
    return tuple(Gpu(name, total, free, (major, minor)) for name, total, free, major, minor in cards)


class GpuMeter:
    """Memory of a tree on GPUs, by NVML; answers None for ever where there is none.

    Per process where the driver tells it. Inside a container the driver names processes by their numbers outside, which
    match none of ours; then what the cards hold more than when the meter began is the best there is, and other users of
    the same cards are in it.
    """

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = nvml if nvml is not None else _load_nvml(Path("/"))
        self._cards: list[Any] = []
        self._before = 0
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlInit()
                self._cards = [
                    self._nvml.nvmlDeviceGetHandleByIndex(number) for number in range(self._nvml.nvmlDeviceGetCount())
                ]
                self._before = self._used()

    def __call__(self, pids: set[int]) -> int | None:
        if not self._cards:
            return None
        try:
            of_processes = [
                process.usedGpuMemory or 0
                for card in self._cards
                for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(card)
                if process.pid in pids
            ]
            return sum(of_processes) or max(self._used() - self._before, 0)
        except self._nvml.NVMLError:
            return None

    def _used(self) -> int:
        return sum(self._nvml.nvmlDeviceGetMemoryInfo(card).used for card in self._cards)
