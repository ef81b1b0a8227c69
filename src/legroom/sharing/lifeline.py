"""Makes a worker end with its trainer, even one killed in the middle of a step.

A worker that waits for its next step sees the end of the pipe. One that computes, or hangs, sees nothing; so the kernel
ends it, by two ways that complement each other. The life line is a pipe whose other end only the trainer holds: when it
closes, the kernel sends the signal set with F_SETSIG. A process that the trainer forked may still hold that end, so the
parent-death signal is set too. It fires when the *thread* that started the worker ends, hence only where that was the
main thread.
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress

from legroom.orphan import end_with


def hold_lifeline(fd: int, trainer_pid: int, *, started_by_main_thread: bool) -> None:
    """Have this process killed as soon as the trainer is gone. Does what the system offers; Linux offers all."""
    if hasattr(fcntl, "F_SETSIG"):
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    if started_by_main_thread:
        end_with(trainer_pid, signal.SIGKILL)
    if os.getppid() != trainer_pid:  # it ended before any of this was in place
        os._exit(1)
