"""The trainer's end of the template that workers are forked from, and of a worker that was forked.

A forked worker is a grandchild, and the kernel tells only parents how a process ended. So the template tells it, by the
socket through which it is asked for workers; that a worker has ended, and who is meant when it is killed, the trainer
knows by itself, from a pidfd. (To adopt grandchildren, PR_SET_CHILD_SUBREAPER, would change what the user's process
inherits from other libraries' processes.)
"""

from __future__ import annotations

import io
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import cloudpickle

from legroom.sharing.interpreter import start_interpreter
from legroom.sharing.slots import anonymous_file

CAN_FORK = sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
MESSAGE_NBYTES = 4096
FUNCTIONS_NBYTES = 1 << 28  # of what the env functions carry along, for all workers together
STATUS_WITHIN_S = 0.5  # the template reports within milliseconds, unless it is dead
END_WITHIN_S = 1.0


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
            _write(pickled, (list(registered), list(modules)), list(env_fns))
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


def _write(target: int, *values: Any) -> None:
    """Write pickles one after the other, so that they are nowhere in one piece; functions may carry much data.

    Raises:
        TemplateRefused: so much that one process should not hold it all.
        Exception: what pickling raises.
    """
    with _Limited(target, "wb", closefd=False) as file:
        for value in values:  # each in one pickle, so that data that several functions refer to is there once
            cloudpickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
    os.lseek(target, 0, os.SEEK_SET)  # one position for both sides


class _Limited(io.FileIO):
    def write(self, data: Any) -> int:
        data = memoryview(data)
        if self.tell() + data.nbytes > FUNCTIONS_NBYTES:
            raise TemplateRefused(f"the env functions carry more than {FUNCTIONS_NBYTES >> 20} MiB")
        written = 0
        while written < data.nbytes:  # a single write ends at 2 GiB
            written += super().write(data[written:]) or 0
        return written


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
        """Return the exit code once it has ended.

        Raises:
            subprocess.TimeoutExpired: it lives on.
        """
        if self._code is None and not self._end.poll(None if timeout is None else max(timeout, 0.0) * 1000):
            raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
        return self.poll() or 0

    def kill(self) -> None:
        if self._code is None:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def forget(self) -> None:
        os.close(self._handle)
