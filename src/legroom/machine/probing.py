"""Probe this machine: memory, container limit, shared memory, GPUs, cores and library versions.

Cheap enough to run in every command (a few milliseconds): it reads a handful of small files and imports no library it
reports on. Linux is read from /proc below `root`, which tests replace by a tree of their own; elsewhere psutil tells.

A scheduler's limit is enforced by a cgroup on most systems, and that is read anyway; its variables say whose limit it
is. Where the cgroup has none (Slurm without `ConstrainRAMSpace`, HTCondor's polling) the job is killed by someone who
looks every half minute, so the number in the variables is a limit as well.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from legroom.machine.cgroup import CgroupMemory, read_cgroup
from legroom.machine.gpus import read_gpus
from legroom.machine.versions import read_versions
from legroom.model.machine import Machine
from legroom.units import MIB

_CONDOR_MEMORY = re.compile(r"^\s*Memory\s*=\s*(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Job:
    """What started this process: `name` for people, and the limit that its variables name, None where they do not."""

    name: str
    limit: int | None = None
    said: str = ""  # where the number is from: a variable, or a file


def probe(root: Path = Path("/")) -> Machine:
    """Return what a process started now would find here.

    `limit` is None where no limit of a container or a scheduler lies below the RAM. `available` is the smallest of what
    the kernel says is available, what the container has left and what the scheduler gave. `swap` is its total, `shm`
    what is free in /dev/shm.

    Example:
        >>> import legroom
        >>> machine = legroom.probe()
        >>> 0 < machine.available <= machine.ram
        True
    """
    ram, available, swap = _read_meminfo(root / "proc/meminfo") or _ask_psutil()
    cgroup = read_cgroup(root)
    job = read_job(os.environ, root)
    limit, origin = _tightest(ram, cgroup, job)
    left = [available, *([cgroup.available] if cgroup else []), *([job.limit] if job and job.limit else [])]
    return Machine(
        ram=ram,
        limit=limit,
        available=min(left),
        swap=swap,
        shm=_free_shm(root / "dev/shm"),
        gpus=read_gpus(root=root, visible=os.environ.get("CUDA_VISIBLE_DEVICES")),
        versions=read_versions(),
        cores=count_cores(),
        job=job.name if job else "",
        limit_origin=origin,
        maps_anything=_first_line(root / "proc/sys/vm/overcommit_memory") == "1",
    )


def _first_line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # no Linux
        return ""


def _tightest(ram: int, cgroup: CgroupMemory | None, job: Job | None) -> tuple[int | None, str]:
    """Return the smallest limit below the RAM, and who says so; None where there is none."""
    by_cgroup = f"cgroup of {job.name}" if job else "the smallest of this process's cgroups"
    limits = [(job.limit, f"{job.name}, {job.said}")] if job is not None and job.limit is not None else []
    limits += [(cgroup.limit, by_cgroup)] if cgroup else []
    below = [each for each in limits if each[0] < ram]
    return min(below, key=lambda each: each[0]) if below else (None, "")


def _read_meminfo(path: Path) -> tuple[int, int, int] | None:
    """Return RAM, what is left of it, and swap by the kernel; None without such a file, or where it makes no sense."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    kib = {}
    for line in lines:
        name, _, value = line.partition(":")
        number = value.split()[0] if value.split() else ""
        if number.isdecimal():
            kib[name] = int(number)
    if not kib.get("MemTotal"):
        return None
    # kernels before 3.14 and some sandboxes leave MemAvailable out; this is what it replaced
    reclaimable = kib.get("MemFree", 0) + kib.get("Buffers", 0) + kib.get("Cached", 0) - kib.get("Shmem", 0)
    available = min(max(kib.get("MemAvailable", reclaimable), 0), kib["MemTotal"])
    return kib["MemTotal"] * 1024, available * 1024, kib.get("SwapTotal", 0) * 1024


def _ask_psutil() -> tuple[int, int, int]:
    psutil = import_module("psutil")  # 15 ms that Linux does not need
    memory = psutil.virtual_memory()
    return int(memory.total), int(memory.available), int(psutil.swap_memory().total)


def _free_shm(path: Path) -> int:
    try:
        stat = os.statvfs(path)
    except (OSError, AttributeError):  # there is none; Windows has no statvfs
        return 0
    return stat.f_bavail * stat.f_frsize


def count_cores() -> int:
    """Return the cores this process may use, which taskset, Slurm and docker's --cpuset-cpus restrict."""
    if sys.platform.startswith("linux") and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_job(environ: Mapping[str, str], root: Path = Path("/")) -> Job | None:
    """Return the job, the innermost first: a Slurm job may run a container; None outside of all of them."""
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return Job("this pod")
    if environ.get("SLURM_JOB_ID"):
        limit, said = _slurm_limit(environ)
        return Job(f"Slurm job {environ['SLURM_JOB_ID']}", limit, said)
    if environ.get("_CONDOR_MACHINE_AD"):
        return Job("this HTCondor job", _condor_limit(Path(environ["_CONDOR_MACHINE_AD"])), "its machine ad")
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        return Job("this container")
    return None


def _slurm_limit(environ: Mapping[str, str]) -> tuple[int | None, str]:
    """Return the job's memory on this node, and the option it was asked for with; Slurm counts in MiB."""
    if per_node := _number(environ.get("SLURM_MEM_PER_NODE")):
        return per_node * MIB, f"--mem={per_node}M"
    for option, each, count in (
        ("--mem-per-cpu", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"),
        ("--mem-per-gpu", "SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"),
    ):
        nbytes, number = _number(environ.get(each)), _number(environ.get(count))
        if nbytes and number:
            return nbytes * number * MIB, f"{option}={nbytes}M × {number}"
    return None, ""  # --mem=0: all of the node


def _condor_limit(ad: Path) -> int | None:
    try:
        found = _CONDOR_MEMORY.search(ad.read_text(errors="replace"))
    except OSError:
        return None
    return int(found[1]) * MIB if found and int(found[1]) else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and int(text) else None
