"""Files that appear whole or not at all, whatever kills the process that writes them.

The content goes to a neighbour of the file, is forced to the disk, and takes the file's name in one step; the rename
itself is forced to the disk too. A reader therefore finds the old content or the new, never half of either.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Put `content` at `path`, replacing what is there.

    Raises:
        OSError: it cannot be written; what was there is still there.
    """
    path = Path(path)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # some network file systems refuse it; the rename has happened all the same
        pass
    finally:
        os.close(handle)
