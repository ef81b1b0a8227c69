"""What trainer and worker say to each other, through a pipe in each direction.

A step is one byte, the slot to fill, and so is its answer when there is nothing to add: actions, observations, rewards
and flags lie in shared memory. Everything else is a byte, a length and a pickle, to and from a process of our own, in
memory only. Pipes and not a socket: a round trip took 10 µs against 22 (2 cores, Python 3.11, 2026-11).

What goes wrong in a worker is an exception of an environment (`EnvFailed`), or the process died (`WorkerDied`).
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from legroom.errors import EXIT_TRAINING_FAILED, LegroomError

STEP_INTO = (b"\x00", b"\x01")  # a step that fills slot 0, slot 1
REQUEST = b"\x02"
QUIET = b"\x00"  # a step is done and its infos are empty
ANSWER = b"\x01"
LENGTH = struct.Struct("<Q")
READ_NBYTES = 1 << 16  # what a pipe holds


@dataclass(frozen=True)
class Reply:
    """An answer to a request, or to a step that has something to say."""

    value: Any = None  # what was asked for; for steps and resets the infos by environment
    # info of `reset` by environment, where one was reset
    resets: dict[int, dict[str, Any]] = field(default_factory=dict)
    # of an exception, that of `EnvFailed` with the exception itself, where it can be pickled
    failure: tuple[int | None, int, str, bytes | None] | None = None
    # by environment, what it returned where shared memory cannot hold it as it was (`hosted`)
    unlike: dict[int, dict[str, Any]] = field(default_factory=dict)


def pickled_by_value(value: Any) -> bytes:
    """Return a pickle that another process can read: with what the main script defines, lambdas too."""
    payload: bytes = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return payload


def pack_request(*request: Any) -> bytes:
    """Return a request as it goes through the pipe. Things of the main script travel by value, lambdas too."""
    payload = pickled_by_value(request)
    return REQUEST + LENGTH.pack(len(payload)) + payload


def pack_answer(answer: Reply) -> bytes:
    """Return an answer as it goes through the pipe."""
    payload = _dumps(answer)
    return ANSWER + LENGTH.pack(len(payload)) + payload


def _dumps(value: Any) -> bytes:
    # The quick pickle knows nothing of classes that came from the main script; cloudpickle gives them back as the very
    # classes that the trainer sent.
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        return pickled_by_value(value)


def failed(wrong: BaseException, env: int | None, step: int) -> Reply:
    """Return the exception in a form that always travels."""
    try:
        pickled = _dumps(wrong)
    except Exception:
        pickled = None
    return Reply(failure=(env, step, "".join(traceback.format_exception(wrong)), pickled))


def write_all(fd: int, data: bytes) -> None:
    """Write everything; a pipe takes large data in pieces."""
    written = os.write(fd, data)
    if written < len(data):
        rest = memoryview(data)[written:]
        while rest:
            rest = rest[os.write(fd, rest) :]


def read_exactly(fd: int, nbytes: int) -> bytes:
    """Return that many bytes."""
    data = bytearray()
    while len(data) < nbytes:
        piece = os.read(fd, min(nbytes - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


class WorkerDied(LegroomError, RuntimeError):
    """A worker process ended by itself or was killed.

    Attributes:
        envs: indices of its environments.
        pid: its process id.
        signal_name: such as "SIGKILL", empty where it exited by itself.
        code: its exit code, None where a signal ended it.
        oom_killed: whether the kernel's count of processes killed for memory rose in its lifetime.
        last_words: the end of what it wrote to standard error, and its Python stack where native code crashed.
    """

    exit_code = EXIT_TRAINING_FAILED

    def __init__(self, envs: Sequence[int], pid: int, code: int, *, oom_killed: bool, last_words: str) -> None:
        self.envs, self.pid = tuple(envs), pid
        self.signal_name = signal_name(-code) if code < 0 else ""
        self.code = None if code < 0 else code
        self.oom_killed = oom_killed and code == -signal.SIGKILL
        self.last_words = last_words
        how = f"was killed by {self.signal_name}" if self.signal_name else f"ended with exit code {code}"
        if self.oom_killed:
            how += " (probably the OOM killer: the cgroup's count of processes killed for memory rose)"
        words = f"; its last output:\n{last_words.rstrip()}" if last_words.strip() else ""
        super().__init__(f"the worker of {name_envs(envs)}, pid {pid}, {how}{words}")


class EnvFailed(RuntimeError):
    """An exception in an environment. It is the cause (`__cause__`) of the original one, which is raised from it.

    Attributes:
        env: index of the environment, None where the failure has nothing to do with one.
        step: how many steps that environment had done, the failed one included.
        worker_traceback: the traceback in the worker.
    """

    def __init__(self, env: int | None, step: int, worker_traceback: str) -> None:
        self.env, self.step, self.worker_traceback = env, step, worker_traceback
        where = "a worker" if env is None else f"env {env} at its step {step}"
        super().__init__(f"an exception in {where}:\n{worker_traceback.rstrip()}")


def raise_failure(env: int | None, step: int, text: str, pickled: bytes | None) -> None:
    """Raise the worker's exception with its own type and, as its cause, where it happened.

    Raises:
        EnvFailed: alone where the original cannot be brought here.
        Exception: the original.
    """
    remote = EnvFailed(env, step, text)
    try:
        original = pickle.loads(pickled) if pickled else None
    except Exception:  # an exception whose arguments do not fit its own constructor, or of a module not found here
        original = None
    if not isinstance(original, BaseException):
        raise remote
    raise original from remote


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9; real-time signals have no name of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def name_envs(envs: Sequence[int]) -> str:
    """Return `env 3` or `envs 4 to 7`."""
    return f"env {envs[0]}" if len(envs) == 1 else f"envs {envs[0]} to {envs[-1]}"
