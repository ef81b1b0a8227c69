"""Reads the journals of a rehearsal: one file per process, appended to while it is read.

The guest maps the file and writes records behind one another; `committed` in the header is written last, so that what
lies before it is whole whatever ends the process. The format is described in `legroom.hollow`, its writer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legroom.hollow.journal import ALLOC, FREE, HEAD, HEADER, HEADER_BYTES, MAGIC, SITE_NUMBER, VERSION

PREFIX = "journal-"
MOST_AT_ONCE = 8 << 20  # bytes of one reading: a program that writes faster than we read must not hold up the clock


def process_of(name: str) -> int:
    """Return the process id that a journal is named after: `journal-123`, or `journal-123.1` after an exec."""
    return int(name.removeprefix(PREFIX).partition(".")[0])


Frame = tuple[str, int, str]


@dataclass(frozen=True)
class Alloc:
    """A block handed out; `phase` is 1 in a backward pass, 2 in an optimizer step, 0 elsewhere."""

    block: int
    requested: int
    rounded: int
    allocated: int
    reserved: int
    site: int
    device: int
    phase: int
    scratch: bool


@dataclass(frozen=True)
class Free:
    """A block given back."""

    block: int
    allocated: int
    reserved: int
    device: int


@dataclass(frozen=True)
class Site:
    """A place in the user's source, innermost frame first, and the module that was running."""

    number: int
    frames: tuple[Frame, ...]
    module: str = ""


Message = dict[str, Any]
Record = Alloc | Free | Site | Message


class DamagedJournal(ValueError):
    """A file that is no journal of this version."""


class JournalReader:
    """One process's journal, read as far as it is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0  # bytes of records that have been taken

    def new_records(self) -> Iterator[Record]:
        """Yield the records that became whole since the last call.

        Raises:
            DamagedJournal: it is none, or of another version.
        """
        try:
            with self.path.open("rb") as file:
                header = file.read(HEADER_BYTES)
                if len(header) < HEADER_BYTES or header[:4] == b"\0\0\0\0":
                    return  # made, and not begun yet
                magic, version, committed, _ = HEADER.unpack_from(header)
                if magic != MAGIC or version != VERSION:
                    raise DamagedJournal(f"{self.path.name} is not a journal of version {VERSION}")
                if committed <= self._read:  # nothing new, or seen while it was being written
                    return
                file.seek(HEADER_BYTES + self._read)
                data = file.read(min(committed - self._read, MOST_AT_ONCE))
        except FileNotFoundError:
            return
        at = 0
        while at + HEAD.size <= len(data):
            kind, length = HEAD.unpack_from(data, at)
            end = at + HEAD.size + length
            if end > len(data):
                break
            yield from _decoded(kind, data[at:end])
            at = end
            self._read += HEAD.size + length


def _decoded(kind: bytes, record: bytes) -> Iterator[Record]:
    if kind == b"A":
        *numbers, flags = ALLOC.unpack(record)[2:]
        yield Alloc(*(*numbers, bool(flags & 1)))
    elif kind == b"F":
        yield Free(*FREE.unpack(record)[2:])
    elif kind == b"S":
        (number,) = SITE_NUMBER.unpack_from(record, HEAD.size)
        yield _site(number, json.loads(record[HEAD.size + SITE_NUMBER.size :]))
    elif kind == b"J":
        message = json.loads(record[HEAD.size :])
        if isinstance(message, dict):
            yield message


def _site(number: int, content: Any) -> Site:
    """Return a site from its JSON: frames alone, or frames and the path of the module that was running."""
    frames, module = content, ""
    if len(content) == 2 and isinstance(content[1], str):
        frames, module = content
    return Site(number, tuple((str(file), int(line), str(function)) for file, line, function in frames), module)


class Journals:
    """All journals of a folder; new processes are found while they come."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journals: dict[str, JournalReader] = {}

    def __len__(self) -> int:
        return len(self._journals)

    def new_records(self) -> Iterator[tuple[str, Record]]:
        """Yield what became whole since the last call, each with its journal: a process may become another (exec)."""
        for path in sorted(self._folder.glob(f"{PREFIX}*")):
            self._journals.setdefault(path.name, JournalReader(path))
        for name, journal in self._journals.items():
            for record in journal.new_records():
                yield name, record
