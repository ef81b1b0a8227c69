"""Apple's GPU, which shares the machine's memory: PyTorch's MPS backend, Metal and MLX."""

from __future__ import annotations

import re

from legroom.explaining.log import Log
from legroom.explaining.reading import Rank, Reading, Recogniser, reading
from legroom.explaining.sizes import SIZE, first_size
from legroom.units import format_size


def _backend(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=600)
    requested = first_size(rf"[Tt]ried to allocate {SIZE}", message)
    allocated, capacity = first_size(rf"MPS allocated: {SIZE}", message), first_size(rf"max allowed: {SIZE}", message)
    others = first_size(rf"other allocations: {SIZE}", message)
    if requested is None and not re.search(r"Error|\(MPS", message[:200] + log.line(place)):
        return None
    notes = (f"{format_size(others)} is held outside PyTorch's tensors",) if others else ()
    asked = f": {format_size(requested)} more was requested" if requested is not None else ""
    limit = f", {format_size(capacity)} is allowed" if capacity else ""
    return reading(
        place, Rank.REFUSED if requested is not None else Rank.SAID, "mps", f"Apple GPU memory ran out{asked}{limit}.",
        requested=requested, capacity=capacity, allocated=allocated, notes=notes,
    )  # fmt: skip


def _buffer_size(log: Log, place: int) -> Reading | None:
    size = first_size(rf"buffer size:? {SIZE}", log.message(place, length=200))
    summary = "Metal refused one buffer: it is larger than a single buffer may be."
    return None if size is None else reading(place, Rank.REFUSED, "mps", summary, requested=size)


def _metal(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=300)
    return reading(
        place, Rank.SAID, "mps", "Apple GPU memory ran out: Metal refused.",
        requested=first_size(rf"to allocate {SIZE}", message),
        capacity=first_size(rf"maximum allowed buffer size of {SIZE}", message),
    )  # fmt: skip


RECOGNISERS = (
    Recogniser("MPS backend", ("mps backend out of memory",), _backend),
    Recogniser("MPS buffer", ("invalid buffer size",), _buffer_size),
    Recogniser("Metal", ("[metal::malloc]", "errorcallbackerroroutofmemory", "callbackerroroutofmemory"), _metal),
)
