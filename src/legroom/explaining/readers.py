"""Texts that a row of the table cannot read: several sentences that have to be taken together, or reckoned with.

PyTorch's sentences about a GPU, in every wording since 1.0:

    1.0–1.3   (GPU 0; A total capacity; B already allocated; C free; D cached)        D = held and not in use
    1.4–1.8   (… ; D reserved in total by PyTorch)                                    D = held, in use or not
    1.9–2.0   the same, `If reserved memory is >> allocated memory try max_split_size_mb`; `E allowed;` under a fraction
    2.1       GPU 0 has a total capacty of A of which C is free. … Of the allocated memory B is allocated by PyTorch
    2.2 on    the same, spelt right; other processes; private pools; expandable_segments

ROCm says HIP, Intel XPU, Ascend NPU for CUDA, in the same sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from legroom.explaining.frames import frames_before, innermost
from legroom.explaining.log import Log
from legroom.explaining.log_programs import MUCH, REMEDIES, program_of, remedy
from legroom.explaining.sizes import SIZE, array_bytes, first_size, parse_shape, to_bytes
from legroom.model.trace import Explanation, Kind
from legroom.units import GIB, MIB, format_size

KIB = 1 << 10


class Rank(IntEnum):
    """How much the source of a text knows."""

    ECHO = 0  # what a process says because another one died
    SIGNAL = 1  # a signal or an exit code, and nothing about why
    WORKER = 2  # a child is gone
    SAID = 3  # "out of memory", without saying how much
    REFUSED = 4  # an allocator says what it refused
    KILLER = 5  # the kernel or the container's runtime says whom it killed, and why
    MANAGER = 6  # Slurm or Ray says so about its own job


@dataclass(frozen=True)
class Reading:
    """One failure found at one place of the log."""

    place: int
    rank: Rank
    explanation: Explanation


def reading(place: int, rank: Rank, kind: Kind, summary: str, *, certain: bool = True, **facts: Any) -> Reading:
    """Return a reading; `facts` are fields of the Explanation."""
    return Reading(place, rank, Explanation(kind, certain, summary, **facts))


_DEVICE = r"(?:CUDA|HIP|XPU|NPU|MUSA|MLU|HPU|PrivateUse1|OpenCL)"
_HEAD = re.compile(rf"({_DEVICE}) out of memory", re.IGNORECASE)
_TRIED = re.compile(rf"[Tt]ried to allocate {SIZE}")
_OTHERS = re.compile(rf"Process (\d+) has {SIZE} memory in use")
_RAISED = re.compile(r"(?:Error|Exception|error|ERROR|failed|FAILED|!)[^\n]{0,80}$")


def _pytorch(log: Log, place: int) -> Reading | None:
    message = log.message(place)
    head = _HEAD.match(message)
    if head is None:
        return None
    again = _HEAD.search(message, head.end())
    message = message[: again.start()] if again else message
    tried = _TRIED.search(message[:200])
    if tried is None and "more than 1EB" in message[:200]:
        say = "A tensor was requested that is larger than any GPU: one of its dimensions is probably wrong."
        return reading(place, Rank.REFUSED, "cuda", say, advice=(remedy("shapes", "free", "print them at that line"),))
    if tried is None:
        return _without_numbers(log, place, head[1])
    requested = to_bytes(tried[1])
    capacity = _first(message, rf"total capaci?ty of {SIZE}", rf"{SIZE} total capacity")
    free = _first(message, rf"of which {SIZE} is free", rf"{SIZE} free")
    allocated = _first(message, rf"{SIZE} is allocated by PyTorch", rf"{SIZE} already allocated")
    idle = _first(message, rf"{SIZE} is reserved by PyTorch but unallocated", rf"{SIZE} cached")
    reserved = first_size(rf"{SIZE} reserved in total", message)
    if idle is None and reserved is not None and allocated is not None:
        idle = max(reserved - allocated, 0)  # both are rounded, so the difference can come out below nothing
    own = None if allocated is None else allocated + (idle or 0)
    others, outside, notes = _not_pytorch(message, capacity, free, own)
    device = "" if head[1].upper() == "CUDA" else f" ({head[1].upper()})"
    asked = f": {format_size(requested)} more was requested" if requested else ""
    gpu = f" on a GPU of {format_size(capacity)}" if capacity else ""
    return reading(
        place, Rank.REFUSED, "cuda", f"GPU memory ran out{device}{asked}{gpu}.",
        requested=requested, capacity=capacity, free=free, allocated=allocated, reserved_unallocated=idle,
        others=others, outside=outside, notes=(*notes, *_notes(message, requested, capacity, free, allocated, idle)),
    )  # fmt: skip


def _not_pytorch(
    message: str, capacity: int | None, free: int | None, own: int | None
) -> tuple[int | None, int | None, list[str]]:
    """Return what other processes hold, what is held outside PyTorch besides, and what is to be said about both.

    None: the text does not say; 0: nothing. Inside a container PyTorch cannot tell its own process from others and
    lists it among them: where it names none as its own, it is the one that holds at least what PyTorch has, if there is
    only one.
    """
    process = first_size(rf"this process has {SIZE} memory in use", message)
    listed = sorted(to_bytes(match[2]) or 0 for match in _OTHERS.finditer(message))
    if process is None and own and "this process has" not in message:
        large = [size for size in listed if size >= 0.99 * own]
        if len(large) > 1:
            say = f"{len(listed)} processes hold {format_size(sum(listed))}; the text does not say which is this one"
            return None, None, [say]
        if large:
            listed.remove(process := large[0])
    others = sum(listed)
    rest = None if capacity is None or free is None else capacity - free - others
    if process is None:
        unknown = rest - own if rest is not None and own is not None else 0
        if unknown < MUCH:
            return others or None, None, []
        say = f"{format_size(unknown)} is neither free nor PyTorch's: a simulator or an engine in this process, or"
        return others or None, unknown, [f"{say} other processes; the text does not say which"]
    notes = []
    if rest is not None and rest - process >= MUCH:
        others += rest - process
        notes.append(f"{format_size(rest - process)} is held by other processes that the text does not list")
    outside = process - own if own is not None and process - own > 64 * MIB else None
    if own is not None and outside is not None and outside >= MUCH:
        engines = "a simulator (PhysX, Warp, a renderer), an engine (vLLM, XLA, TensorFlow) or another library in it"
        has = f"{engines} has that; smaller batches do not free it"
        who = has if outside > own else f"CUDA itself with its graphs and NCCL, or {engines}; the text does not say"
        notes.append(f"{format_size(outside)} of this process is not PyTorch's: {who}")
    return others, outside, notes


def _notes(
    message: str, requested: int | None, capacity: int | None, free: int | None, allocated: int | None, idle: int | None
) -> list[str]:
    notes = []
    if pools := first_size(rf"with {SIZE} allocated in private pools", message):
        notes.append(f"{format_size(pools)} is in private pools (CUDA graphs)")
    if allowed := first_size(rf"{SIZE} allowed;", message):
        notes.append(f"the process may use {format_size(allowed)} only (a memory fraction was set)")
    if idle and requested and idle >= requested:
        notes.append(f"fragmented: {format_size(idle)} is reserved and unused, in pieces too small for this")
    if free and requested and free >= requested:
        notes.append("more was free than was asked: another process, a quota or fragments took it")
    if allocated and capacity and allocated > capacity:
        notes.append("more is allocated than the GPU has: the Windows driver has spilled into RAM")
    return notes


def _without_numbers(log: Log, place: int, device: str) -> Reading | None:
    """Return a reading where something was raised, not where a sentence merely mentions it."""
    start = log.text.rfind("\n", 0, place) + 1
    before, after = log.text[max(start, place - 160) : place], log.text[place : place + 60].split("\n")[0]
    if before.strip() and not _RAISED.search(before):
        return None
    if not before.strip() and not re.match(rf"{_DEVICE} out of memory[.!]?\s*$", after, re.IGNORECASE):
        return None
    summary = f"GPU memory ran out ({device.upper()}); the amount is not given."
    return reading(place, Rank.SAID, "cuda", summary)


def _first(text: str, *patterns: str) -> int | None:
    return next((size for pattern in patterns if (size := first_size(pattern, text)) is not None), None)


_SHAPED = re.compile(
    rf"Unable to allocate (?:{SIZE} for an )?array with shape (\([\d,\s]*\))(?: and data ?type (\S+))?", re.IGNORECASE
)
_ROUNDING = 0.006  # three digits: 1.00 stands for anything up to 1.005


def _numpy(log: Log, place: int) -> Reading | None:
    """Read NumPy, which states the size rounded to three digits: where shape and type disagree, it is not certain."""
    message = log.message(place, length=500)
    shaped = _SHAPED.match(message)
    sized = re.match(rf"Unable to allocate {SIZE}", message)
    if shaped is None and sized is None:
        return None
    text, shape, dtype = (shaped[1], parse_shape(shaped[2]), shaped[3]) if shaped else (sized and sized[1], None, None)
    dtype = (dtype or "").rstrip(".,;:)\"'`") or None
    exact, stated = array_bytes(shape, dtype), to_bytes(text) if text else None
    agree = exact is None or stated is None or abs(exact - stated) <= _ROUNDING * exact + 1
    notes = () if agree or exact is None else (f"shape and type come to {format_size(exact)}, not what was asked",)
    size = stated if stated is not None else exact
    asked = f" of {format_size(size)}" if size else ""
    return reading(
        place, Rank.REFUSED, "host-array",
        f"Host memory (RAM and swap) ran out: the system refused one array{asked}.",
        requested=size, shape=shape, dtype=dtype, certain=agree, notes=notes,
    )  # fmt: skip


SIGKILL_CODES = (137, -9, 9 + 256)
_VICTIM = re.compile(r"Kill(?:ed)? process (\d+)?(?:,? UID \d+,?)? ?\(([^)\n]{1,64})\)")
_RESIDENT = re.compile(r"(?<!now )anon-rss:\s?(\d+)kB")  # the oom_reaper says what is left: "now anon-rss:0kB"
_SHARED = re.compile(r"(?<!now )anon-rss:.{0,60}shmem-rss:\s?(\d+)kB")
_OF_CGROUP = ("memory cgroup out of memory", "constraint_memcg", "as a result of limit", "mem_cgroup_out_of_memory")


def _kernel(log: Log, place: int) -> Reading | None:
    """Read the kernel's report: whom it killed, and whether for a limit of a container or for the machine."""
    message = log.message(place, length=700)
    victim, resident, shared = _VICTIM.search(message), _RESIDENT.search(message), _SHARED.search(message)
    rss = int(resident[1]) * KIB if resident else None
    who = f"{victim[2]}{f' (process {victim[1]})' if victim[1] else ''}" if victim else "a process"
    holding = f", which held {format_size(rss)}," if rss else ""
    notes = (f"and {format_size(int(shared[1]) * KIB)} of shared memory",) if shared and int(shared[1]) else ()
    around = log.around(place, before=3000, after=400).lower()
    last = max(around.rfind(words) for words in _OF_CGROUP)
    if last < 0 or last < around.rfind("constraint_none"):
        summary = f"Host memory ran out: the kernel killed {who}{holding} to free some."
        return reading(place, Rank.KILLER, "killed", summary, allocated=rss, notes=notes)
    usage = re.findall(r"memory: usage (\d+)kB, limit (\d+)kB", log.around(place, before=6000, after=1500))
    used, limit = (int(kib) * KIB for kib in usage[-1]) if usage else (None, None)
    return reading(
        place, Rank.KILLER, "container",
        f"The memory limit of the container was reached: the kernel killed {who}{holding} inside it.",
        allocated=used if rss is None else rss, capacity=limit, notes=notes,
    )  # fmt: skip


def by_signal(log: Log, place: int) -> Reading:
    """Return the reading of signal 9 alone, also for a process whose exit code is all that is known."""
    return reading(
        place, Rank.SIGNAL, "killed",
        "The process was killed from outside (signal 9): nearly always the kernel because memory ran out, though a "
        "user or a time limit can do the same.", certain=False,
    )  # fmt: skip


_EXCEEDED = re.compile(r"exceeded (?:job |step )?(?:virtual )?memory limit \((\d+) ?> ?(\d+)\)", re.IGNORECASE)


def _slurm(log: Log, place: int) -> Reading | None:
    """Read Slurm, whose `exceeded memory limit (A > B)` counts in KiB; seff has the sizes in lines around."""
    limit, seff = _EXCEEDED.search(log.line(place)), log.around(place)
    used = int(limit[1]) * KIB if limit else first_size(rf"Memory Utilized: {SIZE}", seff)
    capacity = int(limit[2]) * KIB if limit else first_size(rf"Memory Efficiency: [\d.]+% of {SIZE}", seff)
    numbers = f" ({format_size(used)} used of {format_size(capacity)})" if used and capacity else ""
    return reading(
        place, Rank.MANAGER, "slurm",
        f"Slurm killed the job or a part of it: it used more memory than it asked for{numbers}.",
        allocated=used, capacity=capacity,
    )  # fmt: skip


_WORKER_SIDE = re.compile(r"\| _(?:async_)?worker\w* \||process\.py \| (?:_bootstrap|run) ")
_NO_PIPE = re.compile(
    r"urllib|requests/|http/client|aiohttp|/ssl\.py|huggingface_hub|socketserver|paramiko|botocore|wandb/"
    r"|torch/(?:serialization|_weights_only_unpickler)\.py|<stdout>|<stderr>|\| print\(|sys\.stdout"
)  # a network, a file that ends too early, a terminal
_TERMINAL = re.compile(r"<stdout>|<stderr>|sys\.stdout")


def _closed_pipe(log: Log, place: int) -> Reading | None:
    """Read the errors of a pipe whose other end is gone."""
    if _NO_PIPE.search(innermost(log, place, 6)) or _TERMINAL.search(log.around(place, before=150, after=80)):
        return None
    on_worker_side = any(_WORKER_SIDE.search(frame.signature) for frame in frames_before(log, place))
    say = "memory running out is the usual reason, an exception in the environment another."
    return reading(
        place, Rank.ECHO if on_worker_side else Rank.WORKER, "worker-died",
        f"A worker process died; cause unknown: {say}", certain=False,
    )  # fmt: skip


# what PhysX and MuJoCo say, and the setting that it is about: of Isaac Lab's PhysxCfg, of mujoco_warp's Data
_BUFFERS = (
    (r"patch buffer overflow", "gpu_max_rigid_patch_count"),
    (r"contact buffer overflow", "gpu_max_rigid_contact_count"),
    (r"collisionstacksize buffer overflow", "gpu_collision_stack_size"),
    (r"foundlostaggregatepairscapacity", "gpu_found_lost_aggregate_pairs_capacity"),
    (r"totalaggregatepairscapacity", "gpu_total_aggregate_pairs_capacity"),
    (r"foundlostpairscapacity", "gpu_found_lost_pairs_capacity"),
    (r"njmax_nnz overflow", "njmax_nnz"),
    (r"nefc overflow|njmax overflow", "njmax"),
    (r"ccd overflow", "naccdmax"),
    (r"(?:ncon|nacon|broadphase|narrowphase|nconmax|contact) overflow", "nconmax"),
)


def _simulator_buffer(log: Log, place: int) -> Reading | None:
    """Read a buffer that was too small, and the largest size that is asked for: it grows as the scene changes."""
    message = log.message(place, length=400, before=60)
    words, setting = next((row for row in _BUFFERS if re.search(row[0], message, re.I)), ("", ""))
    if not setting:
        return None
    around = " ".join(log.around(place, before=3000, after=400).split())
    asked = re.findall(rf"(?:{words}).{{0,160}}?(?:at least|\bto|needs?)\s+(\d[\d,]*)", around, re.I)
    wanted = max((int(number.replace(",", "")) for number in asked), default=None)
    size = f", at least {wanted:,}" if wanted else ""
    return reading(
        place, Rank.REFUSED, "simulator-buffer",
        f"Memory did not run out: a buffer of the simulator is too small for this scene and drops contacts. Raise "
        f"{setting}{size}; the buffer is allocated on the GPU.",
        advice=(
            remedy(f"{setting}={wanted}" if wanted else setting, "free", "a larger buffer, which loses no contacts"),
            remedy("num_envs", "changes-learning", "fewer environments: fewer contacts"),
        ),
    )  # fmt: skip


_STARTUP = re.compile(r"Free memory on device.{0,20}?\(([\d.]+)/([\d.]+) GiB\).{0,80}?\(([\d.]+), ([\d.]+) GiB\)")


def _engine_start(log: Log, place: int) -> Reading | None:
    """Read vLLM's share of the GPU being larger than what is free when it starts."""
    match = _STARTUP.search(log.message(place, length=400, before=80))
    if match is None:
        return None
    free, capacity, wanted = (round(float(match[group]) * GIB) for group in (1, 2, 4))
    share = f"={int(100 * free / capacity) / 100:.2f}" if capacity else "=0"
    trainer = program_of(log, place)
    prefix = trainer.prefix if trainer else ""
    return reading(
        place, Rank.REFUSED, "kv-cache",
        f"vLLM wants {format_size(wanted)} (gpu_memory_utilization {match[3]}), and {format_size(free)} is free.",
        requested=wanted, free=free, capacity=capacity,
        notes=(f"{format_size(capacity - free)} of the GPU was taken before: by other processes, or by this one",),
        advice=(
            REMEDIES["OTHERS"], remedy(f"{prefix}gpu_memory_utilization{share}", "slower", "at most what is free"),
            REMEDIES["CACHE_BYTES"],
        ),
    )  # fmt: skip


READERS: Mapping[str, Callable[[Log, int], Reading | None]] = {
    "numpy": _numpy,
    "pytorch": _pytorch,
    "kernel": _kernel,
    "signal": by_signal,
    "slurm": _slurm,
    "closed_pipe": _closed_pipe,
    "simulator_buffer": _simulator_buffer,
    "engine_start": _engine_start,
}
