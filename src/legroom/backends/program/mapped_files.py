"""What the files that a program's processes have mapped tell: memory in /dev/shm, and libraries in processes unseen.

Files of a tmpfs take memory as long as they exist, mapped or not; those of `memfd_create` as long as they are open. The
part that is mapped counts with the processes, each page once (PSS); this is the rest. A process that has torch or jax
loaded and writes no journal did not let the guest in (`python -S`, another interpreter): whatever it puts on the GPU is
not known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from legroom.backends.program.journals import PREFIX
from legroom.backends.program.launching import Program, here
from legroom.hollow.file_layer import FULL
from legroom.machine.tree import PROC
from legroom.units import MIB
from legroom.watching.processes import command_line

SHARED = Path("/dev/shm")
HEAVY = (b"libtorch_cpu", b"libtorch.so", b"libcuda.so", b"jaxlib", b"libtensorflow")
LEAST_CHANGE = 4 * MIB
NO_GPU = b"torch_shm_manager"  # of torch's shared memory; it has torch mapped, and is not Python
FORKED = 0x40  # of a process' flags: it has not become another program since it was forked
_TORCH = re.compile(r"torch_(\d+)_")
_SHARED = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+\s+/(?:dev/shm/|memfd:)(?:(?!^Pss:).*\n)*?^Pss:\s+(\d+)", re.M
)


def smaps(pid: int, *, proc: Path = PROC) -> bytes:
    """Return the kernel's list of what a process has mapped, empty when it is gone."""
    try:
        return (proc / str(pid) / "smaps").read_bytes()
    except OSError:
        return b""


class MappedFiles:
    """Follows the shared memory of a program, and processes of it that the guest did not enter."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program, self._folder, self._here = program, folder, here()
        self._before = set(_names())
        self._pids: set[int] = set()
        self._in_processes = 0
        self.unmapped = 0  # bytes of files in memory that no process has mapped
        self.unseen: dict[int, str] = {}  # processes and their command lines
        self.written = 0  # bytes of the layer, at most

    def look(self, mapped: Mapping[int, bytes]) -> bool:
        """Take in what the processes have mapped now; return whether shared memory has come or gone."""
        self._pids |= set(mapped)
        shared = [text for text in mapped.values() if b" /dev/shm/" in text or b" /memfd:" in text]
        in_processes = sum(1024 * int(found) for text in shared for found in _SHARED.findall(text))
        changed, self._in_processes = abs(in_processes - self._in_processes) > LEAST_CHANGE, in_processes
        self.unmapped = max(self._in_memory() + _of_memfd(mapped) - in_processes, 0)
        self.written = max(self.written, self._in_layer())
        for pid, text in mapped.items():
            if pid not in self.unseen and any(name in text for name in HEAVY) and not self._is_known(pid):
                words = command_line(pid).split(b"\0")
                if not words[0].endswith(NO_GPU):
                    self.unseen[pid] = b" ".join(words).decode("utf-8", "replace").strip()
        return changed

    def _is_known(self, pid: int) -> bool:
        """Return whether a process has a journal, or is a fork, whose parent is looked at."""
        return any(self._folder.glob(f"{PREFIX}{pid}*")) or bool(_flags(pid) & FORKED)

    def _in_memory(self) -> int:
        if self._program.writes == "discarded":  # a tmpfs of its own
            return _used(f"/proc/{self._program.pid}/root{SHARED}")
        made = _size(*(SHARED / name for name in set(_names()) - self._before))
        return made + _size(self._folder / f"layer/files{SHARED}")

    def _in_layer(self) -> int:
        if self._program.writes == "discarded":
            return _used(f"/proc/{self._program.pid}/root{self._here}")
        nbytes = _size(self._folder / "layer")
        if nbytes > self._program.layer:
            (self._folder / "layer" / FULL).touch()
        return nbytes

    @property
    def is_full(self) -> bool:
        """Whether the program wrote as much as it may."""
        return self.written > 0.99 * self._program.layer

    def clear(self, names: Iterable[str]) -> None:
        """Remove shared memory that the program has left behind; a namespace of its own has gone with it.

        Args:
            names: what its interpreters made.
        """
        if self._program.writes != "redirected":
            return
        for name in set(_names()) - self._before:
            by_torch = _TORCH.match(name)
            if name in names or (by_torch is not None and int(by_torch[1]) in self._pids):
                with suppress(OSError):
                    (SHARED / name).unlink()


def _names() -> list[str]:
    with suppress(OSError):
        return os.listdir(SHARED)  # noqa: PTH208
    return []


def _size(*paths: Path) -> int:
    """Return what files and folders take."""
    nbytes = 0
    for path in paths:
        with suppress(OSError):
            nbytes += path.lstat().st_blocks * 512
            if path.is_dir() and not path.is_symlink():
                nbytes += _size(*path.iterdir())
    return nbytes


def _of_memfd(pids: Iterable[int]) -> int:
    """Return what files of `memfd_create` take that the processes have open."""
    found: dict[int, int] = {}
    for pid in pids:
        with suppress(OSError):
            for each in (PROC / str(pid) / "fd").iterdir():
                with suppress(OSError):
                    if str(each.readlink()).startswith("/memfd:"):
                        about = each.stat()
                        found[about.st_ino] = about.st_blocks * 512
    return sum(found.values())


def _used(path: str) -> int:
    """Return how much of a file system is taken; 0 when it is gone."""
    with suppress(OSError):
        about = os.statvfs(path)
        return (about.f_blocks - about.f_bfree) * about.f_frsize
    return 0


def _flags(pid: int) -> int:
    with suppress(OSError, IndexError):
        return int((PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[6])
    return 0
