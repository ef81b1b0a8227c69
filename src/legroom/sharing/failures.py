"""What goes wrong in a worker, as the trainer sees it: a process that died, or an exception in an environment."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Sequence

from legroom.errors import EXIT_TRAINING_FAILED, LegroomError
from legroom.sharing.messages import Failure


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

    def __init__(self, failure: Failure) -> None:
        self.env, self.step, self.worker_traceback = failure.env, failure.step, failure.text
        where = "a worker" if failure.env is None else f"env {failure.env} at its step {failure.step}"
        super().__init__(f"an exception in {where}:\n{failure.text.rstrip()}")


def raise_failure(failure: Failure) -> None:
    """Raise the worker's exception with its own type and, as its cause, where it happened.

    Raises:
        EnvFailed: alone where the original cannot be brought here.
        Exception: the original.
    """
    remote = EnvFailed(failure)
    try:
        original = pickle.loads(failure.pickled) if failure.pickled else None
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
