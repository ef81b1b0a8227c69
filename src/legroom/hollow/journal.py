"""The journal a rehearsed process writes: one file per process, mapped and append only, so that a kill loses nothing.

Header, 64 bytes, little-endian: magic `LGRH`, u32 version, u64 committed bytes of records, u32 pid. Records follow: u8
kind, u32 length, payload. `committed` is written after a record, so a reader never sees half of one.

Without torch: legroom's own nouns are made of what is written down while a program is followed.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Sequence, Set, Tuple, Union

MAGIC = b"LGRH"
VERSION = 1
HEADER_BYTES = 64
_START_BYTES = 1 << 26  # sparse: only what is written takes room
HEADER = struct.Struct("<4sIQI")
ALLOC = struct.Struct("<cIQQQQQIBBB")  # with the head of a record
FREE = struct.Struct("<cIQQQB")
HEAD = struct.Struct("<cI")
SITE_NUMBER = struct.Struct("<I")
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
        self._map[:20] = HEADER.pack(MAGIC, VERSION, 0, self.pid)

    def alloc(
        self, number: int, requested: int, rounded: int, figures: tuple[int, int], *, site: int, device: int = 0,
        phase: int = 0, flags: int = 0, label: str = "",
    ) -> None:  # fmt: skip
        """Write a request that was served; `figures` are allocated and reserved bytes after it, `label` is left out."""
        allocated, reserved = figures
        with self._lock:
            at = self._room(ALLOC.size)
            ALLOC.pack_into(
                self._map, at, b"A", ALLOC.size - 5, number, requested, rounded, allocated, reserved, site, device,
                phase, flags,
            )  # fmt: skip
            self._commit()

    def free(self, number: int, figures: tuple[int, int], device: int = 0) -> None:
        allocated, reserved = figures
        with self._lock:
            FREE.pack_into(self._map, self._room(FREE.size), b"F", FREE.size - 5, number, allocated, reserved, device)
            self._commit()

    def site(self, number: int, frames: list[list[Any]], module: str | None = None) -> None:
        content: list[Any] = list(frames) if module is None else [frames, module]
        self._write(b"S", SITE_NUMBER.pack(number) + json.dumps(content).encode())

    def json(self, kind: str, **content: Any) -> None:
        content = {"kind": kind, "t": round(time.monotonic() - self._began, 6), **content}
        self._write(b"J", json.dumps(content, default=str).encode())

    def _write(self, kind: bytes, payload: bytes) -> None:
        record = HEAD.pack(kind, len(payload)) + payload
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


Values = Literal["refuse", "assume", "real"]
# ("alloc", id, nbytes) | ("free", id); the words of the allocator truth files
Event = Union[Tuple[str, int, int], Tuple[str, int]]


@dataclass(frozen=True)
class Rounds:
    """Says that a round of some events is repeated: its copies differ in the ids of their requests alone."""

    end: int  # where the round that is repeated ends
    length: int  # how many events it has
    births: int  # how many requests; the ids of a copy are so many higher than those of the one before
    first: int  # the lowest id of a round that was repeated; what is older has one name for ever
    times: int  # how many copies there are beside those that are written out

    def shifted(self, events: Sequence[Any], copies: int) -> List[Any]:
        """Return events as they are so many copies later."""
        by = copies * self.births
        return [(e[0], e[1] + by, *e[2:]) if e[1] >= self.first else e for e in events]

    def place(self, index: int, added: int) -> int:
        """Return which of the events one is an index of, where `added` were repeated."""
        if index < self.end:
            return index
        return index - added if index >= self.end + added else self.end - self.length + (index - self.end) % self.length

    def origin(self, request: int) -> int:
        """Return the id under which a request is written out."""
        return request if request < self.first else self.first + (request - self.first) % self.births


@dataclass(frozen=True)
class Assumed:
    """A value that code asked for while it was traced, and the answer that it got instead: `what`, so many times."""

    file: str
    line: int
    what: str
    count: int = 1


class ValueRefused(Exception):
    """Code asked for a value that does not exist before the run.

    Args:
        way: how the user would get to know all the same.
    """

    def __init__(self, reason: str, *, way: str) -> None:
        super().__init__(reason)
        self.way = way


BACKWARD = 1  # the phase of requests in a backward pass


class Requests:
    """The requests of a run in order, and what each is for: what a program's journal is, kept in memory.

    What is alive when a backward pass begins is kept for it: `activations`. Requests are told apart by what they are
    for, not by their place in the source.
    """

    site = None

    def __init__(self) -> None:
        self.events: List[Event] = []
        self.labels: Dict[int, str] = {}
        self.doubts: Dict[str, int] = {}  # operator -> bytes that it may need beyond what is written down
        self._alive: Set[int] = set()
        self._phase = 0

    def alloc(
        self, number: int, requested: int, rounded: int, figures: Tuple[int, int], *, site: int, device: int = 0,
        phase: int = 0, flags: int = 0, label: str = "",
    ) -> None:  # fmt: skip
        if phase == BACKWARD and self._phase != BACKWARD:
            for block in self._alive:
                if self.labels[block] == "temporaries":
                    self.labels[block] = "activations"
        self._phase = phase
        self.events.append(("alloc", number, requested))
        self.labels[number] = label or "temporaries"
        self._alive.add(number)

    def free(self, number: int, figures: Tuple[int, int], device: int = 0) -> None:
        self.events.append(("free", number))
        self._alive.discard(number)

    def json(self, kind: str, **content: Any) -> None:
        if kind == "doubt":
            self.doubts[content["what"]] = content["nbytes"]
