"""A vector environment whose calls the supervisor of a training can see (`training.env_calls`).

The methods of the innermost VecEnv are replaced on the instance: a wrapper around it would be one more layer in the
state of a checkpoint, and other classes would do the same once more for each kind of worker.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecEnvWrapper

from legroom.backends.sb3.lean_vec_env import LeanVecEnv
from legroom.sharing.failures import name_envs
from legroom.training.env_calls import Call, EnvCalls

_WATCHED: dict[str, Call] = {
    "step_wait": "step", "reset": "reset", "close": "close", "env_method": "call", "get_attr": "call",
    "set_attr": "call", "has_attr": "call", "env_is_wrapped": "call",
}  # fmt: skip


def watch_calls(env: VecEnv, calls: EnvCalls) -> dict[int, str]:
    """Have the calls of these environments noted; returns which environments each worker process has, by its pid."""
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
        began = calls.begin(kind)
        try:
            return method(*args, **kwargs)
        finally:
            calls.end(kind, began)

    return noted
