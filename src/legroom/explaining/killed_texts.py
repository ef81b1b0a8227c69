"""A process that was killed: the kernel's own words, a container's, and the signal alone.

The kernel and container runtimes say that memory was the reason. A shell, PyCharm or torchrun only knows signal 9 (exit
code 137 = 128 + 9), which is nearly always the out-of-memory killer, but a user or a time limit can do the same: those
readings are not certain.
"""

from __future__ import annotations

import re

from legroom.explaining.log import Log
from legroom.explaining.reading import Rank, Reading, Recogniser, reading, says
from legroom.explaining.sizes import SIZE, first_size, to_bytes
from legroom.units import format_size

SIGKILL_CODES = (137, -9, 9 + 256)
_VICTIM = re.compile(r"Kill(?:ed)? process (\d+)?(?:,? UID \d+,?)? ?\(([^)\n]{1,64})\)")
_RESIDENT = re.compile(r"(?<!now )anon-rss:\s?(\d+)kB")  # the oom_reaper says what is left: "now anon-rss:0kB"
_SHARED = re.compile(r"(?<!now )anon-rss:.{0,60}shmem-rss:\s?(\d+)kB")
_SIGNALS = re.compile(
    r"""(?:
      ^\s*(?:\S{1,80}:\s)?Killed\s*$
    | (?:it/s|s/it)\]\s*Killed\s*$
    | \bKilled:\s9\b
    | ^\s*(?:zsh|bash|sh|fish|-bash|\S{1,80}\.sh):.{0,80}\b[Kk]illed\b
    | ^\s*\[\d+\]\s*[+-]?\s*(?:\d+\s+)?[Kk]illed\b
    | \bline\s\d+:\s+\d+\s+Killed\b
    | \bexit(?:ed)?(?:\s(?:status|code|with))*(?:\sstatus|\scode)?\s*(?:of|is|was|=|:)?\s*(?:137|-9)\b
    | \b(?:return\s?code|exitcode|exit\scode|rc)\s*[:=]?\s*(?:137|-9)\b
    | \bnon-zero\s(?:exit\s)?(?:status|code)\s(?:137|-9)\b
    | \bSIGKILL\b
    | \b[Ss]ignal:?\s\(?(?:9|KILL)\b
    | \bError\s137\b
    | ^\s*make.{0,80}\sKilled\s*$
    )""",
    re.VERBOSE | re.MULTILINE,
)
# What shells print for signal 9 in other languages: a line of its own, or after a job's number or a script's line.
KILLED_WORDS = (
    "已杀死", "已砍掉", "強制終了", "죽었음", "getötet", "processus arrêté", "terminado (killed)", "matado", "убито",
    "вбито", "ucciso", "morto", "zabity", "unicestwiony", "zabit", "süreç durduruldu", "dödad", "drept",
    "tapettu", "kilőve",
)  # fmt: skip
_LOCAL_SIGNAL = re.compile(
    rf"^\s*(?:\[\d+\]\s*[+-]?\s*|\S{{1,80}}:\s*(?:\S{{1,20}}\s*)?\d+\s*\S{{0,3}}:?\s*|\S{{1,80}}:\s)?(?:\d+\s+)?"
    rf"(?:{'|'.join(re.escape(word) for word in KILLED_WORDS)})(?:\s|$|\()",
    re.I,
)
_UNSURE = "nearly always the kernel because memory ran out, though a user or a time limit can do the same."


def _kernel(log: Log, place: int) -> Reading | None:
    around = log.around(place, before=6000, after=1500)
    message = log.message(place, length=700)
    victim, resident, shared = _VICTIM.search(message), _RESIDENT.search(message), _SHARED.search(message)
    limited = _is_container(log, place)
    rss = int(resident[1]) * 1024 if resident else None
    who = f"{victim[2]}{f' (process {victim[1]})' if victim[1] else ''}" if victim else "a process"
    holding = f", which held {format_size(rss)}," if rss else ""
    notes = [f"and {format_size(int(shared[1]) * 1024)} of shared memory"] if shared and int(shared[1]) else []
    if not limited:
        return reading(
            place, Rank.KILLER, "killed", f"Host memory ran out: the kernel killed {who}{holding} to free some.",
            allocated=rss, notes=tuple(notes),
        )  # fmt: skip
    usage = re.findall(r"memory: usage (\d+)kB, limit (\d+)kB", around)
    limit = int(usage[-1][1]) * 1024 if usage else None
    summary = f"The memory limit of the container was reached: the kernel killed {who}{holding} inside it."
    return reading(
        place, Rank.KILLER, "container", summary,
        allocated=rss if rss is not None else int(usage[-1][0]) * 1024 if usage else None,
        capacity=limit, notes=tuple(notes),
    )  # fmt: skip


def _is_container(log: Log, place: int) -> bool:
    around = log.around(place, before=3000, after=400).lower()
    signs = ("memory cgroup out of memory", "constraint_memcg", "as a result of limit", "mem_cgroup_out_of_memory")
    last = max(around.rfind(words) for words in signs)
    return last > around.rfind("constraint_none") and last >= 0


def _runtime(log: Log, place: int) -> Reading | None:
    """Read Docker and Kubernetes."""
    if re.match(r"oomkilled\"?\s*[:=]\s*\"?(?:false|0)", log.low[place : place + 30]):
        return None
    around = log.around(place, before=2000, after=2500)
    limits = re.search(rf"[Ll]imits\"?:\s.{{0,200}}?\bmemory\"?:\s*\"?{SIZE}", around, re.DOTALL)
    return reading(
        place, Rank.KILLER, "container", "The memory limit of the container was reached, and it was killed.",
        capacity=to_bytes(limits[1]) if limits else None,
    )  # fmt: skip


def _evicted(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=500)
    return reading(
        place, Rank.KILLER, "container", "The Kubernetes node was short of memory and evicted the pod.",
        allocated=first_size(rf"was using {SIZE}", message), free=first_size(rf"available: {SIZE}", message),
    )  # fmt: skip


def _yarn(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=500)
    match = re.search(rf"{SIZE} of {SIZE} physical memory used", message)
    used, limit = (to_bytes(match[1]), to_bytes(match[2])) if match else (None, None)
    return reading(
        place, Rank.KILLER, "container", "The memory limit of the container was reached, and it was killed.",
        allocated=used, capacity=limit,
    )  # fmt: skip


def _local_signal(log: Log, place: int) -> Reading | None:
    return by_signal(place) if _LOCAL_SIGNAL.search(log.line(place)) else None


def _signal(log: Log, place: int) -> Reading | None:
    return by_signal(place) if _SIGNALS.search(log.line(place)) else None


def by_signal(place: int) -> Reading:
    """Return the reading of signal 9 alone, also for a process whose exit code is all that is known."""
    return reading(
        place, Rank.SIGNAL, "killed", f"The process was killed from outside (signal 9): {_UNSURE}", certain=False
    )


RECOGNISERS = (
    Recogniser("signal, in other languages", KILLED_WORDS, _local_signal),
    Recogniser("kernel", ("out of memory: kill", "killed process", "cgroup out of memory", "invoked oom-killer",
                          "oom-kill:constraint", "oom_reaper: reaped process"), _kernel),
    Recogniser("container runtime", ("oomkilled", "oom killed container"), _runtime),
    Recogniser("Kubernetes eviction", ("the node was low on resource: memory",), _evicted),
    Recogniser("YARN", ("running beyond physical memory limits",), _yarn),
    Recogniser("notebook platforms", ("using all available ram", "tried to allocate more memory than is available",
                                      "error r15 (memory quota", "error r14 (memory quota"), says(
        Rank.KILLER, "container", "The notebook or platform used all the memory it may use and was restarted.",
    )),
    Recogniser("systemd and earlyoom", ("killed by the oom killer", "with result 'oom-kill'", "result=oom-kill",
                                        "due to memory pressure for", "low memory! at or below sigterm"), says(
        Rank.KILLER, "killed", "Host memory ran out: the system's out-of-memory guard killed the process.",
    )),
    Recogniser("signal 9", ("killed", "sigkill", "signal 9", "signal: 9", "signal (9", "signal kill", "137", "-9"),
               _signal),
    Recogniser("Jupyter", ("kernel died", "the kernel appears to have died", "kernel has died"), says(
        Rank.SIGNAL, "killed", "The notebook's kernel died: most often because memory ran out; this text does not say.",
        certain=False,
    )),
)  # fmt: skip
