"""A page as its previous version moved by some bytes, and what does not follow from that. Mirrors _move.h; read only.

The layout of a payload is in _move.h. What is moved out of the page is gone; what comes into it must be written.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

HEAD_BYTES, WIDEST_STRIPE = 11, 32


def apply_move(before: npt.NDArray[np.uint8], payload: bytes) -> npt.NDArray[np.uint8]:
    """Return the page that follows `before`.

    Raises:
        ValueError: the record is malformed, or leaves open what is moved into the page.
    """
    if len(payload) < HEAD_BYTES:
        raise ValueError(f"a move of {len(payload)} bytes")
    size, rest = len(before), _Bytes(payload[HEAD_BYTES:])
    shift = int.from_bytes(payload[:2], "little", signed=True)
    n_copies, n_fills, n_runs = payload[2], payload[3], int.from_bytes(payload[4:6], "little")
    if abs(shift) > size:
        raise ValueError(f"a move by {shift} bytes of {size}")
    page, is_open = np.zeros_like(before), np.ones(size, bool)
    page[max(shift, 0) : size + min(shift, 0)] = before[max(-shift, 0) : size - max(shift, 0)]
    is_open[max(shift, 0) : size + min(shift, 0)] = False

    def put(at: int, new: bytes | npt.NDArray[np.uint8]) -> None:
        page[at : at + len(new)] = np.frombuffer(new, np.uint8) if isinstance(new, bytes) else new
        is_open[at : at + len(new)] = False

    copies = list(_places(rest.take(2 * n_copies), 2, size))
    sources, distance, taken = rest, 0, []
    for at, length, flag in copies:
        if length:
            distance = distance if flag else int.from_bytes(sources.take(2), "little") - at
            if not 0 <= at + distance <= size - length:
                raise ValueError("a copy from beyond the page")
            taken.append((at, before[at + distance : at + distance + length].copy()))
    fills = rest.take(3 * n_fills)
    runs = list(_places(rest.take(2 * n_runs), 2, size))
    wide, start, period = payload[6], *(int.from_bytes(payload[i : i + 2], "little") for i in (7, 9))
    if wide:
        if wide > WIDEST_STRIPE or period < wide or start + wide > size:
            raise ValueError(f"a stripe of {wide} bytes from {start} on, every {period}")
        for at in range(start, size - wide + 1, period):
            put(at, rest.take(wide))
    for at, copy in taken:
        put(at, copy)
    for (at, length, _), byte in zip(_places(fills, 3, size), fills[2::3], strict=True):
        put(at, bytes([byte]) * length)
    for at, length, _ in runs:
        put(at, rest.take(length))
    if rest.left or is_open.any():
        raise ValueError("a move with more bytes than it needs, or fewer")
    return page


class _Bytes:
    """Bytes that are taken one after the other; running out of them is a ValueError."""

    def __init__(self, given: bytes) -> None:
        self._given, self._at = given, 0

    @property
    def left(self) -> int:
        return len(self._given) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError("a move that ends too early")
        self._at += count
        return self._given[self._at - count : self._at]


def _places(pairs: bytes, step: int, size: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the place, length and flag of each entry: (how far after the last one's end, length and flag)."""
    at = 0
    for i in range(0, len(pairs), step):
        at, length = at + pairs[i], pairs[i + 1] & 127
        if at + length > size:
            raise ValueError("a place beyond the page")
        yield at, length, pairs[i + 1] > 127
        at += length
