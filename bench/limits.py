"""Run something under a hard memory limit: a cgroup where one can be made, else a watchdog on the tree's PSS.

A cgroup kills at the byte, counts shared memory and the kernel's own, and leaves out library pages that somebody else
read first; PSS counts those too, so the peak of both is reported and both have to be inside.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from legroom.machine.tree import TreeMemory, descendants, tree_memory

ROOTS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
LIMITS = {"memory.limit_in_bytes": "memory.max_usage_in_bytes", "memory.max": "memory.peak"}
EVERY_S = 0.1  # a sample costs milliseconds of processor time, and the kernel keeps the peaks of processes


@dataclass(frozen=True)
class Limited:
    """How it ended: exit code (negative: the signal), peaks in bytes, and whether the limit killed it.

    Args:
        full_peak: with mapped files of libraries in full, whoever else on this machine has them mapped, and the largest
            process as high as the kernel saw it: on a busy machine samples miss moments.
        held_peak: the largest sample of what the kernel cannot give up: anonymous and shared memory and its own.
        kernel_peak: the kernel's own part of that (page tables, stacks, sockets, inodes).
    """

    exit_code: int
    pss_peak: int
    cgroup_peak: int | None
    killed_by_limit: bool
    seconds: float
    full_peak: int = 0
    held_peak: int = 0
    kernel_peak: int = 0


@contextmanager
def cgroup(limit: int) -> Iterator[Path | None]:
    """Make a cgroup with this memory limit; None where that is not allowed."""
    made = None
    for root in ROOTS:
        group = root / f"legroom-bench-{os.getpid()}"
        try:
            group.mkdir()
            name = next(name for name in LIMITS if (group / name).exists())
            (group / name).write_text(str(limit))
            made = group
            break
        except (OSError, StopIteration):
            with suppress(OSError):
                group.rmdir()
    try:
        yield made
    finally:
        if made is not None:
            for _ in range(50):
                with suppress(OSError):
                    made.rmdir()
                    break
                time.sleep(0.1)


def run_limited(command: Sequence[str], limit: int, *, longest_s: float, **popen: object) -> Limited:
    """Run the command in a session of its own, inside the limit, to its end or until it is killed."""
    began = time.monotonic()
    with cgroup(limit) as group:
        into = f"echo $$ > {group}/cgroup.procs && " if group else ""
        child = subprocess.Popen(
            ["sh", "-c", f'{into}exec "$@"', "sh", *command],
            start_new_session=True,
            **popen,  # type: ignore[call-overload]
        )
        peak, full, held, kernel, killed = 0, 0, 0, 0, False
        try:
            while child.poll() is None:
                tree = tree_memory(child.pid)
                pss = tree.pss
                peak, full = max(peak, pss), max(full, _in_full(tree))
                anonymous, own = _held(group)
                held, kernel = max(held, anonymous + own), max(kernel, own)
                killed = killed or (group is None and pss > limit)
                if killed or time.monotonic() - began > longest_s:
                    break
                time.sleep(EVERY_S)
        finally:
            for pid in {child.pid, *descendants(child.pid)}:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            child.wait()
        highest = None
        if group is not None:
            highest = next(int((group / name).read_text()) for name in LIMITS.values() if (group / name).exists())
            killed = _oom_kills(group) > 0
        return Limited(child.returncode, peak, highest, killed, time.monotonic() - began, full, held, kernel)


def _in_full(tree: TreeMemory) -> int:
    largest = max(tree.processes.values(), key=lambda process: process.rss_peak, default=None)
    if largest is None:
        return 0
    others = (process for process in tree.processes.values() if process is not largest)
    return largest.rss_peak + sum(process.pss - process.pss_file for process in others)


def _held(group: Path | None) -> tuple[int, int]:
    """Return a cgroup's anonymous and shared memory, and the kernel's own; zeros without one."""
    if group is None or not (group / "memory.stat").exists():
        return 0, 0
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    own = group / "memory.kmem.usage_in_bytes"  # version 1; version 2 has it in memory.stat
    kernel = int(own.read_text()) if own.exists() else int(stat.get("kernel", 0))
    return int(stat.get("anon", stat.get("rss", 0))) + int(stat.get("shmem", 0)), kernel


def _oom_kills(group: Path) -> int:
    for name in ("memory.oom_control", "memory.events"):
        if (group / name).exists():
            fields = dict(line.split() for line in (group / name).read_text().splitlines())
            return int(fields.get("oom_kill", 0))
    return 0
