"""Ray: its memory monitor, which kills workers before the kernel does, its object store, and actors that vanished.

Ray prints `GB` and divides by 1024**3 (`memory_monitor.py`, and the C++ monitor since 2.0). Before 1.0 it divided by
1e9; the message tells: it then lists the top 5 processes and prints `0.76GB`, later releases the top 10 and `0.76GiB`.
"""

from __future__ import annotations

import re

from legroom.explaining.log import Log
from legroom.explaining.reading import Rank, Reading, Recogniser, reading, says
from legroom.explaining.sizes import NUMBER, SIZE, first_size, to_bytes
from legroom.units import format_size

_NODE = re.compile(rf"was {SIZE} / {SIZE} \([\d.]+\)")
_OLD = re.compile(rf"is used \(({NUMBER}) / ({NUMBER}) GB\)")
_OLD_DECIMAL_ROW = re.compile(r"^\s*\d+\s+[\d.]+GB\s", re.MULTILINE)


def _monitor(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=1500)
    node = _NODE.search(message)
    used, total = (to_bytes(node[1]), to_bytes(node[2])) if node else (None, None)
    name = re.search(r"\bname=([^,\s)]{1,80})", message)
    held = first_size(rf"memory used={SIZE}", message)
    who = f" ({name[1]})" if name else ""
    notes = [f"the worker it killed{who} held {format_size(held)}"] if held is not None else []
    numbers = f" ({format_size(used)} of {format_size(total)})" if used and total else ""
    return reading(
        place, Rank.MANAGER, "ray", f"The node's memory was nearly full{numbers}: Ray's monitor killed a worker.",
        allocated=used, capacity=total, notes=tuple(notes),
    )  # fmt: skip


def _old_monitor(log: Log, place: int) -> Reading | None:
    old = _OLD.search(log.message(place, length=400))
    if old is None:
        return None
    after = log.around(place, before=0, after=1500)
    base = 1000 if _OLD_DECIMAL_ROW.search(after) or "The top 5 memory" in after else 1024
    used, total = to_bytes(f"{old[1]} GB", base=base), to_bytes(f"{old[2]} GB", base=base)
    assert used is not None and total is not None
    numbers = f" ({format_size(used)} of {format_size(total)})"
    return reading(
        place, Rank.MANAGER, "ray", f"The node's memory was nearly full{numbers}: Ray refused to continue.",
        allocated=used, capacity=total,
    )  # fmt: skip


def _raylet(log: Log, place: int) -> Reading | None:
    count = re.search(r"(\d+) Workers \(tasks / actors\)", log.line(place))
    if count and count[1] == "0":
        return None
    workers = "some workers" if count is None else f"{count[1]} worker{'s' if count[1] != '1' else ''}"
    # below the monitor's own message, which has the numbers and stands beside this in most logs
    return reading(
        place, Rank.KILLER, "ray", f"The node's memory was nearly full: Ray's monitor killed {workers}.",
    )  # fmt: skip


def _object_store(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=700)
    size = first_size(rf"[Oo]bject size is {SIZE}", message) or first_size(rf"object of size {SIZE}", message)
    lru = re.search(r"\(global lru\) capacity: (\d{4,18})", log.around(place, before=0, after=1500))
    if size is None and not re.search(r"ObjectStoreFull|PlasmaStoreFull|Error|object store is full", log.line(place)):
        return None
    capacity = int(lru[1]) if lru else None
    asked = f": one object of {format_size(size)} did not fit" if size else ""
    return reading(
        place, Rank.REFUSED, "ray", f"Ray's object store (shared memory) is full{asked}.",
        requested=size, capacity=capacity,
    )  # fmt: skip


def _actor_died(log: Log, place: int) -> Reading | None:
    if "because of an error raised in its creation task" in log.message(place, length=300):
        return None  # an exception in the actor's own code, which the log shows
    return reading(
        place, Rank.WORKER, "ray",
        "A Ray worker died without a message. Most often the kernel killed it because memory ran out; not proven here.",
        certain=False,
    )  # fmt: skip


RECOGNISERS = (
    Recogniser("Ray status", ("***low memory***",), says(
        Rank.SIGNAL, "ray", "Ray reports that the node is almost out of memory; what followed is not in this text.",
        certain=False,
    )),
    Recogniser("Ray monitor", ("due to the node running low on memory",), _monitor),
    Recogniser("Ray monitor before 2.0", ("of the memory on node",), _old_monitor),
    Recogniser("raylet summary", ("killed due to memory pressure (oom)", "exit_type = node_out_of_memory",
                                  "exit type: node_out_of_memory", "task failed due to oom"), _raylet),
    Recogniser("Ray object store", ("objectstorefullerror", "object store is full", "plasmastorefull",
                                    "in object store because it is full"), _object_store),
    Recogniser(
        "Ray worker died",
        ("rayactorerror", "the actor died unexpectedly", "workercrashederror", "worker exit type: system_error",
         "killed by sigkill by oom killer", "actordiederror", "the worker died unexpectedly while executing",
         "a worker died or was killed while executing", "rayworkererror"),
        _actor_died,
    ),
)  # fmt: skip
