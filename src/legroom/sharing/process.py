"""The trainer's end of one worker process: starts it, talks to it, notices when it died, ends it.

A worker is forked from the template where there is one and a fresh interpreter otherwise. Either way it has a process
group of its own.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress

from legroom.machine.cgroup import oom_kills
from legroom.sharing.failures import WorkerDied
from legroom.sharing.interpreter import start_interpreter
from legroom.sharing.messages import ANSWER, LENGTH, QUIET, READ_NBYTES, Answer, pack_request, write_all
from legroom.sharing.slots import anonymous_file
from legroom.sharing.template import ForkedProcess, Template

LOOK_AROUND_MS = 250  # how often a trainer that waits looks whether a worker died
WORDS_SHOWN = 2000


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
        """Send a message.

        Raises:
            WorkerDied: nobody is there to read it.
        """
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

    def receive(self, look_around: Callable[[], None]) -> Answer | None:
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
