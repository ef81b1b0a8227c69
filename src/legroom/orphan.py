"""A child process that ends when its parent is gone: asked to by the kernel, so that it can still write a checkpoint.

Called before anything else is imported: importing torch takes seconds, in which nobody would notice that the parent
was killed. Until the child handles the signal itself it simply dies of it; there is nothing to save yet.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1
# The beginning of a child's `-c`, before it imports what it is for; its first argument is the parent's id.
END_WITH_PARENT = "import sys; from legroom.orphan import end_with; end_with(int(sys.argv.pop(1)));"


def end_with(parent_pid: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Have this process sent the signal when its parent ends, whatever ends it; Linux alone offers that."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent_pid:  # it was gone before that was in place
        os._exit(1)
