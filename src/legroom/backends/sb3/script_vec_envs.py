"""SB3's vectorised environments as scripts make them; functions mirror the signatures of those they are named after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from legroom.reading.interpreter.gym_calls import GYM_CALLS, Call, Caller, Env, called, one_env, wrapper_entry
from legroom.reading.interpreter.values import Class, Function, NotKnown, Symbol


def _make_vec_env(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    """make_vec_env, whose first argument may be an id, a class or a function."""
    env = one_env(caller, args[0] if args else kwargs.get("env_id"), kwargs.get("env_kwargs"))
    if env is None:
        return None
    wrapper = kwargs.get("wrapper_class")
    if isinstance(wrapper, Symbol):
        options = kwargs.get("wrapper_kwargs")
        entry = wrapper_entry(wrapper, options if isinstance(options, dict) else {})
        env = replace(env, wrappers=(*env.wrappers, entry))
    elif isinstance(wrapper, Function | Class):
        inside = called(caller, wrapper, [env], {})
        env = inside if isinstance(inside, Env) else replace(env, wrappers=(*env.wrappers, "wrapper_class"))
    env = replace(env, n_envs=args[1] if len(args) > 1 else kwargs.get("n_envs", 1))
    kind, options = kwargs.get("vec_env_cls"), kwargs.get("vec_env_kwargs")
    if isinstance(kind, Symbol) and kind.endswith("SubprocVecEnv"):
        start = options.get("start_method") if isinstance(options, dict) else None
        return replace(env, workers="subproc", start_method=start if isinstance(start, str) else None)
    return env


def _make_atari_env(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    wrapper = Symbol("stable_baselines3.common.atari_wrappers.AtariWrapper")
    return _make_vec_env(caller, args, {**kwargs, "wrapper_class": wrapper})


def _from_list(workers: str) -> Call:
    def make(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
        makers = args[0] if args else kwargs.get("env_fns")
        start = args[1] if len(args) > 1 else kwargs.get("start_method")
        method = start if isinstance(start, str) and workers == "subproc" else None
        if isinstance(makers, NotKnown):
            return Env(n_envs=makers, workers=workers, start_method=method)
        if not isinstance(makers, list) or not makers:
            return None
        env = one_env(caller, makers[0]) or Env()
        return replace(env, n_envs=len(makers), workers=workers, start_method=method)

    return make


def _frame_stack(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    env = args[0] if args else kwargs.get("venv")
    count = args[1] if len(args) > 1 else kwargs.get("n_stack")
    return replace(env, frame_stack=count) if isinstance(env, Env) else None


def _normalize(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    env = args[0] if args else kwargs.get("venv")
    own = {k: v for k, v in kwargs.items() if k != "venv" and isinstance(v, bool | int | float)}
    return replace(env, normalize=own or True) if isinstance(env, Env) else None


VEC_ENV_CALLS: Mapping[str, Call] = {
    **GYM_CALLS,
    "make_vec_env": _make_vec_env,
    "make_atari_env": _make_atari_env,
    "DummyVecEnv": _from_list("dummy"),
    "SubprocVecEnv": _from_list("subproc"),
    "VecFrameStack": _frame_stack,
    "VecNormalize": _normalize,
}
