"""Device memory as PyTorch reports it, in every wording since 1.0, and as other GPU libraries do.

    1.0–1.3   (GPU 0; A total capacity; B already allocated; C free; D cached)        D = held and not in use
    1.4–1.8   (… ; D reserved in total by PyTorch)                                    D = held, in use or not
    1.9–2.0   the same, `If reserved memory is >> allocated memory try max_split_size_mb`; `E allowed;` under a fraction
    2.1       GPU 0 has a total capacty of A of which C is free. … Of the allocated memory B is allocated by PyTorch
    2.2 on    the same, spelt right; other processes; private pools; expandable_segments
    cudaMallocAsync   Allocation on device 0 would exceed allowed memory. … Currently allocated : B Requested : R …

ROCm says HIP, Intel XPU, Ascend NPU for CUDA, in the same sentences.
"""

from __future__ import annotations

import re

from legroom.explaining.frames import innermost
from legroom.explaining.jax_texts import XLA
from legroom.explaining.log import Log
from legroom.explaining.log_programs import MUCH, OTHERS, remedy
from legroom.explaining.reading import Rank, Reading, Recogniser, reading
from legroom.explaining.sizes import SIZE, first_size, to_bytes
from legroom.units import MIB, format_size

_DEVICES = ("CUDA", "HIP", "XPU", "NPU", "MUSA", "MLU", "HPU", "PrivateUse1", "OpenCL")
_DEVICE = rf"(?:{'|'.join(_DEVICES)})"
_HEAD = re.compile(rf"({_DEVICE}) out of memory", re.IGNORECASE)
_TRIED = re.compile(rf"[Tt]ried to allocate {SIZE}")
_OTHERS = re.compile(rf"Process (\d+) has {SIZE} memory in use")
_RAISED = re.compile(r"(?:Error|Exception|error|ERROR|failed|FAILED|!)[^\n]{0,80}$")
_CUPY = re.compile(
    rf"out of memory allocating {SIZE} \(allocated so far: {SIZE}(?:, limit set to: {SIZE})?", re.IGNORECASE
)
_PINNING = re.compile(r"pin_memory|pinned|cudaHostAlloc|HostAllocator")
_NO_ROOM = "GPU memory ran out"


def _out_of_memory(log: Log, place: int) -> Reading | None:
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
    capacity = first_size(rf"(?:total capaci?ty of {SIZE})", message) or first_size(rf"{SIZE} total capacity", message)
    free = _first(message, rf"of which {SIZE} is free", rf"{SIZE} free")
    allocated = _first(message, rf"{SIZE} is allocated by PyTorch", rf"{SIZE} already allocated")
    idle = _first(message, rf"{SIZE} is reserved by PyTorch but unallocated", rf"{SIZE} cached")
    reserved = first_size(rf"{SIZE} reserved in total", message)
    if idle is None and reserved is not None and allocated is not None:
        idle = max(reserved - allocated, 0)  # both are rounded, so the difference can come out below nothing
    own = None if allocated is None else allocated + (idle or 0)
    others, outside, notes = _not_pytorch(message, capacity, free, own)
    return reading(
        place, Rank.REFUSED, "cuda", _summary(head[1], requested, capacity),
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
    return reading(place, Rank.SAID, "cuda", f"{_NO_ROOM} ({device.upper()}); the amount is not given.")


def _async_allocator(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=900)
    if "would exceed allowed memory" not in message:
        return None
    requested = first_size(rf"Requested\s*:\s*{SIZE}", message)
    capacity = first_size(rf"Device limit\s*:\s*{SIZE}", message)
    return reading(
        place, Rank.REFUSED if requested else Rank.SAID, "cuda", _summary("CUDA", requested, capacity),
        requested=requested, capacity=capacity,
        free=first_size(rf"Free \(according to CUDA\)\s*:\s*{SIZE}", message),
        allocated=first_size(rf"Currently allocated\s*:\s*{SIZE}", message),
    )  # fmt: skip


def _runtime_error(log: Log, place: int) -> Reading | None:
    """Read what the CUDA runtime, driver and other libraries say without PyTorch's allocator."""
    line = log.line(place)
    if XLA.search(line) or "failed to allocate" in line:
        return None  # the JAX family reads those, with their sizes
    if _PINNING.search(innermost(log, place, 3)):
        return reading(
            place, Rank.SAID, "host-allocator",
            "The CUDA driver could not pin (page-lock) host memory (RAM) for transfers to the GPU, which it reports as "
            "CUDA's out of memory; the amount is not given.",
            advice=(
                remedy("pin_memory=False", "slower", "without pinned memory: slower transfers"),
                remedy("ulimit -l", "free", "the limit on locked memory, where one is set"),
                remedy("offload", "free", "less of it to the host, where it is kept pinned; it needs GPU memory then"),
            ),
        )  # fmt: skip
    return reading(
        place, Rank.SAID, "cuda",
        f"{_NO_ROOM}: CUDA itself refused, outside PyTorch's allocator; the text does not say how much was asked.",
        notes=("often the GPU was full before this process began: look at nvidia-smi",),
    )  # fmt: skip


def _library(log: Log, place: int) -> Reading | None:
    """Read NCCL and bitsandbytes, which allocate beside PyTorch."""
    message = log.message(place, length=160, before=80)
    nccl = "NCCL" in log.around(place, before=700, after=200)
    if not nccl and not re.search(r"out of memory at line \d+ in file \S*(?:pythonInterface|ops)\.", message):
        return None
    size = re.search(r"(?:CUDA calloc(?: async)?|cudaMalloc) (\d+) bytes", log.message(place, length=400))
    requested = int(size[1]) if size else None
    who = "NCCL was refused memory for the communication between GPUs" if nccl else "bitsandbytes was refused"
    asked = f": {format_size(requested)}" if requested else "; the amount is not given"
    return reading(
        place, Rank.REFUSED, "cuda", f"{_NO_ROOM}: {who}, outside PyTorch's allocator{asked}.", requested=requested,
        notes=("PyTorch and others had taken the rest; the text does not say how much each",),
        advice=(
            OTHERS, remedy("batch", "slower", "smaller micro-batches: PyTorch leaves more to other libraries"),
            remedy("gpu_memory_utilization", "slower", "a smaller share, if an engine (vLLM) is on the same GPU"),
        ),
    )  # fmt: skip


def _cublas(log: Log, place: int) -> Reading | None:
    certain = "alloc_failed" in log.low[place : place + 40]
    return reading(
        place, Rank.REFUSED if certain else Rank.SAID, "cublas",
        f"{_NO_ROOM} while cuBLAS made its handle or workspace (8 to 32 MiB outside PyTorch's tensors)."
        if certain
        else "cuBLAS could not start: most often because GPU memory is full, sometimes a driver or library mismatch.",
        certain=certain,
    )  # fmt: skip


def _cudnn(log: Log, place: int) -> Reading | None:
    certain = "alloc_failed" in log.low[place : place + 40]
    return reading(
        place, Rank.SAID, "cuda",
        f"{_NO_ROOM} while cuDNN asked for the workspace of a convolution."
        if certain
        else "cuDNN refused an operation: often because GPU memory is full, sometimes an unsupported tensor.",
        certain=certain,
    )  # fmt: skip


def _cupy(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=400)
    match = _CUPY.match(message)
    if match is None:
        return None
    requested, limit = to_bytes(match[1]), to_bytes(match[3]) if match[3] else None
    return reading(
        place, Rank.REFUSED, "cuda", _summary("CUDA", requested, limit),
        requested=requested, allocated=to_bytes(match[2]), capacity=limit,
    )  # fmt: skip


def _summary(device: str, requested: int | None, capacity: int | None) -> str:
    asked = f": {format_size(requested)} more was requested" if requested else ""
    card = f" on a GPU of {format_size(capacity)}" if capacity else ""
    name = "" if device.upper() == "CUDA" else f" ({device.upper()})"
    return f"{_NO_ROOM}{name}{asked}{card}."


def _first(text: str, *patterns: str) -> int | None:
    return next((size for pattern in patterns if (size := first_size(pattern, text)) is not None), None)


RECOGNISERS = (
    Recogniser("torch device memory", tuple(f"{name.lower()} out of memory" for name in _DEVICES), _out_of_memory),
    Recogniser("torch cudaMallocAsync", ("allocation on device",), _async_allocator),
    Recogniser(
        "CUDA runtime",
        ("cuda error: out of memory", "hip error: out of memory", "cudaerrormemoryallocation", "hiperroroutofmemory",
         "cuda runtime error (2)", "cuda_error_out_of_memory", "cumemalloc failed: out of memory",
         "cuda error 2: out of memory", "cuda driver error: out of memory", "cudamalloc failed: out of memory",
         "cuda failed with error 2 out of memory", "cuda failed with error out of memory"),
        _runtime_error,
    ),
    Recogniser("NCCL, bitsandbytes", ("failed to cuda calloc", "cuda failure 2 'out of memory'",
                                      "cuda failure 'out of memory'", "error out of memory at line"), _library),
    Recogniser("cuBLAS", ("cublas_status_alloc_failed", "cublas_status_not_initialized", "hipblas_status_alloc_failed",
                          "rocblas_status_memory_error"), _cublas),
    Recogniser("cuDNN", ("cudnn_status_alloc_failed", "cudnn_status_not_supported", "cudnn_status_internal_error",
                         "unable to find a valid cudnn algorithm", "miopenstatusallocfailed"), _cudnn),
    Recogniser("cupy", ("out of memory allocating",), _cupy),
)  # fmt: skip
