"""The trainer's end of its worker processes: starts them, talks to them, notices when one died, ends them.

A worker is forked from a template where there is one and a fresh interpreter otherwise. A fresh one gets the trainer's
`sys.path`, so that what can be imported here can be imported there. Either way it has a process group of its own:
Ctrl-C in the terminal reaches the trainer alone, and whatever an environment started can be ended together with it. It
stays in the trainer's session, though. Linux shares processors out by session (autogroup), and handing over from
trainer to worker within one was twice to seven times as quick on a busy machine (2 cores, load 12, kernel 6.18;
`python -m bench.workers`).

A forked worker is a grandchild, and the kernel tells only parents how a process ended. So the template tells it, by the
socket through which it is asked for workers; that a worker has ended, and who is meant when it is killed, the trainer
knows by itself, from a pidfd. (To adopt grandchildren, PR_SET_CHILD_SUBREAPER, would change what the user's process
inherits from other libraries' processes.)
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import cloudpickle

from legroom.machine.cgroup import oom_kills
from legroom.machine.child_process import interpreter
from legroom.sharing.messages import ANSWER, LENGTH, QUIET, READ_NBYTES, Reply, WorkerDied, pack_request, write_all
from legroom.sharing.slots import anonymous_file

LOOK_AROUND_MS = 250  # how often a trainer that waits looks whether a worker died
WORDS_SHOWN = 2000
# One thread per worker: with a worker per core, more only get in each other's way, and each has buffers of its own.
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
CAN_FORK = sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
MESSAGE_NBYTES = 4096
STATUS_WITHIN_S = 0.5  # the template reports within milliseconds, unless it is dead
END_WITHIN_S = 1.0


def start_interpreter(module: str, fds: Mapping[str, int]) -> subprocess.Popen[bytes]:
    """Start `main()` of `module`; its last argument is JSON: descriptors by name, and who the trainer is."""
    main_thread = threading.current_thread() is threading.main_thread()
    task = {"fds": dict(fds), "trainer": os.getpid(), "main_thread": main_thread}
    path = [str(entry) or "." for entry in sys.path]
    # the others follow OMP_NUM_THREADS where they are not set
    threads = {} if "OMP_NUM_THREADS" in os.environ else dict.fromkeys(("OMP_NUM_THREADS", *_THREADS), "1")
    return subprocess.Popen(
        interpreter(module, path, json.dumps(task)),
        stdin=subprocess.DEVNULL, pass_fds=tuple(fds.values()), env={**threads, **os.environ}, process_group=0,
    )  # fmt: skip


class WorkerProcess:
    """A running worker. After a message is sent, its reply must be received before the next one."""

    def __init__(self, envs: Sequence[int], shared: int, template: Template | None = None) -> None:
        self.envs = envs
        self.awaited = False
        self._unsure = False  # where in the conversation we are
        self._received = bytearray()
        self._kills_before = oom_kills()
        self._words = anonymous_file("legroom-last-words")
        child_commands, self._commands = os.pipe()
        self._replies, child_replies = os.pipe()
        child_life, self._life = os.pipe()
        fds = {
            "commands": child_commands, "replies": child_replies, "life": child_life,
            "words": self._words, "shared": shared,
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | ForkedProcess
        try:
            forked = template.fork(list(fds.values())) if template else None
            self.is_forked = forked is not None  # and has the env functions already
            self._process = forked or start_interpreter("legroom.sharing.worker", fds)
        except BaseException:
            self._close_fds()
            raise
        finally:
            for fd in (child_commands, child_replies, child_life):
                os.close(fd)
        self.pid = self._process.pid
        self._poll = select.poll()
        self._poll.register(self._replies, select.POLLIN)

    @property
    def is_free(self) -> bool:
        """Whether nothing is left to be received."""
        return not (self.awaited or self._unsure)

    def send(self, message: bytes) -> None:
        """Send a message."""
        if self._commands < 0:
            raise self.obituary()
        try:
            self.awaited = True
            write_all(self._commands, message)
        except BrokenPipeError:
            raise self.obituary() from None
        except BaseException:  # Ctrl-C: perhaps before, perhaps after
            self._unsure = True
            if len(message) > READ_NBYTES:
                self.let_go()  # perhaps half of it, which nothing can mend
            raise

    def receive(self, look_around: Callable[[], None]) -> Reply | None:
        """Wait for the reply to what was sent; None for a step that has nothing to say, or after an interrupted wait.

        Args:
            look_around: called now and then while waiting; raises where waiting has become pointless.

        Raises:
            WorkerDied: there will be no reply.
        """
        if self._unsure:
            self._find_together(look_around)
            return None
        try:
            while not self._is_complete():
                self._read(look_around)
            reply, self._received = self._received, bytearray()
            self.awaited = False
        except BaseException:
            self._unsure = True  # Ctrl-C may have come between reading something and keeping it
            raise
        return None if reply[:1] == QUIET else pickle.loads(memoryview(reply)[1 + LENGTH.size :])

    def _find_together(self, look_around: Callable[[], None]) -> None:
        """Have the worker say a word that nobody else says, and forget everything before it."""
        word = os.urandom(32)
        self.send(pack_request("say", word))
        while not self._received.endswith(word):
            self._read(look_around)
        self._received = bytearray()
        self.awaited = self._unsure = False

    def _read(self, look_around: Callable[[], None]) -> None:
        if not self._poll.poll(LOOK_AROUND_MS):
            look_around()
            return
        piece = os.read(self._replies, READ_NBYTES)
        if not piece:
            raise self.obituary()
        self._received += piece

    def _is_complete(self) -> bool:
        received, header = self._received, 1 + LENGTH.size
        if received[:1] != ANSWER:
            return bool(received)
        return len(received) >= header and len(received) >= header + LENGTH.unpack(received[1:header])[0]

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def obituary(self) -> WorkerDied:
        """Return what there is to say about this worker's end."""
        try:
            code = self._process.wait(0.5)
        except subprocess.TimeoutExpired:  # it closed its pipes and lives on: of no use any more
            self.kill()
            code = self._process.wait()
        size = os.fstat(self._words).st_size
        words = os.pread(self._words, WORDS_SHOWN, max(0, size - WORDS_SHOWN)).decode(errors="replace")
        return WorkerDied(self.envs, self.pid, code, oom_killed=oom_kills() > self._kills_before, last_words=words)

    def let_go(self) -> None:
        """Close the pipe of commands: the worker closes its environments and ends."""
        if self._commands >= 0:
            os.close(self._commands)
            self._commands = -1

    def wait(self, timeout_s: float) -> bool:
        """Return whether the worker has ended within that time."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(timeout_s, 0.0))
            return True
        return False

    def kill(self) -> None:
        """End the worker and whatever its environments started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # its id is its group's
        with suppress(ProcessLookupError):
            self._process.kill()

    def forget(self) -> None:
        """Close what is left of the descriptors."""
        self._close_fds()
        if isinstance(self._process, ForkedProcess):
            self._process.forget()

    def _close_fds(self) -> None:
        self.let_go()
        for fd in (self._replies, self._life, self._words):
            os.close(fd)


class Template:
    """A template that is ready to fork."""

    def __init__(self, env_fns: Sequence[Any], registered: Sequence[bytes], modules: Sequence[str]) -> None:
        """Start it and wait until it has imported what the functions refer to.

        Args:
            registered: pickled specs for gymnasium's registry.
            modules: to import beside those.

        Raises:
            TemplateRefused: it cannot be forked from; workers are to be fresh interpreters.
        """
        self._ended: dict[int, int] = {}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        life, self._life = os.pipe()
        pickled = anonymous_file("legroom-env-functions")
        try:
            with open(pickled, "wb", closefd=False) as file:
                for value in ((list(registered), list(modules)), list(env_fns)):  # data of several functions once
                    cloudpickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
            os.lseek(pickled, 0, os.SEEK_SET)  # one position for both sides
            fds = {"socket": theirs.fileno(), "life": life, "functions": pickled}
            self._process = start_interpreter("legroom.sharing.worker_template", fds)
        except BaseException:
            self._socket.close()
            os.close(self._life)
            raise
        finally:
            theirs.close()
            os.close(life)
            os.close(pickled)
        self.pid = self._process.pid
        try:
            answer, _ = self._receive(None)
        except BaseException:
            self.close()
            raise
        if not answer.get("ready"):
            self.close()
            raise TemplateRefused(answer.get("why", "it ended"))

    def fork(self, fds: list[int]) -> ForkedProcess | None:
        """Return a new worker that has these descriptors, None where there is none to be had."""
        try:
            socket.send_fds(self._socket, [b"fork"], fds)
            while True:
                answer, handles = self._receive(None)
                if not answer or "forked" in answer:
                    break
        except OSError:
            return None
        return ForkedProcess(self, answer["forked"], handles[0]) if handles else None

    def status_of(self, pid: int) -> int:
        """Return the exit code, negative for a signal, of a worker that has ended."""
        while pid not in self._ended:
            answer, _ = self._receive(STATUS_WITHIN_S)
            if not answer:  # the template is dead, and has taken the worker along
                self._ended[pid] = -signal.SIGKILL
        return self._ended[pid]

    def _receive(self, timeout_s: float | None) -> tuple[dict[str, Any], list[int]]:
        """Return the next message and its descriptors, nothing when the template is gone or silent for that long."""
        self._socket.settimeout(timeout_s)
        try:
            message, handles, *_ = socket.recv_fds(self._socket, MESSAGE_NBYTES, 1)
        except OSError:
            return {}, []
        answer = json.loads(message) if message else {}
        if "ended" in answer:
            pid, code = answer["ended"]
            self._ended[pid] = code
        return answer, handles

    def forget(self) -> None:
        """Close the descriptors, in a process that the trainer forked."""
        self._socket.close()
        os.close(self._life)

    def close(self) -> None:
        """End the template, and with it whatever worker it still has."""
        self._socket.close()
        try:
            self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:  # it is still importing, or was stopped
            self._process.kill()
            self._process.wait()
        os.close(self._life)


class TemplateRefused(Exception):
    """There is no template, for the reason it says."""


class ForkedProcess:
    """A worker that a template forked, with what `subprocess.Popen` has for those it started."""

    def __init__(self, template: Template, pid: int, handle: int) -> None:
        self.pid = pid
        self._template, self._handle = template, handle
        self._code: int | None = None
        self._end = select.poll()
        self._end.register(handle, select.POLLIN)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, None while it lives."""
        if self._code is None and self._end.poll(0):
            self._code = self._template.status_of(self.pid)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended."""
        if self._code is None and not self._end.poll(None if timeout is None else max(timeout, 0.0) * 1000):
            raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
        return self.poll() or 0

    def kill(self) -> None:
        if self._code is None:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def forget(self) -> None:
        os.close(self._handle)
