"""Figures over steps in the file that TensorBoard reads, written with nothing but the standard library.

The packages that write such files import torch or TensorFlow when they find one, which in a process that trains with
jax is some 200 MB for a few numbers. The format is small: records of a length, a checksum, bytes and a checksum. The
bytes are a protobuf message `Event` (wall_time = 1, step = 2, file_version = 3, summary = 5) with values of a tag and a
number each.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from legroom.machine.forks import in_forks, to_nowhere

_POLYNOMIAL = 0x82F63B78  # CRC-32C, bits reversed
_LARGEST_FLOAT = 3.4028234e38
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # protobuf's kinds of fields


class Board:
    """One event file in a folder; TensorBoard joins those of all sessions.

    Raises:
        OSError: it cannot be written; so does `write`.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("ab")
        in_forks(self._file, lambda file: to_nowhere(file.fileno()))
        self._record(_field(1, _DOUBLE, time.time()) + _field(3, _BYTES, b"brain.Event:2"))

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        """Write the figures of one step; they have left this process when this returns."""
        values = b"".join(
            _field(1, _BYTES, _field(1, _BYTES, name.encode()) + _field(2, _FLOAT, value))
            for name, value in figures.items()
        )
        self._record(_field(1, _DOUBLE, time.time()) + _field(2, _VARINT, step) + _field(5, _BYTES, values))

    def close(self) -> None:
        self._file.close()

    def _record(self, message: bytes) -> None:
        length = struct.pack("<Q", len(message))
        self._file.write(length + _masked_crc(length) + message + _masked_crc(message))
        self._file.flush()


def _field(number: int, kind: int, value: float | bytes) -> bytes:
    head = _varint(number << 3 | kind)
    if isinstance(value, bytes):
        return head + _varint(len(value)) + value
    if kind == _VARINT:
        return head + _varint(int(value))
    if kind == _FLOAT and abs(value) > _LARGEST_FLOAT:
        value = math.copysign(math.inf, value)
    return head + struct.pack("<d" if kind == _DOUBLE else "<f", value)


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_crc_of, range(256)))


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
