"""Limits of the system that a process has run into, in one line with the numbers and the way out.

Too few descriptors or processes show anywhere, as an exception of whatever was being opened or started just then.
"""

from __future__ import annotations

import errno
import resource
from pathlib import Path

_PIDS_MAX = Path("/sys/fs/cgroup/pids.max")


def limit_reached(error: BaseException) -> str | None:
    """Return which limit an exception is about, None where it is about none."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        allowed, most = (_shown(each) for each in resource.getrlimit(resource.RLIMIT_NOFILE))
        return f"too many open files: {allowed} are allowed here (raise it: ulimit -n 1024; the most is {most})"
    if number == errno.ENFILE:
        return "too many open files on this machine (raise it: sysctl fs.file-max)"
    if isinstance(error, BlockingIOError) or str(error) == "can't start new thread":
        allowed, _ = (_shown(each) for each in resource.getrlimit(resource.RLIMIT_NPROC))
        container = f", {_PIDS_MAX.read_text().strip()} in this container (pids.max)" if _PIDS_MAX.exists() else ""
        return (
            f"no further process or thread can be started: {allowed} are allowed to this user{container} "
            "(raise it: ulimit -u, or the container's pids limit; or fewer workers, and OMP_NUM_THREADS=1)"
        )
    return None


def _shown(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else f"{limit:,}"
