"""Files that appear whole or not at all, whatever kills the process that writes them.

The content goes to a neighbour of the file, is forced to the disk, and takes the file's name in one step; the rename
itself is forced to the disk too. A reader therefore finds the old content or the new, never half of either.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path


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
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with new.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Force a directory's names to the disk; some network file systems refuse, and do without."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
