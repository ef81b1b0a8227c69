"""Limits of the system that a process has run into, in one line with the numbers and the way out.

Too few descriptors or processes show anywhere, as an exception of whatever was being opened or started just then.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

resource: Any = None
with suppress(ImportError):  # Windows has none of these limits
    resource = import_module("resource")

_GROUPS, _MINE = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def limit_reached(error: BaseException) -> str | None:
    """Return which limit an exception is about, None where it is about none."""
    if resource is None:
        return None
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        allowed, most = (_shown(each) for each in resource.getrlimit(resource.RLIMIT_NOFILE))
        return f"too many open files: {allowed} are allowed here (raise it: ulimit -n 1024; the most is {most})"
    if number == errno.ENFILE:
        return "too many open files on this machine (raise it: sysctl fs.file-max)"
    if isinstance(error, BlockingIOError) or str(error) == "can't start new thread":
        allowed, _ = (_shown(each) for each in resource.getrlimit(resource.RLIMIT_NPROC))
        most = _pids_max()
        container = f", {most} in this container (pids.max)" if most else ""
        return (
            f"no further process or thread can be started: {allowed} are allowed for this user{container} "
            "(raise it: ulimit -u, or the container's pids limit; or fewer workers, and OMP_NUM_THREADS=1)"
        )
    return None


def _pids_max() -> str:
    """Return how many processes and threads this process's control group allows; empty where that is not known."""
    try:
        for line in _MINE.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "pids"):
                for group in (_GROUPS / controllers / path.lstrip("/"), _GROUPS / controllers):
                    if (group / "pids.max").exists():
                        return (group / "pids.max").read_text().strip()
    except (OSError, ValueError):
        pass
    return ""


def _shown(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else f"{limit:,}"
