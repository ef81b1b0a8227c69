"""Sample the memory of a tree of processes while it runs, for what a bench compares a prediction with."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from legroom.machine.tree import TreeMemory, tree_memory


def alone(tree: TreeMemory) -> int:
    """Return what `tree.pss` would be if no process outside the tree mapped the same libraries.

    A diagnosis, not the measure. Library pages count once, as many as the process with the most of them has.
    """
    files = max((process.rss_file for process in tree.processes.values()), default=0)
    return files + sum(process.pss - process.pss_file for process in tree.processes.values())


@dataclass
class PeakSampler:
    """Samples a tree in a thread and keeps its largest sum of PSS.

    Use as a context manager around the wait for the tree's root::

        with PeakSampler(child.pid) as sampler:
            child.wait()
        sampler.peak.pss
    """

    pid: int
    interval_s: float = 0.015
    peak: TreeMemory = field(default_factory=lambda: TreeMemory({}))
    rss_peaks: dict[int, int] = field(default_factory=dict)
    samples: int = 0

    def __enter__(self) -> PeakSampler:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            tree = tree_memory(self.pid)
            self.samples += 1
            if tree.pss > self.peak.pss:
                self.peak = tree
            for process in tree.processes.values():
                self.rss_peaks[process.pid] = max(self.rss_peaks.get(process.pid, 0), process.rss_peak)
            # A tree of many processes takes long to read: never sample more than half of the time.
            spent = time.monotonic() - began
            self._stop.wait(max(self.interval_s - spent, spent))
