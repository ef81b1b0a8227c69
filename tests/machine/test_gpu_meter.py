"""GPU memory of a tree, with a driver that is played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from legroom.machine.gpus import GpuMeter
from legroom.units import GIB


class Driver:
    """Two cards; `running` says which process holds how much on which."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.running: dict[int, list[tuple[int, int | None]]] = {0: [], 1: []}
        self.used = {0: GIB, 1: 0}
        self.broken = False

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, card: int) -> Any:
        return SimpleNamespace(used=self.used[card])

    def nvmlDeviceGetComputeRunningProcesses(self, card: int) -> list[Any]:
        if self.broken:
            raise self.NVMLError
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.running[card]]


def test_counts_the_processes_of_the_tree_on_all_cards() -> None:
    driver = Driver()
    meter = GpuMeter(driver)
    driver.running = {0: [(10, GIB), (99, 7 * GIB)], 1: [(11, 2 * GIB)]}
    assert meter({10, 11}) == 3 * GIB


def test_counts_growth_of_the_cards_where_processes_have_other_numbers() -> None:
    driver = Driver()
    meter = GpuMeter(driver)
    driver.running, driver.used = {0: [(4_000_000, None)], 1: []}, {0: 3 * GIB, 1: 0}
    assert meter({10}) == 2 * GIB  # 1 GiB was held by others before


def test_no_driver_and_a_driver_that_fails_are_none() -> None:
    driver = Driver()
    meter = GpuMeter(driver)
    driver.broken = True
    assert meter({10}) is None
