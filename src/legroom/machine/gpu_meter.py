"""Memory of a tree on GPUs, by NVML: per process where the driver tells it, else what all cards hold above the start.

Inside a container the driver names processes by their numbers outside, which match none of ours; then what the cards
hold more than when the meter began is the best there is, and other users of the same cards are in it.
"""

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from legroom.machine.gpus import read_gpus


class GpuMeter:
    """Asks NVML; answers None for ever where there is none."""

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = nvml if nvml is not None else _load()
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
        """Return the bytes that these processes hold on all cards."""
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


def _load() -> Any:
    """Return the module `pynvml` where a card answers it."""
    return import_module("pynvml") if read_gpus(root=Path("/"), visible=None) else None
