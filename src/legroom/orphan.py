"""A child process that ends when its parent is gone: asked to by the kernel, so that it can still write a checkpoint.

Called before anything else is imported: importing torch takes seconds, in which nobody would notice that the parent
was killed. Until the child handles the signal itself it simply dies of it; there is nothing to save yet.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

PR_SET_PDEATHSIG = 1
UNHEARD_S = 30.0  # to end by itself: a few for the iteration, the rest for closing what it has opened
# The beginning of a child's `-c`, before it imports what it is for; its first argument is the parent's id.
END_WITH_PARENT = "import sys; from legroom.orphan import end_with; end_with(int(sys.argv.pop(1)));"


def end_with(parent_pid: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Have this process sent the signal when its parent ends, whatever ends it; Linux alone offers that."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent_pid:  # it was gone before that was in place
        os._exit(1)


def end_unheard(pipe_fd: int, is_saving: Callable[[], bool]) -> None:
    """Kill this process when its pipe has no reader any more and it has not ended by itself in time.

    The signal of `end_with` becomes an exception, which an environment may swallow, and the parent that would then use
    force is gone.

    Args:
        is_saving: something that is worth the wait.
    """

    def wait() -> None:
        poll = select.poll()
        poll.register(pipe_fd, 0)  # an error is always told: the other end is closed
        if not any(event & select.POLLERR for _, event in poll.poll()):
            return  # we have closed our own end: it is over
        until = time.monotonic() + UNHEARD_S
        while time.monotonic() < until or is_saving():
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True, name="unheard").start()
