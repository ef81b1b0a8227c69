"""All workers of one vector environment: asked together, closed together.

Separate from the VecEnv so that a finalizer can close the workers of a VecEnv that was forgotten: it holds the crew and
not the VecEnv.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.machine.forks import in_forks
from legroom.sharing.messages import Reply, name_envs, pack_request, pickled_by_value, raise_failure
from legroom.sharing.process import CAN_FORK, Template, TemplateRefused, WorkerProcess
from legroom.sharing.slots import Layout, anonymous_file, layout_of

CLOSE_WITHIN_S = 2.0  # for the environments to close themselves; then their processes are killed
_LEGROOM = Path(__file__).parents[1]
_ROOMS = (str(_LEGROOM / "sharing"), str(_LEGROOM / "backends"))
NOT_THE_USER = (*_ROOMS, str(Path(weakref.__file__)), "stable_baselines3", "sb3_contrib")


class Crew:
    """The workers, in the order of their environments.

    Raises, from every method that asks them something:
        BadInput: they were closed, or belong to another process.
        WorkerDied: one of the workers is gone.
        Exception: the first environment's exception, of those that had one.

    Attributes:
        shared: descriptor of the memory they share; its size is set once the spaces are known.
        why_fresh: why they are interpreters of their own, empty where they are forked from a template.
        close_within_s: the time that environments have to close themselves; None: `CLOSE_WITHIN_S`.
    """

    close_within_s: float | None = None

    def __init__(self, n_envs: int, envs_per_worker: int, start_template: Callable[[], Template] | None = None) -> None:
        """Start them, from a template if there is one to be had."""
        self._owner_pid = os.getpid()
        self._answered: dict[WorkerProcess, Reply | None] = {}  # steps whose answers came in between
        self.closed = False
        in_forks(self, Crew._leave)
        self.shared = anonymous_file("legroom-observations")
        self.workers: list[WorkerProcess] = []
        self.template: Template | None = None
        self.why_fresh = ""
        try:
            if start_template is None or n_envs <= envs_per_worker:  # for one worker it would be one process more
                self.why_fresh = "no template was requested"
            elif not CAN_FORK:
                self.why_fresh = "this system does not report grandchild processes"
            else:
                try:
                    self.template = start_template()
                except (TemplateRefused, OSError) as refused:
                    self.why_fresh = str(refused)
            for first in range(0, n_envs, envs_per_worker):
                envs = range(first, min(first + envs_per_worker, n_envs))
                self.workers.append(WorkerProcess(envs, self.shared, self.template))
        except BaseException:
            self.close()
            raise

    def build(
        self, env_fns: Sequence[Callable[[], Any]], monitor: bool, registered: Sequence[bytes], *, as_returned: bool
    ) -> tuple[Any, Any, Layout]:
        """Have the environments made, all workers at once; return their common spaces, and the layout of memory.

        Args:
            monitor: count episodes.
            registered: pickled specs for gymnasium's registry.
            as_returned: as `LeanVecEnv` has it.

        Raises:
            BadInput: the spaces differ, or have no fixed shape.
            Exception: an env function's own.
        """
        for worker in self.workers:
            envs, named, functions = list(worker.envs), list(registered), None
            if worker.is_forked:
                named = []
            else:  # in one pickle, so that data that several functions refer to is there once
                functions = pickled_by_value([env_fns[index] for index in envs])
            self.send({worker: pack_request("build", envs, monitor, named, functions, as_returned)})
        described = [each for answer in self.receive(self.workers) if answer for each in answer.value]
        for index, spaces in enumerate(described):
            if spaces != described[0]:
                raise BadInput(f"env {index} has the spaces {spaces}, env 0 has {described[0]}: they must be equal")
        (answer,) = self.ask({self.workers[0]: pack_request("spaces")})
        observation, action, has_torch = answer.value
        if has_torch:
            _warn_user("a worker of LeanVecEnv is not free of torch, which a module of its environment imports")
        layout = layout_of(observation, action, len(env_fns))
        os.ftruncate(self.shared, layout.nbytes)
        self.ask_all("attach", layout)
        return observation, action, layout

    def ask_all(self, name: str, *arguments: Any) -> Any:
        """Ask all workers the same, and return what the first answers."""
        return self.ask(dict.fromkeys(self.workers, pack_request(name, *arguments)))[0].value

    def ask(self, messages: Mapping[WorkerProcess, bytes]) -> list[Reply]:
        """Send each worker its message and return their answers in that order."""
        self.send(messages)
        return [answer or Reply() for answer in self.receive(messages)]

    def send(self, messages: Mapping[WorkerProcess, bytes]) -> None:
        """Send each worker its message."""
        self.check_open()
        for worker, message in messages.items():
            if not worker.is_free:  # it is in a step; its answer is kept for whoever waits for the step
                self._answered[worker] = worker.receive(self.look_around)
            worker.send(message)

    def settle(self) -> None:
        """Let the steps that are under way come to their end, and forget them."""
        self.check_open()
        for worker in self.workers:
            if not worker.is_free:
                worker.receive(self.look_around)
        self._answered.clear()

    def receive(self, workers: Iterable[WorkerProcess]) -> list[Reply | None]:
        """Wait for the replies of these workers; one that has nothing to answer counts as quiet."""
        self.check_open()
        answers = [
            worker.receive(self.look_around) if worker.awaited else self._answered.pop(worker, None)
            for worker in workers
        ]
        for answer in answers:
            if answer and answer.failure:
                raise_failure(*answer.failure)
        return answers

    def check_open(self) -> None:
        """Refuse to go on with workers that were closed, or are another process's."""
        if self.closed and self._owner_pid != os.getpid():
            why = f"the workers of this LeanVecEnv belong to process {self._owner_pid}, the parent of this one"
            raise BadInput(why, hint="make the LeanVecEnv in the process that uses it")
        if self.closed:
            raise BadInput("the LeanVecEnv is closed")

    def _leave(self) -> None:
        """Let go of the workers in a forked process: they answer one trainer, and end when it closes its pipes."""
        if self.closed:
            return
        self.closed = True
        for worker in self.workers:
            worker.forget()
        if self.template:
            self.template.forget()
        os.close(self.shared)

    def look_around(self) -> None:
        """Raise for a worker that died while another one is being waited for."""
        for worker in self.workers:
            if not worker.is_alive():
                raise worker.obituary()

    def close(self) -> None:
        """End all workers, kindly first, surely in the end; never takes much longer than `close_within_s`."""
        if self.closed or os.getpid() != self._owner_pid:  # a forked process has no business with them
            return
        self.closed = True
        within_s = CLOSE_WITHIN_S if self.close_within_s is None else self.close_within_s
        deadline = time.monotonic() + within_s
        for worker in self.workers:
            worker.let_go()
        slow = [worker for worker in self.workers if not worker.wait(deadline - time.monotonic())]
        for worker in slow:
            worker.kill()
        for worker in slow:
            worker.wait(1.0)
        for worker in self.workers:
            worker.forget()
        if self.template:
            self.template.close()
        os.close(self.shared)
        if slow:
            envs = ", ".join(name_envs(worker.envs) for worker in slow)
            _warn_user(f"{envs} did not close within {within_s:g} s; the process was killed")


def _warn_user(text: str) -> None:
    """Warn at the user's line, wherever in SB3 or here it came to light."""
    frame, level = sys._getframe(), 1
    while frame.f_back and any(part in frame.f_code.co_filename for part in NOT_THE_USER):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


class LightEnvs:
    """Copies of one environment, each in a light worker, without a trainer: made, reset, stepped, closed.

    Args:
        make: makes one.
        preload: modules to import before workers are forked; None: each worker is an interpreter of its own.
    """

    def __init__(self, make: Callable[[], Any], count: int, preload: Sequence[str] | None) -> None:
        start = None if preload is None else partial(Template, [make] * count, [], preload)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._crew = Crew(count, 1, start)
        try:
            _, self.action_space, _ = self._crew.build([make] * count, False, [], as_returned=False)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._crew.workers]

    @property
    def are_forked(self) -> bool:
        return all(worker.is_forked for worker in self._crew.workers)

    def offer(self, attribute: str) -> bool:
        """Say whether the environments have an attribute."""
        return all(self._crew.ask({self._crew.workers[0]: pack_request("has_attr", [0], attribute)})[0].value)

    def ask_each(self, name: str, *arguments: Any, each: Callable[[int], tuple[Any, ...]]) -> None:
        """Ask every worker with what `each` gives for the number of its environment, by that number."""
        messages = {}
        for worker in self._crew.workers:
            (index,) = worker.envs
            messages[worker] = pack_request(name, *arguments, *({index: one} for one in each(index)))
        self._crew.ask(messages)

    def masks(self, index: int) -> Any:
        """Return the action mask of one environment."""
        message = pack_request("env_method", [index], "action_masks", (), {})
        return self._crew.ask({self._crew.workers[index]: message})[0].value[0]

    def close(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._crew.close()
