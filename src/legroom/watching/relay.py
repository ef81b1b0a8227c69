"""The command's standard error, passed through untouched while its end is kept for `explain`.

What the command writes to decides how:

- A regular file (`2> log`) is inherited as it is; its end is read from the file afterwards.
- A terminal becomes a pseudo-terminal without any processing of its own, so that the command still finds a terminal
  there (colours, progress bars, its width) and every byte arrives as it was written.
- Anything else becomes a pipe.

Where standard output is the very same terminal or pipe, it goes through the same relay: two ways to one place would
mix up the order of lines. Otherwise it is inherited. A slow reader slows the command down as it would without us,
never the sampling, since the relay is a thread.

Known limit: what outlives the command and still writes to its standard error finds that closed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import struct
import termios
import threading
import tty
from collections import deque
from collections.abc import Callable
from contextlib import suppress

KEPT_BYTES = 256 << 10
CHUNK = 1 << 16
QUIET_S = 0.1  # after the command ended: nothing for so long means nothing more comes
OWN_LINES = (b"legroom watch: ", b"legroom train: ")


class Tail:
    """The last bytes of a stream."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most, self._kept, self._chunks = most, 0, deque[bytes]()

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._kept += len(chunk)
        while self._kept - len(self._chunks[0]) >= self._most:
            self._kept -= len(self._chunks.popleft())

    def bytes(self) -> bytes:
        return b"".join(self._chunks)[-self._most :]


class Relay:
    """The way from the command's standard error to ours. `pass_on` writes a chunk to where it belongs."""

    def __init__(self, pass_on: Callable[[bytes], None], *, both: bool = False) -> None:
        self._pass_on, self._tail = pass_on, Tail()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._source: int | None = None
        self._inside: int | None = None  # the command's end
        self._terminal = False
        self.outputs: tuple[int, ...] = ()  # the file descriptors of the command that come from us
        self._file_began: int | None = None
        try:
            about = os.fstat(2)
        except OSError:  # closed, and so it is for the command
            return
        self._file_began = about.st_size if stat.S_ISREG(about.st_mode) else None
        if self._file_began is not None:
            self._inside, self.outputs = (os.dup(2), (1,)) if both else (None, ())
            return
        self._terminal = os.isatty(2)
        if self._terminal:
            self._source, self._inside = os.openpty()
            tty.setraw(self._inside, termios.TCSANOW)
            self.resize()
        else:
            self._source, self._inside = os.pipe()
        self.outputs = (1, 2) if both or _is_same_as_stdout(about) else (2,)

    @property
    def inside(self) -> int | None:
        """The file descriptor that the command gets as `outputs`; None where it inherits ours."""
        return self._inside

    def start(self) -> None:
        """Begin to pass on, once the command has its end."""
        if self._inside is not None and not self._terminal:
            os.close(self._inside)
            self._inside = None
        if self._source is not None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def resize(self) -> None:
        """Give the pseudo-terminal the size of the terminal."""
        if self._terminal and self._inside is not None:
            with suppress(OSError):
                size = fcntl.ioctl(2, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
                fcntl.ioctl(self._inside, termios.TIOCSWINSZ, size)

    def finish(self) -> bytes:
        """Pass on what is still under way and return the end of all that was written."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        for descriptor in {self._source, self._inside} - {None}:
            with suppress(OSError):
                os.close(descriptor)  # type: ignore[arg-type]
        self._source = self._inside = None
        return self._tail.bytes() if self._file_began is None else _end_of_file(self._file_began)

    def _run(self) -> None:
        assert self._source is not None
        while True:
            wait_s = QUIET_S if self._closing.is_set() else 2 * QUIET_S
            ready, _, _ = select.select([self._source], [], [], wait_s)
            if not ready:
                if self._closing.is_set():
                    return
                continue
            try:
                chunk = os.read(self._source, CHUNK)
            except OSError:  # EIO: nobody has the pseudo-terminal open any more
                return
            if not chunk:
                return
            self._tail.add(chunk)
            try:
                self._pass_on(chunk)
            except OSError:  # our reader has gone; the command is to notice as it would without us
                os.close(self._source)
                self._source = None
                return


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, also to a pipe that is full at the moment and does not wait.

    Raises:
        OSError: the reader has gone.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                raise
            select.select([], [descriptor], [], 1.0)


def _is_same_as_stdout(about: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(1), about)
    except OSError:  # it is closed
        return False


def _end_of_file(began: int) -> bytes:
    """Return the end of what was added to the file behind our standard error, without our own lines."""
    try:
        with open("/proc/self/fd/2", "rb") as file:  # noqa: PTH123  a descriptor, whatever its file is called by now
            size = file.seek(0, os.SEEK_END)
            file.seek(max(began if began <= size else 0, size - KEPT_BYTES))
            written = file.read(KEPT_BYTES)
    except OSError:  # it may be written but not read
        return b""
    return b"".join(line for line in written.splitlines(keepends=True) if not line.startswith(OWN_LINES))
