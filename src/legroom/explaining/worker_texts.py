"""Workers that died, seen by the process that waited for them, and the shared memory between the two.

A closed pipe says that the process on the other end is gone and nothing about why: those readings are not certain. The
same errors also come from the *workers* when the parent died first; they then stand in the worker's own loop
(`_worker`), and whatever else the log says about the parent counts more.
"""

from __future__ import annotations

import re

from legroom.explaining.checkpoint_texts import TORCH_LOADING
from legroom.explaining.frames import frames_before, innermost
from legroom.explaining.log import Log
from legroom.explaining.reading import Rank, Reading, Recogniser, reading
from legroom.explaining.sizes import SIZE, first_size

_WORKER_SIDE = re.compile(r"\| _(?:async_)?worker\w* \||process\.py \| (?:_bootstrap|run) ")
_NETWORK = re.compile(
    r"urllib|requests/|http/client|aiohttp|/ssl\.py|huggingface_hub|socketserver|paramiko|botocore|wandb/"
)
_TERMINAL = re.compile(r"<stdout>|<stderr>|\| print\(|sys\.stdout")
_END = re.compile(r"^\s*(?:builtins\.)?EOFError:?\s*$")
_FULL = re.compile(r"No space left|Cannot allocate|\((?:12|28)\)|unable to write|unable to resize|insufficient")
_LOADER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))?:? ?[\d, ]+\) (exited unexpectedly|is killed by signal:? ?([\w ]*))"
)
_LIKELY = "memory running out is the usual reason, an exception in the environment another."


def _closed_pipe(log: Log, place: int) -> Reading | None:
    line = log.line(place)
    if "eoferror" in log.low[place : place + 8]:
        if not _END.match(line):
            return None
    elif not re.search(r"(?:BrokenPipeError|ConnectionResetError|ConnectionAbortedError|OSError)\b", line):
        return None
    tail = innermost(log, place, 6)
    if TORCH_LOADING.search(tail):
        return None  # a file that ends too early, not a pipe
    if _NETWORK.search(tail) or _TERMINAL.search(tail + log.around(place, before=150, after=80)):
        return None
    on_worker_side = any(_WORKER_SIDE.search(frame.signature) for frame in frames_before(log, place))
    rank = Rank.ECHO if on_worker_side else Rank.WORKER
    return reading(
        place, rank, "worker-died", f"A worker process died; cause unknown: {_LIKELY}", certain=False
    )  # fmt: skip


def _pool(log: Log, place: int) -> Reading | None:
    killed = "SIGKILL(-9)" in log.message(place, length=1200)
    why = "was killed (signal 9): most likely memory ran out." if killed else f"ended; cause unknown: {_LIKELY}"
    return reading(place, Rank.WORKER, "worker-died", f"A process of a pool {why}", certain=False)


def _loader(log: Log, place: int) -> Reading | None:
    """Read PyTorch's DataLoader about its workers."""
    message = log.message(place, length=300)
    match = _LOADER.match(message)
    if match is None:
        return None
    signal = (match[2] or "").strip()
    if signal.startswith("Bus error"):
        return _shm_reading(place)
    why = {
        "Killed": "was killed (signal 9): most likely memory ran out.",
        "Segmentation fault": "crashed (segmentation fault): rarely a matter of memory.",
        "Aborted": "aborted: a native library gave up, often because memory ran out.",
    }.get(signal, f"ended; cause unknown: {_LIKELY}")
    return reading(place, Rank.WORKER, "worker-died", f"A DataLoader worker {why}", certain=False)


def _shared_object(log: Log, place: int) -> Reading | None:
    """Read PyTorch and Python about one object in /dev/shm."""
    message = log.message(place, length=500, before=120)
    if not re.search(r"torch_|shm|shared memory|SharedMemory|psm_|/torch", message):
        return None
    if re.search(r"1455|Permission denied|No such file|File exists", message):
        return None  # 1455 is Windows' page file
    if re.search(r"Too many open files|\(24\)", message):
        return reading(
            place, Rank.SAID, "shm",
            "Shared memory failed because file handles ran out, not bytes: ulimit -n, or fewer workers.", certain=False,
        )  # fmt: skip
    size = first_size(rf"(?:mmap|allocate) {SIZE}", message)
    return _shm_reading(place, certain=bool(_FULL.search(message)), size=size)


def _no_space(log: Log, place: int) -> Reading | None:
    """Read errno 28 where it is about shared memory and not about a disk."""
    tail = innermost(log, place, 5) + log.line(place)
    if not re.search(r"shm|shared_memory|SharedMemory|multiprocessing/(?:heap|synchronize)|SemLock|/torch_|psm_", tail):
        return None
    return _shm_reading(place)


def _shm_reading(place: int, *, certain: bool = True, size: int | None = None) -> Reading:
    return reading(
        place, Rank.REFUSED, "shm",
        "Shared memory (/dev/shm) ran out; in a Docker container it is 64 MiB unless said otherwise.",
        certain=certain, requested=size,
    )  # fmt: skip


RECOGNISERS = (
    Recogniser("closed pipe", ("eoferror", "brokenpipeerror", "connectionreseterror", "connectionabortederror",
                               "[winerror 109]", "[winerror 232]"), _closed_pipe),
    Recogniser("process pools", ("brokenprocesspool", "terminatedworkererror", "a process in the process pool was",
                                 "a worker process managed by the executor was unexpectedly",
                                 "a worker stopped while some jobs were given"), _pool),
    Recogniser("DataLoader", ("dataloader worker (pid",), _loader),
    Recogniser("DataLoader bus error", ("insufficient shared memory (shm)", "out of shared memory"),
               lambda log, place: _shm_reading(place)),
    Recogniser("shared objects", ("unable to open shared memory object", "unable to write to file </torch",
                                  "unable to allocate shared memory", "unable to mmap", "unable to resize file </torch",
                                  "shm_open", "error while creating shared memory", "unable to write to file <"),
               _shared_object),
    Recogniser("errno 28 in shared memory", ("no space left on device", "errno 28"), _no_space),
)  # fmt: skip
