"""Time limits that a busy machine does not use up: what a process waited for a processor does not count.

A limit of seconds on the clock cuts off on a busy machine what it lets through on a quiet one, so that the same
prediction would say different things. A process that sleeps or hangs is still stopped in time: sleeping counts.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
MOST = 6  # times the limit, on the clock


def queued_s(pid: int | str = "self") -> float:
    """Return the seconds that a process's first thread was ready to run and did not; 0 where that is not counted."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def patiently(child: subprocess.Popen[bytes], limit_s: float, wait: Callable[[float], Result]) -> Result:
    """Call `wait` with the seconds that are left, until it returns.

    Args:
        wait: as `child.wait` or `child.communicate`, may be called again after it has raised.

    Raises:
        subprocess.TimeoutExpired: the child had `limit_s` seconds to itself.
    """
    began = time.monotonic()
    while True:
        try:
            return wait(max(_left_s(limit_s, began, child.pid), 0.0))
        except subprocess.TimeoutExpired:
            if _left_s(limit_s, began, child.pid) <= 0:
                raise


def call_after(limit_s: float, call: Callable[[], None]) -> Callable[[], None]:
    """Call something once this process had so many seconds to itself; return what cancels it."""
    done, began = threading.Event(), time.monotonic() - queued_s()

    def watch() -> None:
        while (left := limit_s - (time.monotonic() - queued_s() - began)) > 0:
            if done.wait(left):
                return
        call()

    threading.Thread(target=watch, daemon=True).start()
    return done.set


def _left_s(limit_s: float, began: float, pid: int) -> float:
    allowed = min(limit_s + queued_s(pid), MOST * limit_s)
    return allowed - (time.monotonic() - began)
