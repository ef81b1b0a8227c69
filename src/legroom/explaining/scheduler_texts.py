"""Batch systems that kill a job for its memory: Slurm first, PBS, LSF, SGE and HTCondor.

Slurm's `exceeded memory limit (A > B)` counts in KiB. The other systems have no kind of their own: theirs is a limit
around the job, as a container's is.
"""

from __future__ import annotations

import re

from legroom.explaining.log import Log
from legroom.explaining.reading import Rank, Reading, Recogniser, reading, says
from legroom.explaining.sizes import SIZE, first_size, to_bytes
from legroom.units import format_size

_EXCEEDED = re.compile(r"exceeded (?:job |step )?(?:virtual )?memory limit \((\d+) ?> ?(\d+)\)", re.IGNORECASE)
_SLURM = re.compile(r"slurm|srun|stepid|oom.?kill event|(?:job|step) memory limit|(?:job|step) \d+", re.IGNORECASE)
_STATE = re.compile(r"(?<![A-Z_])OUT_OF_ME(?:MORY|\+)")
_TASK = re.compile(r"srun: error: .{0,120}: Out Of Memory", re.IGNORECASE)


def _task(log: Log, place: int) -> Reading | None:
    return _slurm(log, place) if _TASK.search(log.line(place)) else None


def _state(log: Log, place: int) -> Reading | None:
    """Read the state that sacct, seff and mails give: `OUT_OF_MEMORY`, in a column `OUT_OF_ME+`."""
    return _killed_by_slurm(log, place) if _STATE.match(log.text, place) else None


def _slurm(log: Log, place: int) -> Reading | None:
    return _killed_by_slurm(log, place) if _SLURM.search(log.around(place, before=400, after=400)) else None


def _killed_by_slurm(log: Log, place: int) -> Reading:
    limit = _EXCEEDED.search(log.line(place))
    seff = log.around(place)
    used = int(limit[1]) * 1024 if limit else first_size(rf"Memory Utilized: {SIZE}", seff)
    capacity = int(limit[2]) * 1024 if limit else first_size(rf"Memory Efficiency: [\d.]+% of {SIZE}", seff)
    numbers = f" ({format_size(used)} used of {format_size(capacity)})" if used and capacity else ""
    return reading(
        place, Rank.MANAGER, "slurm",
        f"Slurm killed the job or a part of it: it used more memory than it asked for{numbers}.",
        allocated=used, capacity=capacity,
    )  # fmt: skip


def _slurm_cgroup(log: Log, place: int) -> Reading | None:
    """Read the kernel's words about a cgroup that Slurm made."""
    around = log.around(place, before=1500, after=1500)
    usage = re.findall(r"memory: usage (\d+)kB, limit (\d+)kB", around)
    rss = re.findall(r"anon-rss:(\d+)kB", around)
    if not re.search(r"oom|out of memory|killed as a result", around, re.IGNORECASE):
        return None
    return reading(
        place, Rank.MANAGER, "slurm", "The memory limit of the Slurm job was reached: the kernel killed a part of it.",
        allocated=int(rss[-1]) * 1024 if rss else None, capacity=int(usage[-1][1]) * 1024 if usage else None,
    )  # fmt: skip


def _pbs(log: Log, place: int) -> Reading | None:
    match = re.search(rf"v?mem {SIZE} exceeded limit {SIZE}", log.message(place, length=200))
    used, limit = (to_bytes(match[1]), to_bytes(match[2])) if match else (None, None)
    return _job_limit(place, "PBS", used, limit)


def _lsf(log: Log, place: int) -> Reading | None:
    around = log.around(place)
    used = first_size(rf"Max Memory\s*:\s*{SIZE}", around)
    return _job_limit(place, "LSF", used, first_size(rf"Total Requested Memory\s*:\s*{SIZE}", around))


def _job_limit(place: int, who: str, used: int | None, limit: int | None) -> Reading:
    numbers = f" ({format_size(used)} used of {format_size(limit)})" if used and limit else ""
    return reading(
        place, Rank.MANAGER, "container", f"The job's memory limit was reached{numbers}: {who} killed it.",
        allocated=used, capacity=limit,
    )  # fmt: skip


RECOGNISERS = (
    Recogniser(
        "Slurm",
        ("oom-kill event", "oom_kill event", "cgroup out-of-memory handler", "exceeded job memory limit",
         "exceeded step memory limit", "exceeded memory limit (", "exceeded virtual memory limit"),
        _slurm,
    ),
    Recogniser("srun", (": out of memory",), _task),
    Recogniser("Slurm's accounting", ("out_of_memory", "out_of_me+"), _state),
    Recogniser("Slurm's cgroup", ("/slurm/uid_", "slurmstepd.scope/job_"), _slurm_cgroup),
    Recogniser("PBS", ("pbs: job killed: mem", "pbs: job killed: vmem"), _pbs),
    Recogniser("LSF", ("term_memlimit",), _lsf),
    Recogniser("SGE, HTCondor", ("exceeds job hard limit \"h_vmem\"", "memory usage exceeded request_memory",
                                 "cgroup memory limit exceeded"), says(
        Rank.MANAGER, "container", "The job's memory limit was reached: the batch system killed it.",
    )),
)  # fmt: skip
