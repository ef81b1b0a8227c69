"""Buffers to one file and back, without pickle: a JSON description, then raw arrays, each with its checksum.

The file is written beside its final name and renamed when complete, so that a crash never leaves half a file. Reading
checks every byte before anything of the buffer changes; nothing in a file is ever executed.

Layout: 8 bytes magic, u64 length of the description, 32 bytes SHA-256 of it, the description, the parts one after the
other as the description lists them.
"""

import hashlib
import json
import os
import struct
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from legroom.errors import BadInput
from legroom.model.files import open_plain, whole_file

MAGIC = b"LEGROOM\x01"
HEAD = struct.Struct("<8sQ32s")
LONGEST_DESCRIPTION = 1 << 28
# what comes of a description with right checksums that nobody's save() has written
UNUSABLE = (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError)


class DamagedFile(BadInput, OSError):
    """A file is not what was written: bad input for who named it, and an OSError for who reads it."""


@dataclass(frozen=True)
class Part:
    """Some bytes of an open file, of which the checksum is known."""

    path: Path
    file: IO[bytes]
    number: int
    at: int
    nbytes: int
    sha256: str

    def read(self) -> bytearray:
        """Return the bytes, which are as written.

        Raises:
            DamagedFile: they are not.
        """
        found = bytearray()
        while more := os.pread(self.file.fileno(), self.nbytes - len(found), self.at + len(found)):  # 2 GiB at most
            found += more
        if hashlib.sha256(found).hexdigest() != self.sha256:
            where = f"part {self.number}, {self.nbytes:,} bytes from byte {self.at:,} on"
            raise _damaged(self.path, f"{where}, is not as written")
        return found


class Savable:
    """A buffer that can describe its state as a tree of plain values, arrays and bytes."""

    def describe(self) -> dict[str, Any]:
        """Return what must be equal for a saved state to fit this buffer."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return everything that changes, as a tree of plain values, arrays and bytes."""
        raise NotImplementedError

    def prepare(self, state: dict[str, Any]) -> Callable[[], None]:
        """Check a state and return what takes it over; raise ValueError if it does not fit."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Write the buffer to one file; what was there before stays until the new file is complete."""
        write_file(Path(path), {"buffer": self.describe(), "state": self.state()})

    def load(self, path: str | Path) -> None:
        """Take over what `save` wrote, into a buffer made with the same arguments.

        Raises:
            BadInput: the file is missing, truncated, altered, or of another kind of buffer; nothing has changed then.
        """
        tree = read_file(Path(path))
        mine, theirs = self.describe(), tree.get("buffer", {})
        differing = [key for key in mine if mine[key] != theirs.get(key)]
        if differing:
            key = differing[0]
            raise BadInput(f"holds a buffer with {key} {theirs.get(key)!r}, not {mine[key]!r}", path=path)
        try:
            take_over = self.prepare(tree["state"])
        except UNUSABLE as error:
            raise BadInput(f"does not fit this buffer: {error}", path=path) from error
        take_over()


def write_file(path: Path, tree: dict[str, Any]) -> None:
    """Write a tree of plain values, arrays and bytes."""
    parts: list[np.ndarray | bytes] = []
    plain = _take_out(tree, parts)
    listed = [{"bytes": len(_raw(part)), "sha256": hashlib.sha256(_raw(part)).hexdigest()} for part in parts]
    description = json.dumps({"tree": plain, "parts": listed}).encode()
    with whole_file(path) as file:
        file.write(HEAD.pack(MAGIC, len(description), hashlib.sha256(description).digest()))
        file.write(description)
        for part in parts:
            file.write(_raw(part))


def read_file(path: Path) -> dict[str, Any]:
    """Read what `write_file` wrote, checking every byte.

    Raises:
        BadInput: it cannot be read, or is not exactly what was written.
    """
    return open_file(path)


def open_file(path: Path, unread: str | None = None) -> dict[str, Any]:
    """Return what `write_file` wrote, every byte checked, but for lists with the key `unread`: these are of `Part`s.

    Raises:
        BadInput: it cannot be read, or is not exactly what was written.
    """
    try:
        with ExitStack() as closing:
            file = closing.enter_context(open_plain(path))
            content = _description(file, path)
            parts, at, size = list[Part](), file.tell(), os.fstat(file.fileno()).st_size
            for i, listed in enumerate(content["parts"]):
                if not 0 <= listed["bytes"] <= size - at:  # before memory is asked for
                    raise _damaged(path, f"it ends after {size - at} of {listed['bytes']} bytes of part {i}")
                parts.append(Part(path, file, i, at, listed["bytes"], listed["sha256"]))
                at += listed["bytes"]
            if at < size:
                raise _damaged(path, f"it goes on for {size - at} bytes after its end")
            tree: dict[str, Any] = _put_back(content["tree"], parts, unread)
            if unread:
                closing.pop_all()  # the parts need it
            return tree
    except BadInput:
        raise
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", path=path) from error
    except UNUSABLE as error:
        raise BadInput(f"was not written by a buffer's save(): {error}", path=path) from error


def _damaged(path: Path, what: str) -> DamagedFile:
    return DamagedFile(f"is damaged: {what}", path=path, hint="use an earlier file")


def _description(file: IO[bytes], path: Path) -> dict[str, Any]:
    head = file.read(HEAD.size)
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        raise DamagedFile("was not written by a buffer's save()", path=path)
    _, length, digest = HEAD.unpack(head)
    description = file.read(min(length, LONGEST_DESCRIPTION))
    if len(description) != length or hashlib.sha256(description).digest() != digest:
        raise _damaged(path, "its description is damaged")
    content: dict[str, Any] = json.loads(description)
    return content


def _raw(part: np.ndarray | bytes) -> memoryview:
    if isinstance(part, bytes):
        return memoryview(part)
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8).data


def _take_out(node: Any, parts: list[np.ndarray | bytes]) -> Any:
    """Return the tree with arrays and bytes replaced by their place among the parts."""
    if isinstance(node, dict):
        return {key: _take_out(value, parts) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_take_out(value, parts) for value in node]
    if isinstance(node, bytes | np.ndarray):
        parts.append(node)
        place: dict[str, Any] = {"$part": len(parts) - 1}
        return place if isinstance(node, bytes) else {**place, "dtype": node.dtype.str, "shape": node.shape}
    return node


def _put_back(node: Any, parts: list[Part], unread: str | None) -> Any:
    if isinstance(node, dict) and "$part" in node:
        part = parts[node["$part"]].read()
        if "dtype" not in node:
            return bytes(part)
        return np.frombuffer(part, np.dtype(node["dtype"])).reshape(node["shape"])
    if isinstance(node, dict):
        left = {key: [parts[each["$part"]] for each in value] for key, value in node.items() if key == unread}
        return {key: left[key] if key in left else _put_back(value, parts, unread) for key, value in node.items()}
    if isinstance(node, list):
        return [_put_back(value, parts, unread) for value in node]
    return node
