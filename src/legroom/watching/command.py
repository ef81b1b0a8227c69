"""The watched command as a child of the same process group: started, heard, its signals passed on, how it ended.

What it writes to standard error passes through untouched while its end is kept for `explain`:

- A terminal becomes a pseudo-terminal without any processing of its own, so that the command still finds a terminal
  there (colours, progress bars, its width) and every byte arrives as it was written.
- Anything else becomes a pipe.

Where standard output is the very same terminal or pipe, it goes through the same relay: two ways to one place would
mix up the order of lines. Otherwise it is inherited. A slow reader slows the command down as it would without us,
never the sampling, since the relay is a thread. Known limit: what outlives the command and still writes to its standard
error finds that closed.

Signals are messages: blocked while something is watched, and taken one by one between two samples. A handler would
interrupt the reading of a sample or the writing of a result anywhere. Taking them with `sigtimedwait` also tells who
sent one: Ctrl-C comes from the kernel and goes to every process of the foreground group, the command included, so
passing it on would press it twice; a signal that some process sent to us alone has to be passed on. Known limit: who
sends a signal to a whole group by hand (`timeout` does) reaches the command twice.

How it ended is told from what it wrote, what the kernel counted and what it held last. A process that the kernel kills
writes nothing; where the counter of the container or the machine rose, the explanation is the one that the kernel's own
log line would get.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import shlex
import signal
import struct
import termios
import threading
import time
import tty
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import PurePath
from typing import Any, Self

from legroom.errors import LegroomError
from legroom.model.trace import Explanation, MemoryLimit
from legroom.units import format_size, typed_size

EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 126, 127  # as a shell has them
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
KEPT_BYTES = 256 << 10
CHUNK = 1 << 16
QUIET_S = 0.1  # after the command ended: nothing for so long means nothing more comes
PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
TAKEN = frozenset({*PASSED_ON, signal.SIGCHLD, signal.SIGWINCH})
NEAR_LIMIT = 0.85
_NOT_OF_MEMORY = ("checkpoint-corrupt",)
_UNDECIDED = ("killed", "worker-died")
_GPU_KINDS = ("cuda", "cublas", "jax", "mps")
_KILLED = "The process was killed from outside (signal 9)."
_WORKER_KNOBS = ("env.workers", "env.envs_per_worker", "env.start_method")
_NAME = "RUN"  # what explain calls a run that it does not know


class CannotStart(LegroomError):
    """The command is not there or cannot be executed."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Ended:
    """How a process ended: code, signal where one ended it, and the largest RSS of it or a child it waited for."""

    code: int
    signal: int | None
    rss_peak: int


def start(command: Sequence[str], relay: Relay, mask: set[Any], environment: Mapping[str, str] | None = None) -> int:
    """Start the command and return its process id; `posix_spawn` reports one that cannot be started.

    Args:
        mask: of signals; ours is blocked and would be inherited.
        environment: its variables; None: ours.

    Raises:
        CannotStart: with the exit code a shell would give.
    """
    actions = [(os.POSIX_SPAWN_DUP2, relay.inside, number) for number in relay.outputs]
    try:
        return os.posix_spawnp(
            command[0], list(command), os.environ if environment is None else environment,
            file_actions=actions, setsigmask=mask, setsigdef=_PYTHON_IGNORES,
        )  # fmt: skip
    except (FileNotFoundError, NotADirectoryError):
        raise CannotStart(f"watch: {command[0]}: there is no such command", EXIT_NOT_FOUND) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise CannotStart(f"watch: {command[0]}: cannot be executed ({why})", EXIT_NOT_EXECUTABLE) from None


def ended(pid: int) -> Ended | None:
    """Return how the child ended, None while it runs."""
    done, status, usage = os.wait4(pid, os.WNOHANG)
    if done == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else None
    return Ended(128 + number if number else code, number, usage.ru_maxrss * 1024)


class Signals:
    """While entered, signals wait to be taken. Outside the main thread it only waits: signals go to that one."""

    def __init__(self) -> None:
        self.before: set[Any] = set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._main:
            self.before = set(signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN))
        return self

    def __exit__(self, *exc: object) -> None:
        if self._main:
            while signal.sigtimedwait(TAKEN, 0) is not None:
                pass  # what came while the result was written has nobody to go to any more
            signal.pthread_sigmask(signal.SIG_SETMASK, self.before)

    def wait(self, seconds: float) -> signal.struct_siginfo | None:
        """Return the next signal, None when the time is over."""
        if not self._main:
            time.sleep(max(seconds, 0))
            return None
        return signal.sigtimedwait(TAKEN, max(seconds, 0))


def pass_signal(pid: int, taken: signal.struct_siginfo) -> None:
    """Send a signal to the command, unless the kernel sent it (a key was pressed): then the command has it too."""
    if taken.si_code <= 0:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, taken.si_signo)


class Relay:
    """The way from the command's standard error to ours. `pass_on` writes a chunk to where it belongs.

    Attributes:
        outputs: the file descriptors of the command that come from us.
        inside: the file descriptor that it gets as these; None where it inherits ours.
    """

    def __init__(self, pass_on: Callable[[bytes], None], *, both: bool = False) -> None:
        self._pass_on, self._kept, self._chunks = pass_on, 0, deque[bytes]()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._source: int | None = None
        self.inside: int | None = None
        self._terminal = False
        self.outputs: tuple[int, ...] = ()
        try:
            about = os.fstat(2)
        except OSError:  # closed, and so it is for the command
            return
        self._terminal = os.isatty(2)
        if self._terminal:
            self._source, self.inside = os.openpty()
            tty.setraw(self.inside, termios.TCSANOW)
            self.resize()
        else:
            self._source, self.inside = os.pipe()
        self.outputs = (1, 2) if both or _is_same_as_stdout(about) else (2,)

    def start(self) -> None:
        """Begin to pass on, once the command has its end."""
        if self.inside is not None and not self._terminal:
            os.close(self.inside)
            self.inside = None
        if self._source is not None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def resize(self) -> None:
        """Give the pseudo-terminal the size of the terminal."""
        if self._terminal and self.inside is not None:
            with suppress(OSError):
                size = fcntl.ioctl(2, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
                fcntl.ioctl(self.inside, termios.TIOCSWINSZ, size)

    def finish(self) -> bytes:
        """Pass on what is still under way and return the end of all that was written."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        for descriptor in {self._source, self.inside} - {None}:
            with suppress(OSError):
                os.close(descriptor)  # type: ignore[arg-type]
        self._source = self.inside = None
        return b"".join(self._chunks)[-KEPT_BYTES:]

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
            self._keep(chunk)
            try:
                self._pass_on(chunk)
            except OSError:  # our reader has gone; the command is to notice as it would without us
                os.close(self._source)
                self._source = None
                return

    def _keep(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._kept += len(chunk)
        while self._kept - len(self._chunks[0]) >= KEPT_BYTES:
            self._kept -= len(self._chunks.popleft())


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


@dataclass(frozen=True)
class Circumstances:
    """What is known beside the text: a kill that the kernel counted, the memory held last, a stop that we passed on."""

    kernel_killed: bool
    last_nbytes: int
    limit: MemoryLimit | None
    container_limit: int | None
    stopped_by: int | None
    pid: int
    workers: bool


def explain_end(
    text: str, end: Ended, command: Sequence[str], around: Circumstances
) -> tuple[Explanation | None, bool | None, str]:
    """Return what ran out, whether memory ended the command (None: perhaps), and what to try."""
    if end.code == 0 or (around.stopped_by is not None and end.code in (128 + around.stopped_by, around.stopped_by)):
        return None, False, ""
    explain = import_module("legroom.explaining").explain  # 0.1 s, which a command that ends well need not pay for
    found = explain(text, exit_code=end.code)
    if around.kernel_killed and found.kind in ("unknown", *_UNDECIDED):
        found = explain(_kernel_words(command, around))
    if not found.recognised:
        return None, False, ""
    of_memory = _of_memory(found, around)
    if found.kind == "killed" and of_memory is not True:
        if of_memory is False:  # advice about memory would lead astray
            return replace(found, summary=f"{_KILLED} {_held(around)}", advice=(), command=""), of_memory, ""
        found = replace(found, notes=(*found.notes, _held(around)))
    script = script_in(command)
    found = _named(found, script) if script else found
    if not around.workers:  # advice about workers is for those who have some
        found = replace(found, advice=tuple(one for one in found.advice if not one.knob.startswith(_WORKER_KNOBS)))
    hint = _hint(found, script, around.limit)
    return replace(found, command=hint or found.command), of_memory, hint


def script_in(command: Sequence[str]) -> str | None:
    """Return the Python script that a command line names, None where it names none."""
    return next((part for part in command if PurePath(part).suffix == ".py"), None)


def _of_memory(found: Explanation, around: Circumstances) -> bool | None:
    if around.kernel_killed:
        return True
    if found.kind in _NOT_OF_MEMORY:
        return False
    if found.kind not in _UNDECIDED or (found.kind == "killed" and found.certain):
        return True
    return None if _is_near(around) else False


def _is_near(around: Circumstances) -> bool:
    return around.limit is not None and around.last_nbytes >= NEAR_LIMIT * around.limit.nbytes


def _held(around: Circumstances) -> str:
    if around.limit is None:
        return f"It held {format_size(around.last_nbytes)}."
    held = f"It held {format_size(around.last_nbytes)} of {format_size(around.limit.nbytes)}"
    return f"{held}, which is nearly all." if _is_near(around) else f"{held}: memory is probably not the reason."


def _kernel_words(command: Sequence[str], around: Circumstances) -> str:
    """Return what the kernel logs where it kills for memory, with the numbers we have."""
    kib = around.last_nbytes // 1024
    name = re.sub(r"[()\s]", "", PurePath(command[0]).name)[:15] or "command"
    victim = f"Killed process {around.pid} ({name}) total-vm:{kib}kB, anon-rss:{kib}kB, file-rss:0kB, shmem-rss:0kB"
    if around.container_limit is None:
        return f"Out of memory: {victim}"
    limit_kib = around.container_limit // 1024
    return f"memory: usage {limit_kib}kB, limit {limit_kib}kB, failcnt 1\nMemory cgroup out of memory: {victim}"


def _named(found: Explanation, script: str) -> Explanation:
    """Return the explanation with the script's name in its commands."""
    name = f" {shlex.quote(script)} "

    def named(command: str) -> str:
        return f"{command} ".replace(f" {_NAME} ", name).rstrip()

    advice = tuple(replace(one, command=named(one.command)) for one in found.advice)
    return replace(found, advice=advice, command=named(found.command))


def _hint(found: Explanation, script: str | None, limit: MemoryLimit | None) -> str:
    """Return the command that says what would have fitted, with the numbers where there are some."""
    if script is None or not found.command.startswith("legroom fit"):
        return found.command
    if found.kind in _GPU_KINDS or "--ram" in found.command or limit is None:
        return found.command
    own, dashes, program = found.command.partition(" -- ")
    return f"{own} --ram {typed_size(limit.nbytes)}{dashes}{program}"
