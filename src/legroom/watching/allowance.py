"""How much processor time watching may take: a share of what the command takes, and a little of the time itself.

Exact memory costs a millisecond per process and more for large ones, so twenty processes four times a second would be
a tenth of a core. What watching may spend is earned by the command's work; what it spent is known from the kernel, with
everything in it: samples, passing on of output, judging, drawing.
"""

from __future__ import annotations

import time

SHARE_OF_COMMAND = 0.006  # of the 2 % that were promised; start and report take the rest of a short run
SHARE_OF_TIME = 0.001  # for commands that wait for a GPU or a disk
AT_ONCE_S = 0.1  # the first moments of a command are the most eventful


class Allowance:
    """Says whether something can be afforded now."""

    def __init__(self) -> None:
        self.command_cpu_s = 0.0
        self._began, self._began_cpu = time.monotonic(), time.process_time()

    def spent_s(self) -> float:
        return time.process_time() - self._began_cpu

    def earned_s(self) -> float:
        passed = time.monotonic() - self._began
        return AT_ONCE_S + SHARE_OF_COMMAND * self.command_cpu_s + SHARE_OF_TIME * passed

    def affords(self, cost_s: float) -> bool:
        return self.spent_s() + cost_s <= self.earned_s()
