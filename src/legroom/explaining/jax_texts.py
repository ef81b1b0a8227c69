"""XLA's refusals as JAX (and TensorFlow) print them, on GPU, TPU and CPU.

Out of memory while trying to allocate N bytes.      with `BufferAssignment stats` of the compiled program
Out of memory while trying to allocate 5.21GiB.      newer releases
Out of memory allocating N bytes.
Failed to allocate request for 32.00MiB (33554432B) on device ordinal 0
Attempting to reserve 8.54G at the bottom of memory. That was not possible. There are 6.50G free …        TPU
Ran out of memory in memory space hbm. Used 20.48G of 15.48G hbm.                                         TPU
"""

from __future__ import annotations

import re

from legroom.explaining.log import Log
from legroom.explaining.reading import Rank, Reading, Recogniser, reading, says
from legroom.explaining.sizes import SIZE, array_bytes, first_size, parse_shape, to_bytes
from legroom.model.explanation import Kind
from legroom.units import format_size

_STATS = {
    "parameter allocation": "parameters", "constant allocation": "constants",
    "maybe_live_out allocation": "results", "preallocated temp allocation": "temporaries",
    "total allocation": "the whole program",
}  # fmt: skip
XLA = re.compile(
    r"RESOURCE_EXHAUSTED|INTERNAL: |xla|jax|pjrt|tensorflow|cuda_driver|stream_executor|launch CUDA kernel",
    re.IGNORECASE,
)
_TENSOR = re.compile(
    r"allocating tensor(?: of size| with shape) ?(\[[\d,\s]*\])(?: and type (\w+))?"
    r"(?: on (\S+))?(?: by allocator (\S+))?"
)


_PLACEHOLDER = re.compile(r"trying to allocate [XN?]+[.X]*\s?(?:[KMGT]?i?B|bytes)")  # as documents quote it


def _trying(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=4000)
    found = re.search(rf"(?:allocate|allocating|request for) (?:additional )?{SIZE}(?: \({SIZE}\))?", message[:200])
    if found is None and _PLACEHOLDER.search(message[:200]):
        return reading(place, Rank.SAID, "jax", _summary(None))
    if found is None or "(allocated so far" in message[:200]:
        return None
    requested = to_bytes(found[2] or found[1])  # the number in parentheses is exact
    notes = [
        f"{words} {format_size(size)}"
        for name, words in _STATS.items()
        if (size := first_size(rf"{re.escape(name)}:\s*{SIZE}", message[:1200])) is not None
    ]
    notes = [f"the compiled program needs: {', '.join(notes)}"] if notes else []
    return reading(place, Rank.REFUSED, "jax", _summary(requested), requested=requested, notes=tuple(notes))


def _tpu(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=600)
    requested = first_size(rf"Attempting to (?:reserve|allocate) {SIZE}", message)
    free = first_size(rf"There are {SIZE} free", message)
    used = re.search(rf"Used {SIZE} of {SIZE} \w+", message)
    if requested is None and used is None:
        return None
    capacity, allocated = (to_bytes(used[2]), to_bytes(used[1])) if used else (None, None)
    return reading(
        place, Rank.REFUSED, "jax", _summary(requested),
        requested=requested, free=free, capacity=capacity, allocated=allocated,
    )  # fmt: skip


def _driver(log: Log, place: int) -> Reading | None:
    """Read the CUDA driver's lines in a JAX or TensorFlow log: `failed to allocate 2.00G (2147483648 bytes) …`."""
    message = log.message(place, length=200)
    pinned = re.match(r"failed to alloc(?:ate)? (\d+) bytes on host", message, re.IGNORECASE)
    if pinned is not None:
        size = int(pinned[1])
        return reading(
            place, Rank.REFUSED, "host-allocator",
            f"The CUDA driver could not lock {format_size(size)} of host memory (RAM) for transfers to the GPU.",
            requested=size,
        )  # fmt: skip
    match = re.match(rf"failed to allocate? {SIZE} \({SIZE}\)", message, re.IGNORECASE)
    return None if match is None else reading(
        place, Rank.REFUSED, "jax", _summary(to_bytes(match[2])), requested=to_bytes(match[2])
    )  # fmt: skip


def _allocator(log: Log, place: int) -> Reading | None:
    requested = first_size(rf"trying to allocate {SIZE}", log.message(place, length=200))
    return None if requested is None else reading(place, Rank.SAID, "jax", _summary(requested), requested=requested)


def _bare(log: Log, place: int) -> Reading | None:
    line = log.line(place)
    if not re.search(r"memory|allocat|hbm|exhausted: *$", line, re.IGNORECASE) or "disk quota" in line.lower():
        return None
    return reading(place, Rank.SAID, "jax", _summary(None))


def _driver_bare(log: Log, place: int) -> Reading | None:
    line = log.line(place)
    total = re.search(r"total memory reported: (\d+)", log.message(place, length=200))
    capacity = int(total[1]) if total else None
    if "tensorflow.python" in line:
        return reading(
            place, Rank.SAID, "cuda", "GPU memory is taken already: TensorFlow could not open the GPU.",
            capacity=capacity,
        )  # fmt: skip
    return reading(place, Rank.SAID, "jax", _summary(None), capacity=capacity) if XLA.search(line) else None


def _tensor(log: Log, place: int) -> Reading | None:
    """Read TensorFlow's `OOM when allocating tensor with shape[…] and type float on …/device:GPU:0`."""
    match = _TENSOR.search(log.message(place, length=500))
    if match is None:
        return None
    shape, dtype = parse_shape(match[1]), match[2]
    device = f"{match[3] or ''} {match[4] or ''}".lower()
    kind: Kind = "host-array" if "cpu" in device else "cuda"
    size = array_bytes(shape, dtype)
    where = "Host memory (RAM)" if kind == "host-array" else "GPU memory"
    asked = f" of {format_size(size)}" if size else ""
    return reading(
        place, Rank.REFUSED, kind, f"{where} ran out: TensorFlow asked for one tensor{asked}.",
        requested=size, shape=shape, dtype=dtype,
    )  # fmt: skip


def _summary(requested: int | None) -> str:
    asked = f": {format_size(requested)} was requested" if requested else "; the amount is not given"
    return f"Device memory as XLA (JAX) manages it ran out{asked}."


RECOGNISERS = (
    Recogniser("XLA allocation", ("out of memory while trying to allocate", "out of memory allocating",
                                  "failed to allocate request for", "error allocating device buffer: failed"), _trying),
    Recogniser("XLA on TPU", ("attempting to reserve", "attempting to allocate", "ran out of memory in memory space"),
               _tpu),
    Recogniser("CUDA driver in XLA", ("failed to allocate", "failed to alloc"), _driver),
    Recogniser("XLA allocator", ("ran out of memory trying to allocate",), _allocator),
    Recogniser("TensorFlow tensor", ("oom when allocating tensor",), _tensor),
    Recogniser("XLA exhausted", ("resource_exhausted", "resource exhausted"), _bare),
    Recogniser("CUDA driver in XLA, without a size", ("cuda_error_out_of_memory",), _driver_bare),
    Recogniser("XLA libraries", ("failed to create cublas handle", "failed to create cusolver handle",
                                 "dnn library initialization failed", "could not create cudnn handle",
                                 "gpusolverdncreate(&handle) failed", "gpublascreate(&handle) failed"), says(
        Rank.SAID, "jax",
        "XLA could not start cuBLAS, cuSOLVER or cuDNN: most often because GPU memory is taken already.", certain=False,
    )),
)  # fmt: skip
