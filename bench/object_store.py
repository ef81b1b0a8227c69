"""The object store of a node as benchmarks measure it: a deleted file in shared memory that the raylet holds open.

What counts are the blocks that exist, which are those ever written, whoever mapped them.
"""

from __future__ import annotations

import stat
from pathlib import Path

PROC = Path("/proc")
BLOCK = 512  # of st_blocks, whatever the file system's own is


def store_nbytes(raylet: int, *, proc: Path = PROC) -> int:
    """Return the bytes of the raylet's object store that exist: of deleted files in shared memory it has open."""
    found: dict[int, int] = {}
    try:
        descriptors = list((proc / str(raylet) / "fd").iterdir())
    except OSError:
        return 0
    for descriptor in descriptors:
        try:
            target, about = str(descriptor.readlink()), descriptor.stat()
        except OSError:
            continue
        if stat.S_ISREG(about.st_mode) and target.startswith("/dev/shm/"):
            found[about.st_ino] = about.st_blocks * BLOCK
    return sum(found.values())
