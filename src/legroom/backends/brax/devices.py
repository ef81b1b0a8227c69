"""What jax computes on, and what its allocator says about its memory."""

from __future__ import annotations

import os

import jax

from legroom.units import format_size

PREALLOCATE, FRACTION = "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION"


def device_name() -> str:
    """Return platform and kind of the device: a program may compute other last bits on another."""
    device = jax.local_devices()[0]
    return device.platform if device.platform == "cpu" else f"{device.platform} {device.device_kind}"


def on_gpu() -> bool:
    return jax.local_devices()[0].platform != "cpu"


def in_use_nbytes() -> int | None:
    """Return the bytes that live on the device now; None where it does not tell (the host)."""
    return _stat("bytes_in_use")


def peak_nbytes() -> int | None:
    return _stat("peak_bytes_in_use")


def preallocation() -> str:
    """Return in a few words how XLA takes the device's memory."""
    if not on_gpu():
        return "on the host, where nothing is preallocated"
    value = os.environ.get(PREALLOCATE, "true").lower()
    limit = _stat("bytes_limit")
    most = "" if limit is None else f", {format_size(limit)} at most"
    if value in ("false", "0"):
        return f"{PREALLOCATE}=false: memory is taken as it is needed{most}"
    return f"{PREALLOCATE} is on: {os.environ.get(FRACTION, '0.75')} of the card is taken at the start{most}"


def _stat(name: str) -> int | None:
    stats = jax.local_devices()[0].memory_stats()  # None on the host
    return int(stats[name]) if stats and name in stats else None
