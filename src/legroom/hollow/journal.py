"""The journal a rehearsed process writes: one file per process, mapped and append only, so that a kill loses nothing.

Header, 64 bytes, little-endian: magic `LGRH`, u32 version, u64 committed bytes of records, u32 pid. Records follow: u8
kind, u32 length, payload. `committed` is written after a record, so a reader never sees half of one.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
import time
from typing import Any

MAGIC = b"LGRH"
VERSION = 1
HEADER_BYTES = 64
_START_BYTES = 1 << 26  # sparse: only what is written takes room
_ALLOC = struct.Struct("<BIQQQQQIBBB")
_FREE = struct.Struct("<BIQQQB")
_HEAD = struct.Struct("<BI")
_COMMITTED = struct.Struct("Q")  # native: written in one piece


class Journal:
    """Writes records; `committed` in the file is always the end of a whole one."""

    def __init__(self, path: str) -> None:
        self.path, self.pid = path, os.getpid()
        self._began = time.monotonic()
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.ftruncate(handle, _START_BYTES)
        self._map = mmap.mmap(handle, _START_BYTES)
        os.close(handle)
        self._size = _START_BYTES
        self._at = HEADER_BYTES
        self._lock = threading.RLock()
        self._map[:20] = struct.pack("<4sIQI", MAGIC, VERSION, 0, self.pid)

    def alloc(
        self, number: int, requested: int, rounded: int, figures: tuple[int, int], *, site: int, device: int = 0,
        phase: int = 0, flags: int = 0, label: str = "",
    ) -> None:  # fmt: skip
        """Write a request that was served; `figures` are allocated and reserved bytes after it, `label` is left out."""
        allocated, reserved = figures
        with self._lock:
            at = self._room(_ALLOC.size)
            _ALLOC.pack_into(
                self._map, at, 65, _ALLOC.size - 5, number, requested, rounded, allocated, reserved, site, device,
                phase, flags,
            )  # fmt: skip
            self._commit()

    def free(self, number: int, figures: tuple[int, int], device: int = 0) -> None:
        allocated, reserved = figures
        with self._lock:
            _FREE.pack_into(self._map, self._room(_FREE.size), 70, _FREE.size - 5, number, allocated, reserved, device)
            self._commit()

    def site(self, number: int, frames: list[list[Any]], module: str | None = None) -> None:
        content: list[Any] = list(frames) if module is None else [frames, module]
        self._write(83, struct.pack("<I", number) + json.dumps(content).encode())

    def json(self, kind: str, **content: Any) -> None:
        content = {"kind": kind, "t": round(time.monotonic() - self._began, 6), **content}
        self._write(74, json.dumps(content, default=str).encode())

    def _write(self, kind: int, payload: bytes) -> None:
        record = _HEAD.pack(kind, len(payload)) + payload
        with self._lock:
            at = self._room(len(record))
            self._map[at : at + len(record)] = record
            self._commit()

    def _room(self, nbytes: int) -> int:
        """Return where a record may be written. It is taken at once: a finalizer may write one in between."""
        at = self._at
        self._at = at + nbytes
        while self._at > self._size:
            self._size *= 2
            self._map.resize(self._size)
        return at

    def _commit(self) -> None:
        _COMMITTED.pack_into(self._map, 8, self._at - HEADER_BYTES)
