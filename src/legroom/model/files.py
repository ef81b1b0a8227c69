"""Files that appear whole or not at all, and JSON documents that carry their own checksum.

The content goes to a temporary file beside it, is forced to the disk, and takes the file's name in one step; the rename
itself is forced to the disk too. A reader therefore finds the old content or the new, never half of either. Temporary
names say which process they belong to (its id, and when it started, since ids are used again), so that another process
can clear away what a dead one left.

The checksum is one more key of the document. A separate list of checksums would have to be written after the files, and
a crash in between would leave good files that look damaged. It is taken over the parsed content, keys sorted, so that
layout does not matter.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from itertools import count
from pathlib import Path
from typing import Any

from legroom.errors import BadInput

LARGEST_DOCUMENT = 64 << 20  # bytes of JSON about a run; a manifest of 100,000 files has 15 MB
PREFIX = ".tmp-"
_TEMPORARY = re.compile(r"\.tmp-(\d+)-(\d+)-\d+(\..*)?")
_numbers = count()


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Put `content` at `path`, replacing what is there.

    Raises:
        OSError: it cannot be written; what was there is still there.
    """
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BufferedWriter]:
    """Yield a file to write to, which is at `path` once the block is left without an exception.

    Raises:
        OSError: it cannot be written; what was there is still there.
    """
    path = Path(path)
    new = path.with_name(f"{temporary_name()}.{path.suffix.removeprefix('.') or 'new'}")
    try:
        with new.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        with suppress(OSError):  # the reason is what the caller has to know
            new.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def open_plain(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file to read it; somebody may have sent the folder that it is in.

    Raises:
        OSError: it cannot be opened, or is no regular file: a pipe would be waited for, and a device has no end.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_document(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a document about a run.

    Raises:
        OSError: it cannot be read, is no regular file, or larger than such documents are.
    """
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size > LARGEST_DOCUMENT:
            raise OSError(errno.EFBIG, f"it is larger than {LARGEST_DOCUMENT >> 20} MiB", os.fspath(path))
        return file.read()


def temporary_name() -> str:
    """Return a name that no other process gives to a file, and that says whose it is."""
    return f"{PREFIX}{os.getpid()}-{_started(os.getpid())}-{next(_numbers)}"


def new_temporary(parent: Path) -> Path:
    """Make and return a directory that only this process writes to."""
    while True:
        path = parent / temporary_name()
        try:
            path.mkdir()
        except FileExistsError:  # of a forked child with our numbers, or of a system that does not say when it started
            continue
        return path


def clear_left_over(parent: Path) -> list[Path]:
    """Delete the temporary files and directories of processes that are gone; return them."""
    gone = []
    try:
        found = sorted(path for path in parent.iterdir() if path.name.startswith(PREFIX))
    except OSError:
        return []
    for path in found:
        match = _TEMPORARY.fullmatch(path.name)
        if match and not _is_alive(int(match[1]), match[2]):
            _remove(path)
            gone.append(path)
    return gone


def sync_directory(directory: Path) -> None:
    """Force a directory's names to the disk; some network file systems refuse, and do without.

    Raises:
        OSError: the disk failed or is full: the names may be lost with the power.
    """
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
            raise
    finally:
        os.close(handle)


def make_directory(path: Path) -> None:
    """Make a directory and the ones above it, and force their names to the disk: what is in them is lost with them.

    Raises:
        OSError: it cannot be made.
    """
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _started(pid: int) -> str:
    """Return when the process started, in the kernel's ticks; "0" where the system does not say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "0"
    return text.rpartition(")")[2].split()[19]  # the name in parentheses may hold anything


def _is_alive(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return started in ("0", _started(pid))


KEY, MARK = "checksum", "sha256:"
VERSION_KEY, VERSION = "legroom", 1


class Damaged(BadInput):
    """A document is not what was written."""


class Newer(BadInput):
    """A document was written by a later release, in a format that this one does not know."""


def seal(data: Mapping[str, Any], *, indent: int | None = 2, default: Any = None) -> bytes:
    """Return a document as JSON with its checksum."""
    content = json.loads(json.dumps(data, default=default))  # as it will be read: lists for tuples, text for keys
    content.pop(KEY, None)
    return (json.dumps(content | {KEY: MARK + _sha256(content)}, indent=indent) + "\n").encode()


def unseal(content: bytes, path: object) -> dict[str, Any]:
    """Return what a document says, without its checksum.

    Raises:
        Damaged: it is no JSON object, or not as written.
        Newer: its version is later than this release's.
    """
    data = parse(content, path, sealed=True)
    data.pop(KEY)
    return data


def parse(content: bytes, path: object, *, sealed: bool = False) -> dict[str, Any]:
    """Return what a document says whose checksum is kept elsewhere, or, where it is `sealed`, is right.

    Raises:
        Damaged, Newer: as `unseal`.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"is damaged: not JSON: {error}", path=path) from None
    if not isinstance(data, dict):
        raise Damaged("is damaged: not a JSON object", path=path)
    if sealed and data.get(KEY) != MARK + _sha256({key: value for key, value in data.items() if key != KEY}):
        raise Damaged("is damaged: its content does not match its checksum", path=path)
    version = data.get(VERSION_KEY, VERSION)
    if version != VERSION:
        if isinstance(version, int) and version > VERSION:
            raise newer(version, path)
        raise Damaged(f"is damaged: its version is {version!r}", path=path)
    return data


def newer(version: int, path: object) -> Newer:
    """Return the refusal of a format of a later release."""
    return Newer(
        f"was written by a newer legroom (format {version}, this one reads {VERSION})",
        path=path,
        hint="pip install --upgrade legroom",
    )


def _sha256(data: dict[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
