"""The worker process: builds its environments from pickled functions and serves them until the trainer is gone.

Started as a fresh interpreter or forked from one (`worker_template`), not through multiprocessing, which would import
the user's main script and with it torch. Nothing here may import stable-baselines3 or torch.

A worker ends with its trainer, even one killed in the middle of a step. One that waits for its next step sees the end
of the pipe. One that computes, or hangs, sees nothing; so the kernel ends it (`hold_lifeline`).
"""

from __future__ import annotations

import faulthandler
import fcntl
import io
import json
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np

from legroom.machine.forks import in_forks, to_nowhere
from legroom.machine.stack_signal import answer_stack_signal
from legroom.orphan import end_with
from legroom.sharing.hosted import Forked, HostedEnv, is_wrapped
from legroom.sharing.messages import (
    LENGTH,
    QUIET,
    REQUEST,
    STEP_INTO,
    Reply,
    failed,
    pack_answer,
    read_exactly,
    write_all,
)
from legroom.sharing.slots import Layout, Slots

WORDS_NBYTES = 1 << 16
# SB3's Monitor needs no torch, but to import it is to import its package, which does: 160 MB in a worker.
LIGHT = ("stable_baselines3", "stable_baselines3.common", "stable_baselines3.common.vec_env")
EnvFns = Sequence[Callable[[], gym.Env[Any, Any]]]


class LightPackages(MetaPathFinder, Loader):
    """Finds these packages as usual and puts off what they execute.

    A package is there at once, with its path, so that modules in it can be imported by themselves. Its own `__init__`
    runs when a name is asked for that is no module: `stable_baselines3.PPO`.
    """

    def __init__(self, names: Sequence[str] = LIGHT) -> None:
        self._names = frozenset(names)
        self._found: dict[str, ModuleSpec] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is None or found.loader is None or found.submodule_search_locations is None:
            return None
        self._found[fullname] = found
        light = ModuleSpec(fullname, self, origin=found.origin, is_package=True)
        light.submodule_search_locations = list(found.submodule_search_locations)
        light.has_location = True
        return light

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        found = self._found[module.__name__]
        waiting = [found]

        def get(name: str) -> Any:
            if name.startswith("__") or _is_module(module, name):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if waiting:
                spec = waiting.pop()
                assert spec.loader is not None
                spec.loader.exec_module(module)
            vars(module).pop("__getattr__", None)
            if name in vars(module):
                return vars(module)[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__getattr__ = get  # type: ignore[method-assign]


def _is_module(package: ModuleType, name: str) -> bool:
    """Return whether a name is that of a module in the package, which whoever asks is about to import."""
    return PathFinder.find_spec(f"{package.__name__}.{name}", list(package.__path__)) is not None


def put_off_packages() -> None:
    """From now on, in this process."""
    sys.meta_path.insert(0, LightPackages())


def main() -> None:
    """Serve until the pipe from the trainer ends. The last argument is JSON: descriptors and the trainer's pid."""
    put_off_packages()
    task = json.loads(sys.argv[-1])
    del sys.argv[1:]  # an environment that reads arguments should find none
    run_worker(task["fds"], task["trainer"], started_by_main_thread=task["main_thread"])


def run_worker(
    fds: dict[str, int], parent: int, *, started_by_main_thread: bool, env_fns: EnvFns | None = None
) -> None:
    """Be the worker of these descriptors, which dies with its parent process; a forked one has the functions."""
    for fd in fds.values():
        os.set_inheritable(fd, False)  # not for the environments' own processes
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which then closes its workers
    hold_lifeline(fds["life"], parent, started_by_main_thread=started_by_main_thread)
    words = fds["words"]
    answer_stack_signal()
    faulthandler.enable(words)  # a crash in native code leaves its Python stack behind
    sys.stderr = io.TextIOWrapper(_Remembering(words), errors="backslashreplace", write_through=True)
    if env_fns is not None:
        np.random.seed()  # as a fresh interpreter has it; Python's own generator does so by itself
    _Worker(fds, env_fns or ()).serve()


def hold_lifeline(fd: int, trainer_pid: int, *, started_by_main_thread: bool) -> None:
    """Have this process killed as soon as the trainer is gone. Does what the system offers; Linux offers all.

    The life line is a pipe whose other end only the trainer holds: when it closes, the kernel sends the signal set with
    F_SETSIG. A process that the trainer forked may still hold that end, so the parent-death signal is set too. It fires
    when the *thread* that started the worker ends, hence only where that was the main thread.
    """
    if hasattr(fcntl, "F_SETSIG"):
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    if started_by_main_thread:
        end_with(trainer_pid, signal.SIGKILL)
    if os.getppid() != trainer_pid:  # it ended before any of this was in place
        os._exit(1)


def register(registered: Sequence[bytes]) -> None:
    """Make known to gymnasium what the user's program has registered."""
    for pickled in registered:
        with suppress(Exception):  # something that cannot travel; gym.make will say that it is not registered
            spec = pickle.loads(pickled)
            gym.registry.setdefault(spec.id, spec)


class _Remembering(io.FileIO):
    """Standard error, whose last words are also kept where the trainer finds them when the worker has died."""

    def __init__(self, words: int) -> None:
        super().__init__(2, "w", closefd=False)
        self._words = words

    def write(self, data: Any) -> int:
        if os.lseek(self._words, 0, os.SEEK_CUR) > WORDS_NBYTES:
            os.lseek(self._words, 0, os.SEEK_SET)
            os.ftruncate(self._words, 0)
        os.write(self._words, data)
        return super().write(data) or 0


class _Worker:
    """Answers requests. What a request is called here, `LeanVecEnv` calls it too."""

    def __init__(self, fds: dict[str, int], env_fns: EnvFns) -> None:
        self._fds, self._env_fns = fds, env_fns
        self._envs: list[HostedEnv] = []
        self._by_index: dict[int, HostedEnv] = {}
        self._at: HostedEnv | None = None  # whose turn it is, for failures
        self._requests: dict[str, Callable[..., Any]] = {
            "build": self._build, "spaces": self._spaces, "attach": self._attach,
            "actions": self._set_actions, "reset": self._reset, "get_attr": self._get_attr, "has_attr": self._has_attr,
            "set_attr": self._set_attr, "env_method": self._env_method, "is_wrapped": self._is_wrapped,
        }  # fmt: skip
        self._is_fork = False
        in_forks(self, _Worker._leave)

    def _leave(self) -> None:
        """Let go of the trainer in a process that an environment forked: it has one worker to talk to, and no other."""
        self._is_fork = True
        for hosted in self._envs:
            hosted.is_fork = True
        for name in ("commands", "replies"):
            to_nowhere(self._fds[name])

    def serve(self) -> None:
        commands, replies = self._fds["commands"], self._fds["replies"]
        steps = {STEP_INTO[0]: 0, STEP_INTO[1]: 1}
        while True:
            command = os.read(commands, 1)
            try:
                if command in steps:
                    reply = self._step(steps[command], None)
                elif command == REQUEST:
                    (nbytes,) = LENGTH.unpack(read_exactly(commands, LENGTH.size))
                    reply = self._answer(read_exactly(commands, nbytes))
                else:  # the trainer closed the pipe, or is gone
                    break
            except EOFError:
                break
            except Forked:
                reply = b""
            if self._is_fork:  # it ends here, and closes nothing: the environments are the worker's
                _end(0)
            try:
                write_all(replies, reply)
            except BrokenPipeError:
                break
        self._close()

    def _answer(self, payload: bytes) -> bytes:
        """Return the reply to a request; whatever goes wrong in it is a reply too."""
        self._at = None
        try:
            name, *arguments = pickle.loads(payload)
            if name == "step":
                return self._step(*arguments)
            if name == "say":
                said: bytes = arguments[0]
                return said
            answer = self._requests[name](*arguments)
            if not isinstance(answer, Reply):
                answer = Reply(answer)
            return pack_answer(answer)
        except Exception as wrong:
            return pack_answer(self._failure(wrong))

    def _failure(self, wrong: Exception) -> Reply:
        if self._is_fork:
            traceback.print_exception(wrong)
            _end(1)
        at = self._at
        return failed(wrong, at.index if at else None, at.steps if at else 0)

    def _build(
        self,
        envs: Sequence[int],
        monitor: bool,
        registered: list[bytes],
        env_fns: bytes | None,
        as_returned: bool = False,
    ) -> list[str]:
        """Make the environments, by the functions given or inherited, and return what their spaces look like."""
        register(registered)
        functions = [self._env_fns[index] for index in envs] if env_fns is None else pickle.loads(env_fns)
        self._env_fns = ()
        for index, env_fn in zip(envs, functions, strict=True):
            env = env_fn()
            if not isinstance(env, gym.Env):
                raise TypeError(f"env function {index} returned {type(env)}, which is not a gymnasium.Env")
            self._envs.append(HostedEnv(env, index, monitor=monitor, as_returned=as_returned))
        if len({id(hosted.env.unwrapped) for hosted in self._envs}) < len(self._envs):
            raise ValueError("two env functions returned the same environment; each must make its own")
        self._by_index = {hosted.index: hosted for hosted in self._envs}
        return [f"{hosted.env.observation_space} and {hosted.env.action_space}" for hosted in self._envs]

    def _spaces(self) -> tuple[gym.Space[Any], gym.Space[Any], bool]:
        """Return the spaces (asked of one worker only: a Box holds four arrays of its shape), and if torch came."""
        return self._envs[0].env.observation_space, self._envs[0].env.action_space, "torch" in sys.modules

    def _attach(self, layout: Layout) -> None:
        self._slots = Slots(layout, self._fds["shared"])
        for hosted in self._turns(self._by_index):
            hosted.attach(self._slots)

    def _set_actions(self, dtype: str, shape: tuple[int, ...]) -> None:
        actions = self._slots.actions(dtype, shape)
        assert actions is not None  # the trainer asked the same before
        self._actions = actions

    def _reset(self, slot: int, seeds: dict[int, Any], options: dict[int, Any]) -> Reply:
        resets = {each.index: each.reset(slot, seeds[each.index], options[each.index]) for each in self._turns(seeds)}
        return Reply(resets=resets, unlike=self._unlike())

    def _step(self, slot: int, given: dict[int, Any] | None) -> bytes:
        """Step every environment in turn; return the reply. Actions that are not given lie in shared memory."""
        infos: dict[int, dict[str, Any]] = {}
        resets: dict[int, dict[str, Any]] = {}
        try:
            for hosted in self._envs:
                self._at, index = hosted, hosted.index
                if given is not None:
                    action = given[index]
                else:
                    action = self._actions[index]
                    if isinstance(action, np.ndarray):
                        action = action.copy()  # environments may keep it
                info, reset_info = hosted.step(slot, action)
                if info:
                    infos[index] = info
                if reset_info is not None:
                    resets[index] = reset_info
            unlike = self._unlike()
            if infos or resets or unlike:
                return pack_answer(Reply(infos, resets, unlike=unlike))
            return QUIET
        except Exception as wrong:
            return pack_answer(self._failure(wrong))

    def _unlike(self) -> dict[int, dict[str, Any]]:
        return {hosted.index: hosted.take_unlike() for hosted in self._envs if hosted.unlike}

    def _turns(self, indices: Any) -> Any:
        for index in indices:
            self._at = self._by_index[index]
            yield self._at

    def _get_attr(self, indices: list[int], name: str) -> list[Any]:
        return [hosted.env.get_wrapper_attr(name) for hosted in self._turns(indices)]

    def _has_attr(self, indices: list[int], name: str) -> list[bool]:
        return [hosted.env.has_wrapper_attr(name) for hosted in self._turns(indices)]

    def _set_attr(self, indices: list[int], name: str, value: Any) -> list[None]:
        for hosted in self._turns(indices):
            setattr(hosted.given, name, value)
        return [None] * len(indices)

    def _env_method(self, indices: list[int], name: str, arguments: Any, keywords: Any) -> list[Any]:
        return [hosted.env.get_wrapper_attr(name)(*arguments, **keywords) for hosted in self._turns(indices)]

    def _is_wrapped(self, indices: list[int], module: str, name: str) -> list[bool]:
        return [is_wrapped(hosted.env, module, name) for hosted in self._turns(indices)]

    def _close(self) -> None:
        for hosted in self._envs:
            try:
                hosted.env.close()
            except Exception as wrong:
                sys.stderr.write(f"legroom: closing env {hosted.index}: {wrong!r}\n")
        _end(0)


def _end(code: int) -> NoReturn:
    """End as multiprocessing ends its processes: taking an interpreter with large libraries apart can take seconds."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
