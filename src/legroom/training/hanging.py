"""Notices an environment that hangs, says where, and ends the training process.

How long a call may take is `env.timeout`, or ten minutes where the run does not say. Time is counted by looks, a second
at most from one to the next: a machine that slept, or a container that was paused, is no environment that hangs.

The training process is ended and not the worker alone: what the worker held of the environment is lost either way, and
only the last checkpoint has states of learner and environments that fit together. `env.on_timeout: restart`, the
default, goes on from there, as after a worker that died: nothing of what was saved is lost, an exact resume stays
exact, and nobody has to be awake. What hangs twice from the same checkpoint ends the training
(`Starts.goes_on`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from legroom.machine.stack_signal import Stack, answers_stack_signal, ask_stack
from legroom.machine.tree import descendants
from legroom.model.run import EnvSpec
from legroom.training.events import Call, EnvCalls

DEFAULT_S = 600.0
CLOSE_S = 30.0
BUILD_FACTOR = 10.0  # of env.timeout: to build is to start processes, import and load data
COUNTED_PER_LOOK_S = 1.0
SHOWN_FRAMES = 15
SHOWN_PROCESSES = 8
_VERBS = {"build": "being built", "reset": "reset", "step": "step", "call": "a method", "close": "close"}
_STATES = {"T": "it is stopped", "t": "it is stopped by a debugger", "D": "it is waiting inside the kernel"}


@dataclass(frozen=True)
class Hang:
    """A call that takes too long: in one line, and with the stacks."""

    call: Call
    message: str
    stacks: str


class HangWatch:
    """Looks at the calls of one training child.

    Args:
        pid: of the child.
        log: the file that the child and its workers write standard error to.
        envs: which environments a worker has, by its pid; grows as workers are started.
    """

    def __init__(self, spec: EnvSpec, calls: EnvCalls, pid: int, log: Path, envs: Mapping[int, str]) -> None:
        self.envs, self.restarts = envs, spec.on_timeout == "restart"
        self._spec, self._calls, self._pid, self._log = spec, calls, pid, log
        self._number, self._taken_s, self._looked = 0, 0.0, time.monotonic()

    @property
    def in_call(self) -> bool:
        """Whether an environment is being called now."""
        return self._calls.under_way()[0] > 0

    def look(self) -> Hang | None:
        """Return what hangs, if anything does."""
        now, (number, call) = time.monotonic(), self._calls.under_way()
        passed, self._looked = min(now - self._looked, COUNTED_PER_LOOK_S), now
        if number == 0 or number != self._number:
            self._number, self._taken_s = number, 0.0
            return None
        self._taken_s += passed
        allowed = self.allowed_s(call)
        if allowed is None or self._taken_s <= allowed:
            return None
        return self._describe(call, allowed)

    def allowed_s(self, call: Call) -> float | None:
        """Return how long a call may take, None where nobody watches."""
        given = self._spec.timeout
        if given is not None:
            return (given * BUILD_FACTOR if call == "build" else given) if given else None
        return CLOSE_S if call == "close" else DEFAULT_S

    def _describe(self, call: Call, allowed_s: float) -> Hang:
        stacks = [ask_stack(pid, self._log) for pid in sorted(descendants(self._pid)) if answers_stack_signal(pid)]
        busy = [each for each in stacks if each.pid != self._pid and not _waits_for_orders(each)]
        hanging = busy or [each for each in stacks if each.pid == self._pid] or [Stack(self._pid, (), "")]
        who = ", ".join(self._name(each.pid) for each in hanging[:SHOWN_PROCESSES])
        if len(hanging) > SHOWN_PROCESSES:
            who += f" and {len(hanging) - SHOWN_PROCESSES} more"
        since = f"for {self._taken_s:.0f} s in {_VERBS[call]}" if call != "build" else f"for {self._taken_s:.0f} s"
        kind = "being built hangs" if call == "build" else "hangs"
        message = f"an environment {kind}: {who}, {since} ({allowed_s:.0f} s allowed, env.timeout)"
        return Hang(call, message, "".join(self._shown(each) for each in hanging[:SHOWN_PROCESSES]))

    def _name(self, pid: int) -> str:
        if pid == self._pid:
            return f"the training process, pid {pid}"
        return f"the worker of {self.envs[pid]}, pid {pid}" if pid in self.envs else f"a worker, pid {pid}"

    def _shown(self, stack: Stack) -> str:
        title = f"{self._name(stack.pid)}, most recent call first:\n"
        if not stack.frames:
            return f"{title}  no Python stack: {_STATES.get(stack.state, 'it did not answer')}\n"
        left = len(stack.frames) - SHOWN_FRAMES
        more = f"  ... and {left} more\n" if left > 0 else ""
        return title + "".join(f"  {frame}\n" for frame in stack.frames[:SHOWN_FRAMES]) + more


def _waits_for_orders(stack: Stack) -> bool:
    """Return whether a worker has nothing to do: it reads from the pipe of its trainer, light or of SB3."""
    frames = [frame for frame in stack.frames if "multiprocessing/connection.py" not in frame]
    if not frames:
        return False
    serving = "sharing/worker.py" in frames[0] and frames[0].endswith(" in serve")
    return serving or ("subproc_vec_env.py" in frames[0] and len(frames) < len(stack.frames))
