"""A training child that ends when its supervisor is gone: asked to, by the kernel, so that it can write a checkpoint.

Called before anything else is imported: importing torch takes seconds, in which nobody would notice that the supervisor
was killed. Until the child handles the signal itself it simply dies of it; there is nothing to save yet.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1


def end_with(supervisor_pid: int) -> None:
    """Have this process sent SIGTERM when its supervisor ends, whatever ends it; Linux alone offers that."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != supervisor_pid:  # it was gone before that was in place
        os._exit(1)
