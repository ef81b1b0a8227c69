"""Many files side by side: each is read and judged by itself, so they are shared out among forked processes.

A process is forked where that is safe (one thread, Linux) and worth it. What comes back leaves the subject behind: a
syntax tree takes longer to send than to make.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from legroom.checking.walking import Target
from legroom.machine.probing import count_cores
from legroom.model.rule import Checked

LEAST = 40  # files from which on processes are worth their start, about 50 ms each
MOST_PROCESSES = 8
SHARES = 6  # pieces of the work for each process; files of a folder stay together, as they import one another

Look = Callable[[Target], list[Checked]]
_look: Look | None = None  # set before forking, as a closure cannot be sent


def spread(look: Look, targets: Sequence[Target]) -> list[list[Checked]]:
    """Return `look(target)` of each target, in order.

    Raises:
        BadInput: a target that was named cannot be read.
    """
    processes = min(count_cores(), MOST_PROCESSES)
    alone = processes < 2 or len(targets) < LEAST or threading.active_count() > 1 or sys.platform != "linux"
    if alone or not all(target.found for target in targets):
        return [look(target) for target in targets]
    size = -(-len(targets) // (processes * SHARES))
    pieces = [list(targets[at : at + size]) for at in range(0, len(targets), size)]
    global _look
    _look = look
    try:
        with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("fork")) as pool:
            return [found for piece in pool.map(_looked, pieces) for found in piece]
    finally:
        _look = None


def _looked(piece: list[Target]) -> list[list[Checked]]:
    assert _look is not None
    return [[replace(each, subject=None) for each in _look(target)] for target in piece]
