"""Where memory ends for a tree: at the limit that was given, else at what the container or the machine has left.

What is left counts with the tree's own memory: others on the machine take from it too, so the ceiling of a tree that
stays as it is may sink. It is read every few seconds. The container is that of the process that is watched, which need
not be the watcher's: one may attach from outside.
"""

from __future__ import annotations

from legroom.machine.cgroup import read_cgroup
from legroom.model.trace import MemoryLimit
from legroom.watching.proc import memory_available

READ_EVERY_S = 2.0


class Ceiling:
    """The limit, read anew now and then."""

    def __init__(self, given: int | None, pid: int | None = None) -> None:
        self._given, self._pid = given, pid
        self._limit = MemoryLimit(given, "given") if given is not None else None
        self._next_s = 0.0

    def at(self, t: float, tree_nbytes: int) -> MemoryLimit | None:
        """Return the limit now, None where nothing tells."""
        if self._given is None and t >= self._next_s:
            self._next_s = t + READ_EVERY_S
            self._limit = _left(tree_nbytes, self._pid)
        return self._limit


def _left(tree_nbytes: int, pid: int | None) -> MemoryLimit | None:
    available, cgroup = memory_available(), read_cgroup(pid=pid)
    if cgroup is not None and (available is None or cgroup.available <= available):
        return MemoryLimit(tree_nbytes + cgroup.available, "container")
    return None if available is None else MemoryLimit(tree_nbytes + available, "machine")
