"""The container's memory limit, from cgroup v1, v2 or both mounted side by side (hybrid).

A container sees the whole machine's RAM in /proc/meminfo; what kills its processes is the cgroup. Limits nest: docker,
Kubernetes, Slurm and systemd each add levels, and the tightest one decides, which need not be the innermost. So the
walk goes from this process' own cgroup up to the mount point and looks at every level.

What counts as used is the working set, `usage - inactive_file`: the kernel drops inactive page cache before it kills,
and leaving it in would call a machine full that has merely read a large file. Docker and the kubelet count alike.

Every path is taken below `root`, so that a test can write a whole tree of its own. Nothing here raises: a file that is
missing, unreadable or malformed is a limit that is not there. Paths are plain text, as in `machine.tree`: this is read
every second.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

# v1 says "no limit" with the largest multiple of a page below 2**63: 9223372036854771712 with pages of 4 KiB,
# 9223372036854710272 with 64 KiB. No machine has a quarter of that, so anything above is "none".
UNLIMITED_FROM = 1 << 61
KILL_COUNTERS = ("memory.events", "memory.oom_control")  # of v2 and v1; both have a line `oom_kill N`


@dataclass(frozen=True)
class CgroupMemory:
    """The tightest limit above this process, and what is left below the limits of all levels."""

    limit: int  # smallest limit in bytes
    available: int  # smallest `limit - working set` over the levels, never negative
    # whether the smallest limit is `memory.high`, beyond which v2 throttles instead of killing. A training run that is
    # throttled there stops making progress, so it counts as a limit.
    soft: bool
    path: str  # the directory that holds the smallest limit
    # what the levels can still give before the kernel has to kill. More than what is `available`: page cache in use is
    # given up too before anything is killed, if slowly.
    left: int


@dataclass(frozen=True)
class _Files:
    """What the two versions call their files."""

    limits: tuple[str, ...]  # the hard one first
    usage: str
    inactive: str  # keys in memory.stat that cover the level and everything below it
    active: str


_V1 = _Files(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file", "total_active_file")
_V2 = _Files(("memory.max", "memory.high"), "memory.current", "inactive_file", "active_file")


def read_cgroup(root: Path = Path("/"), pid: int | None = None) -> CgroupMemory | None:
    """Return the memory limit a process lives under, this one or `pid`, None when there is none."""
    levels = [level for files, folder, mount in own_cgroups(root, pid) for level in _levels(files, folder, mount)]
    if not levels:
        return None
    tightest = min(levels, key=lambda level: level.limit)
    available, left = min(level.available for level in levels), min(level.left for level in levels)
    return replace(tightest, available=available, left=left)


def oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the kernel has killed for memory in this process' cgroup, 0 where it does not tell."""
    counters = [f"{folder}/{name}" for _, folder, _ in own_cgroups(root) for name in KILL_COUNTERS]
    counting = [path for path in counters if "oom_kill " in _read_text(path)]
    return max(_read_stat(path, "oom_kill") for path in counting or [_below(root, "proc/vmstat")])


def _below(root: Path, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))  # noqa: PTH118


def _levels(files: _Files, folder: str, mount: str) -> Iterator[CgroupMemory]:
    level = folder
    while True:
        found = [(_read_limit(f"{level}/{name}"), name != files.limits[0]) for name in files.limits]
        limits = [(value, soft) for value, soft in found if value]
        if limits:
            limit, soft = min(limits)
            used, stat = _read_int(f"{level}/{files.usage}") or 0, f"{level}/memory.stat"
            available = max(0, limit - max(0, used - _read_stat(stat, files.inactive)))
            yield CgroupMemory(limit, available, soft, level, min(available + _read_stat(stat, files.active), limit))
        if level in (mount, above := os.path.dirname(level)):  # noqa: PTH120
            return
        level = above


def own_cgroups(root: Path, pid: int | None = None) -> Iterator[tuple[_Files, str, str]]:
    """Yield (file names, own directory, mount point) of each hierarchy that may account the process' memory.

    In a hybrid set-up only one of them has the memory controller; the other has no limit files and yields no level.
    """
    own = _own_paths(root, pid)
    mounts = _mounts(root)
    for version, files in (("v1", _V1), ("v2", _V2)):
        if version in own and version in mounts:
            mount, mount_root = mounts[version]
            yield files, _own_folder(mount, mount_root, own[version]), mount


def _own_paths(root: Path, pid: int | None) -> dict[str, str]:
    """Return the process' cgroup in the v1 memory hierarchy and in the v2 one, from lines `id:controllers:path`."""
    found = {}
    for line in _read_text(_below(root, f"proc/{pid or 'self'}/cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            found["v1"] = path
        elif number == "0" and not controllers:
            found["v2"] = path
    return found


def _mounts(root: Path) -> dict[str, tuple[str, str]]:
    """Return (mount point below `root`, the cgroup that is mounted there) of both hierarchies.

    Distributions agree on /sys/fs/cgroup but not on what lies there, and a container without a cgroup namespace has
    its own cgroup mounted as if it were the top; /proc/self/mountinfo tells both.
    """
    found: dict[str, tuple[str, str]] = {}
    for line in _read_text(_below(root, "proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        where = (_below(root, fields[4]).rstrip("/") or "/", fields[3])
        if kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found.setdefault("v1", where)
        elif kind[0] == "cgroup2":
            found.setdefault("v2", where)
    if not found:  # a sandbox that hides its mounts: the usual places
        top = _below(root, "sys/fs/cgroup")
        found["v1"] = (f"{top}/memory", "/")
        found["v2"] = (top if os.path.exists(f"{top}/cgroup.controllers") else f"{top}/unified", "/")  # noqa: PTH110
    return found


def _own_folder(mount: str, mount_root: str, own: str) -> str:
    """Return the deepest existing directory for the cgroup path `own` below its mount point."""
    parts, top = ([part for part in path.split("/") if part not in ("", ".")] for path in (own, mount_root))
    if parts[: len(top)] == top:
        parts = parts[len(top) :]
    # A path with ".." leads out of our cgroup namespace, one that is missing was mounted away: what can be seen is
    # the mount point, and its limit is still ours.
    parts = [] if ".." in parts else parts
    while parts and not os.path.isdir("/".join((mount, *parts))):  # noqa: PTH112
        parts.pop()
    return "/".join((mount, *parts))


def _read_limit(path: str) -> int | None:
    value = _read_int(path)  # v2 writes "max" for none, which is not a number
    return value if value is not None and 0 < value < UNLIMITED_FROM else None


def _read_stat(path: str, key: str) -> int:
    for line in _read_text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.strip().isdecimal():
            return int(value)
    return 0


def _read_int(path: str) -> int | None:
    text = _read_text(path).strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


OF_MACHINE = "proc/pressure/memory"
OF_CGROUP = "memory.pressure"  # v2 only
_AVG10 = re.compile(r"^full\b.*\bavg10=(\d+\.?\d*)(?!\S)", re.MULTILINE)


def read_pressure(root: Path = Path("/")) -> float | None:
    """Return the share of the last 10 s in which every process stood still for memory, None where nobody tells.

    That of the container where it has one of its own, else that of the machine: the kernel's pressure stall
    information. A container that is nearly full does not die at once: the kernel first takes back pages of programs
    and files, which are read again a moment later. Everything becomes slow, and this figure rises before the killing.
    """
    for path in (*(f"{folder}/{OF_CGROUP}" for _, folder, _ in own_cgroups(root)), _below(root, OF_MACHINE)):
        share = _full(_read_text(path))  # none: a kernel without it, or with psi=0
        if share is not None:
            return share
    return None


def _full(text: str) -> float | None:
    """Return `avg10` of the line `full avg10=1.53 avg60=...`, in percent there."""
    found = _AVG10.search(text)
    return None if found is None else float(found[1]) / 100
