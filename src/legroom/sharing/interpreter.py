"""Starts a fresh interpreter for a module of this package, with descriptors that it inherits.

It gets the trainer's `sys.path`, so that what can be imported here can be imported there. It has a process group of its
own: Ctrl-C in the terminal reaches the trainer alone, and whatever an environment started can be ended together with
it. It stays in the trainer's session, though. Linux shares processors out by session (autogroup), and handing over from
trainer to worker within one was twice to seven times as quick on a busy machine (2 cores, load 12, kernel 6.18;
`python -m bench.workers`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping

from legroom.machine.child_process import interpreter

# One thread per worker: with a worker per core, more only get in each other's way, and each has buffers of its own.
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def start_interpreter(module: str, fds: Mapping[str, int]) -> subprocess.Popen[bytes]:
    """Start `main()` of `module`; its last argument is JSON: descriptors by name, and who the trainer is."""
    main_thread = threading.current_thread() is threading.main_thread()
    task = {"fds": dict(fds), "trainer": os.getpid(), "main_thread": main_thread}
    path = [str(entry) or "." for entry in sys.path]
    return subprocess.Popen(
        interpreter(module, path, json.dumps(task)),
        stdin=subprocess.DEVNULL, pass_fds=tuple(fds.values()), env=_environment(), process_group=0,
    )  # fmt: skip


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    if "OMP_NUM_THREADS" not in environment:  # the others follow it where they are not set
        for name in ("OMP_NUM_THREADS", *_THREADS):
            environment.setdefault(name, "1")
    return environment
