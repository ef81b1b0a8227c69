"""An SB3 VecEnv whose worker processes need no torch: 5 MB each instead of 164, and observations without a copy.

    env = legroom.LeanVecEnv([lambda: gym.make("CartPole-v1") for _ in range(8)], envs_per_worker=2)

It behaves as `DummyVecEnv` does, to the bit: the same training gives the same parameters. One thing is different and
the reason for its speed: observations are returned as views of shared memory. Each stays as it is during the next step
and is overwritten by the one after that, which is all that SB3's algorithms, wrappers and buffers need. Code that keeps
observations for longer copies them, or asks for `copy_observations=True`.

Workers are forked from one small process (`worker_template`); where that is not possible they have 23 MB each.

Figures of `python -m bench.workers`, 2026-11, CPU build of torch. Mirrors
`DummyVecEnv` and `SubprocVecEnv` of stable-baselines3 2.9.
"""

import warnings
import weakref
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

from legroom.errors import BadInput
from legroom.sharing.crew import Crew
from legroom.sharing.messages import STEP_INTO, Reply, name_envs, pack_request, pickled_by_value
from legroom.sharing.process import Template, WorkerProcess
from legroom.sharing.shared import begin_sharing, keep_shared
from legroom.sharing.slots import TERMINAL, Slots, parts_of

OWN_ENVS = "gymnasium."  # entry points that every worker knows by itself


class LeanVecEnv(VecEnv):
    """Environments in torch-free worker processes.

    Args:
        env_fns: functions that make one environment each; lambdas and closures are fine. What they use of the main
            script is sent along; the script itself is not imported again.
        envs_per_worker: how many environments one process steps in turn.
        monitor: count episodes, for `rollout/ep_rew_mean` and the like. SB3's Monitor is not needed then.
        copy_observations: return copies instead of views.
        as_returned: stack observations and rewards in the dtypes in which environments return them, as
            `SubprocVecEnv` does, rather than in those of their spaces, as `DummyVecEnv` does.
        forked: fork workers from one small process that has imported what they need; False: each is an interpreter of
            its own, as it is anyway where what they import starts threads or opens files.
        preload: modules, or `module:name`, that environments will import when they are made, to be imported before
            workers are forked; those that the env functions themselves refer to need no mention. A class that has
            `prepare_workers`, and of which the env functions are partials, can do more than be imported there
            (`worker_template`).

    Raises:
        BadInput: the arguments or spaces cannot be used.
        WorkerDied: a worker ended, here or in any method that needs one.
        Exception: an env function's own, from `EnvFailed`.

    Example:
        >>> import gymnasium, legroom
        >>> envs = legroom.LeanVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
        >>> envs.reset().shape
        (2, 4)
        >>> envs.close()
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gym.Env[Any, Any]]],
        envs_per_worker: int = 1,
        *,
        monitor: bool = True,
        copy_observations: bool = False,
        as_returned: bool = False,
        forked: bool = True,
        preload: Sequence[str] = (),
    ) -> None:
        env_fns = list(env_fns)
        if not env_fns or envs_per_worker < 1:
            raise BadInput(f"{len(env_fns)} environments, {envs_per_worker} per worker: both must be at least 1")
        self.waiting = False
        self._copies, self._as_returned = copy_observations or as_returned, as_returned
        self._reward_dtypes = ["<f8"] * len(env_fns)
        begin_sharing()  # before the workers are started, so that they are one run
        # the user's program registered environments with gymnasium, and no worker runs that program
        registered = [pickled for spec in gym.registry.values() if (pickled := _pickled_spec(spec))]
        start_template = partial(Template, env_fns, registered, preload) if forked else None
        self._crew = Crew(len(env_fns), envs_per_worker, start_template)
        self._close = weakref.finalize(self, self._crew.close)
        try:
            observation_space, action_space, layout = self._crew.build(
                env_fns, monitor, registered, as_returned=as_returned
            )
            keep_shared()  # the next vector environment of this run finds it, though these workers have ended
            self._slots = Slots(layout, self._crew.shared)
            self._slot = 0
            self._actions: np.ndarray | None = None
            VecEnv.__init__(self, len(env_fns), observation_space, action_space)  # also beneath SubprocVecEnv
        except BaseException:
            self._close()
            raise

    def reset(self) -> VecEnvObs:
        self._crew.settle()
        self.waiting = False
        self._slot = 1 - self._slot
        messages = {}
        for worker in self._crew.workers:
            seeds = {index: self._seeds[index] for index in worker.envs}
            options = {index: self._options[index] for index in worker.envs}
            messages[worker] = pack_request("reset", self._slot, seeds, options)
        unlike: dict[int, dict[str, Any]] = {}
        for answer in self._crew.ask(messages):
            self._keep_reset_infos(answer)
            unlike |= answer.unlike
        self._reset_seeds()
        self._reset_options()
        return self._observations(unlike)

    def step_async(self, actions: np.ndarray) -> None:
        if len(actions) != self.num_envs:
            raise BadInput(f"{len(actions)} actions for {self.num_envs} environments")
        self._crew.check_open()  # before anything is written to what the workers read
        if self.waiting:  # an interrupted wait has left a step behind
            self._crew.settle()
        self._slot = 1 - self._slot
        if self._share(actions):
            message = STEP_INTO[self._slot]
            self._crew.send(dict.fromkeys(self._crew.workers, message))
        else:
            given = {
                worker: pack_request("step", self._slot, {index: actions[index] for index in worker.envs})
                for worker in self._crew.workers
            }
            self._crew.send(given)
        self.waiting = True

    def _share(self, actions: np.ndarray) -> bool:
        """Put the actions into shared memory, in their own dtype; return whether they are such that they can be."""
        try:
            actions = np.asarray(actions)
        except ValueError:  # such as tuples of arrays of several shapes
            return False
        mine = self._actions
        if mine is None or mine.dtype != actions.dtype or mine.shape != actions.shape:
            mine = self._slots.actions(actions.dtype.str, actions.shape[1:])
            if mine is None:
                return False
            self._actions = None  # an interruption must not leave workers that read them otherwise
            self._crew.ask_all("actions", actions.dtype.str, actions.shape[1:])
            self._actions = mine
        mine[...] = actions
        return True

    def step_wait(self) -> VecEnvStepReturn:
        if not self.waiting:
            raise BadInput("step_wait() without step_async()")
        answers = self._crew.receive(self._crew.workers)
        self.waiting = False
        dones = self._slots.dones.copy()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        unlike: dict[int, dict[str, Any]] = {}
        for answer in answers:
            if answer is not None:
                for index, info in answer.value.items():
                    infos[index] = info
                self._keep_reset_infos(answer)
                unlike |= answer.unlike
        for info, truncated in zip(infos, self._slots.truncations.tolist(), strict=True):
            info["TimeLimit.truncated"] = truncated
        if dones.any():
            for index in np.flatnonzero(dones).tolist():
                given = unlike.get(index, {})
                own = "terminal" in given
                last = given["terminal"] if own else self._copied(self._slots.of_env(TERMINAL, index))
                infos[index]["terminal_observation"] = last
            self._slots.give_back_terminal()
        return self._observations(unlike), self._rewards(unlike), dones, infos

    def _rewards(self, unlike: dict[int, dict[str, Any]]) -> np.ndarray:
        for index, given in unlike.items():
            self._reward_dtypes[index] = given.get("reward_dtype", self._reward_dtypes[index])
        dtype = np.result_type(*set(self._reward_dtypes)) if self._as_returned else np.dtype(np.float32)
        return self._slots.rewards.astype(dtype)

    def _observations(self, unlike: dict[int, dict[str, Any]]) -> VecEnvObs:
        views = self._slots.places[self._slot]
        if any("observation" in given for given in unlike.values()):
            return self._stacked(unlike)
        if self._copies:
            return self._copied(views)
        return dict(views) if isinstance(views, dict) else views

    def _stacked(self, unlike: dict[int, dict[str, Any]]) -> VecEnvObs:
        """Return the observations of which some are not as their space says, as `SubprocVecEnv` stacks them."""
        each: list[Any] = [
            unlike[index]["observation"] if "observation" in unlike.get(index, {})
            else self._slots.of_env(self._slot, index)
            for index in range(self.num_envs)
        ]  # fmt: skip
        keys = [leaf.key for leaf in self._slots.layout.leaves]
        parts = {key: np.stack([one if key is None else one[key] for one in each]) for key in keys}
        return self._slots.layout.assembled(parts)

    def _copied(self, observation: Any) -> Any:
        return self._slots.layout.assembled({key: np.array(part) for key, part in parts_of(observation).items()})

    def _keep_reset_infos(self, answer: Reply) -> None:
        for index, info in answer.resets.items():
            self.reset_infos[index] = info

    def close(self) -> None:
        """End the workers. May be called again, and at any time; takes little more than 2 s at most."""
        self._close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        if self.render_mode != "rgb_array":
            warnings.warn(f"the render mode is {self.render_mode}; images need rgb_array", stacklevel=2)
            return [None] * self.num_envs
        return self.env_method("render")

    def has_attr(self, attr_name: str) -> bool:
        return all(self._ask_envs(None, "has_attr", attr_name))

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return self._ask_envs(indices, "get_attr", attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        self._ask_envs(indices, "set_attr", attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        return self._ask_envs(indices, "env_method", method_name, method_args, method_kwargs)

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        return self._ask_envs(indices, "is_wrapped", wrapper_class.__module__, wrapper_class.__qualname__)

    def envs_by_pid(self) -> dict[int, str]:
        """Return which environments each worker process has, in words, by its pid."""
        return {worker.pid: name_envs(worker.envs) for worker in self._crew.workers}

    def _ask_envs(self, indices: VecEnvIndices, name: str, *arguments: Any) -> list[Any]:
        """Ask these environments and return what each answers, in the order of `indices`."""
        wanted = [range(self.num_envs)[index] for index in self._get_indices(indices)]  # negative ones from the end
        messages: dict[WorkerProcess, bytes] = {}
        asked: list[int] = []
        for worker in self._crew.workers:
            mine = [index for index in worker.envs if index in wanted]
            if mine:
                messages[worker] = pack_request(name, mine, *arguments)
                asked += mine
        values = [value for answer in self._crew.ask(messages) for value in answer.value]
        by_index = dict(zip(asked, values, strict=True))
        return [by_index[index] for index in wanted]


def _pickled_spec(spec: Any) -> bytes:
    """Return the spec of an environment that workers do not know by themselves, nothing for one they know."""
    entry = spec.entry_point
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    if entry is None or module.startswith(OWN_ENVS):
        return b""
    name = getattr(entry, "__qualname__", "")
    if name.isidentifier() and module != "__main__":
        spec = copy(spec)
        spec.entry_point = f"{module}:{name}"  # imported only by the worker that makes it
    try:
        return pickled_by_value(spec)
    except Exception:  # something that cannot travel; gym.make will say that it is not registered
        return b""
