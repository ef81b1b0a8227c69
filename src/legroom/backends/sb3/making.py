"""Make what a run trains for real: its environments, vectorised and wrapped, and its algorithm with the knobs turned.

The twin of `sb3_build`, which makes the same algorithm hollow, to be traced. What is here runs in the training child
only: environments are somebody else's code.
"""

import warnings
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecEnvWrapper

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.applied_knobs import turn_knobs
from legroom.backends.sb3.building import class_of_run, find_class, find_object, policy_arguments, wrapped
from legroom.backends.sb3.constraints import refuse_untrainable
from legroom.backends.sb3.lean_storage import lean
from legroom.backends.sb3.lean_vec_env import LeanVecEnv
from legroom.backends.sb3.stored import stores_leanly
from legroom.backends.sb3.updates import in_pieces, mirrored_owner
from legroom.environments.env_make import make_env
from legroom.errors import BadInput
from legroom.machine.stack_signal import answer_stack_signal
from legroom.model.run import Run
from legroom.sharing.messages import name_envs
from legroom.sharing.shared import begin_sharing, keep_shared
from legroom.training.events import Call, EnvCalls

_NOISES: dict[str, Callable[..., ActionNoise]] = {
    "normal": NormalActionNoise,
    "ornstein-uhlenbeck": OrnsteinUhlenbeckActionNoise,
}
_BUFFER_CLASSES = ("rollout_buffer_class", "replay_buffer_class")


def make_vec_env(run: Run, *, n_envs: int | None = None, workers: str | None = None, training: bool = True) -> VecEnv:
    """Return the run's environments side by side, with what the run wraps around all of them.

    Args:
        n_envs, workers: instead of the run's own, for evaluation.
        training: False: statistics of VecNormalize are used and not updated, rewards stay as they are.
    """
    spec = run.env
    if spec.id is None:
        raise BadInput("the run names no environment", path=run.source, hint="set env.id")
    begin_sharing(shared=run.memory.shared_data is not False)  # before any process is started
    make = partial(make_env, spec.id, spec.arguments, spec.wrappers)
    env_fns: list[Callable[[], Any]] = [make] * (n_envs or spec.n_envs)
    match workers or spec.workers:
        case "light":
            env: VecEnv = LeanVecEnv(env_fns, envs_per_worker=spec.envs_per_worker, preload=_made_by(spec.id))
        case "subproc":
            env_fns = [partial(_in_worker, make)] * len(env_fns)
            env = SubprocVecEnv(env_fns, start_method=spec.start_method)
        case _:
            env = DummyVecEnv(env_fns)
    keep_shared()  # for environments that are made later, such as those that evaluate
    try:
        return wrapped(run, env, **({} if training else {"training": False, "norm_reward": False}))
    except BaseException:
        env.close()
        raise


def _in_worker(make: Callable[[], Any]) -> Any:
    answer_stack_signal()
    return make()


def _made_by(env_id: str) -> list[str]:
    """Return what makes this environment, as `module:name`, as far as its id tells."""
    registered = gymnasium.registry.get(env_id)
    entry = env_id if registered is None else registered.entry_point
    return [entry] if isinstance(entry, str) and ":" in entry else []


def make_model(run: Run, env: VecEnv, device: str) -> BaseAlgorithm:
    """Return the run's algorithm on `env`, seeded, with lean storage and micro-batches where the run has them.

    Raises:
        BadInput: the constructor refuses, a class cannot be found, or a knob cannot be turned.
    """
    algorithm = algorithm_of(run)
    algorithm_class = class_of_run(run)
    refuse_untrainable(run)
    arguments = {
        "policy_kwargs": policy_arguments(run),
        "device": device,
        "seed": run.seed,
        **{key: _argument(run, key, value, env) for key, value in run.hyperparams.items()},
    }
    observed = env.observation_space
    parts = observed.spaces.values() if isinstance(observed, spaces.Dict) else (observed,)
    if any(isinstance(part, spaces.Box) and not part.shape for part in parts) and not run.policy.features_extractor:
        raise BadInput(f"SB3 cannot flatten an observation of shape (): {observed}", hint="give the Box the shape (1,)")
    policy = find_class(run, run.policy.name) if ":" in run.policy.name else run.policy.name
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*on the GPU, but it is primarily intended to run on the CPU.*")
        try:
            if stores_leanly(run):
                spilling = {name: getattr(run.memory, name) for name in ("max_bytes", "spill_dir")}
                arguments |= {name: value for name, value in spilling.items() if value is not None}
                model: BaseAlgorithm = lean(algorithm_class, policy, env, **arguments)
            else:
                model = algorithm_class(policy, env, **arguments)
        except (AssertionError, TypeError, ValueError) as refused:
            raise BadInput(f"{algorithm.name} cannot be built: {refused}", path=run.source) from refused
    redoes = run.algo_class is None and mirrored_owner(algorithm_class) is not None
    if redoes or run.memory.micro_batch is not None:
        in_pieces(model, run.memory.micro_batch, redoes=redoes)
    turn_knobs(model, run.memory, run.source)
    return model


def _argument(run: Run, key: str, value: Any, env: VecEnv) -> Any:
    """Return a hyperparameter as the constructor wants it, where a file can only say it in words."""
    if isinstance(value, str) and value.startswith("lin_"):
        return LinearSchedule(float(value[4:]), 0.0, 1.0)
    if key == "train_freq" and isinstance(value, list):
        return tuple(value)
    if key in _BUFFER_CLASSES and isinstance(value, str):
        return find_object(value)
    if key == "action_noise" and value is not None:
        return _noise(run, value, env.action_space)
    return value


def _noise(run: Run, value: Any, action_space: spaces.Space[Any]) -> ActionNoise:
    if isinstance(value, dict) and len(value) == 1 and isinstance(action_space, spaces.Box):
        ((kind, sigma),) = value.items()
        if kind in _NOISES and isinstance(sigma, int | float):
            size = action_space.shape
            return _NOISES[kind](mean=np.zeros(size), sigma=float(sigma) * np.ones(size))
    raise BadInput(f"action_noise {value!r} cannot be created", path=run.source, hint="{normal: 0.1}")


_WATCHED: dict[str, Call] = {
    "step_wait": "step", "reset": "reset", "close": "close", "env_method": "call", "get_attr": "call",
    "set_attr": "call", "has_attr": "call", "env_is_wrapped": "call",
}  # fmt: skip


def watch_calls(env: VecEnv, calls: EnvCalls) -> dict[int, str]:
    """Have the calls of these environments noted; returns which environments each worker process has, by its pid.

    The methods of the innermost VecEnv are replaced on the instance: a wrapper around it would be one more layer in the
    state of a checkpoint, and other classes would do the same once more for each kind of worker.
    """
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    for name, kind in _WATCHED.items():
        setattr(env, name, _noted(getattr(env, name), kind, calls))
    if isinstance(env, LeanVecEnv):
        return env.envs_by_pid()
    if isinstance(env, SubprocVecEnv):
        return {process.pid: name_envs([index]) for index, process in enumerate(env.processes) if process.pid}
    return {}


def _noted(method: Callable[..., Any], kind: Call, calls: EnvCalls) -> Callable[..., Any]:
    @wraps(method)
    def noted(*args: Any, **kwargs: Any) -> Any:
        with calls.calling(kind):
            return method(*args, **kwargs)

    return noted
