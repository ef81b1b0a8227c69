"""Calls of gymnasium and SB3 that a followed script makes before it trains: environments, wrappers and spaces.

Each function mirrors the signature of the one it is named after, as far as memory depends on it, and returns what it
makes: an `Env`, a space in the words of a run file, or None where an argument is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from legroom.reading.script_values import LONGEST_RANGE, Bound, Env, Maker, NotKnown, is_plain, is_space
from legroom.reading.source import Symbol, plain


class Caller(Protocol):
    """Who follows the script: calls its functions and classes."""

    def apply(self, func: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any: ...


def _make(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    name = args[0] if args else kwargs.pop("id", None)
    own = {k: v for k, v in kwargs.items() if k not in ("render_mode", "disable_env_checker", "**")}
    return Env(id=name, kwargs=own) if isinstance(name, str) else None


def _make_vec(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    """gymnasium.make_vec, and SB3's make_vec_env, whose first argument may be an id, a class or a function."""
    source = args[0] if args else kwargs.get("env_id", kwargs.get("id"))
    env = _one_of(caller, source, kwargs.get("env_kwargs"))
    if env is None:
        return None
    wrapper = kwargs.get("wrapper_class")
    if isinstance(wrapper, Symbol):
        options = kwargs.get("wrapper_kwargs")
        env = replace(
            env, wrappers=(*env.wrappers, wrapper_entry(wrapper, options if isinstance(options, dict) else {}))
        )
    elif isinstance(wrapper, Maker):
        wrapped = caller.apply(wrapper, [env], {}, ast.Call(ast.Name("wrapper"), [], [], lineno=0, col_offset=0))
        env = wrapped if isinstance(wrapped, Env) else replace(env, wrappers=(*env.wrappers, "wrapper_class"))
    count = args[1] if len(args) > 1 else kwargs.get("n_envs", kwargs.get("num_envs", 1))
    return _vectorised(replace(env, n_envs=count), kwargs)


def _make_atari(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    options = kwargs.get("wrapper_kwargs")
    kwargs = {**kwargs, "wrapper_class": Symbol("stable_baselines3.common.atari_wrappers.AtariWrapper")}
    return _make_vec(caller, args, {**kwargs, "wrapper_kwargs": options})


def _vectorised(env: Env, kwargs: dict[str, Any]) -> Env:
    kind = kwargs.get("vec_env_cls")
    options = kwargs.get("vec_env_kwargs")
    if isinstance(kind, Symbol) and kind.endswith("SubprocVecEnv"):
        start = options.get("start_method") if isinstance(options, dict) else None
        return replace(env, workers="subproc", start_method=start if isinstance(start, str) else None)
    return env


def _one_of(caller: Caller, source: Any, env_kwargs: Any = None) -> Env | None:
    """Return the environment that an id, a class or a function without arguments makes."""
    options = {str(k): v for k, v in env_kwargs.items()} if isinstance(env_kwargs, dict) else {}
    if isinstance(source, str) and not isinstance(source, Symbol):
        return Env(id=source, kwargs=options)
    if isinstance(source, Env):
        return source
    if isinstance(source, Maker):
        call = ast.Call(ast.Name("env"), [], [], lineno=getattr(source.node, "lineno", 0), col_offset=0)
        made = caller.apply(source, [], dict(options), call)
        if isinstance(made, Maker):  # make_env(rank) that returns _init
            made = caller.apply(made, [], {}, call)
        return made if isinstance(made, Env) else Env() if made is not None else None
    if isinstance(source, Symbol):
        module, dot, name = source.rpartition(".")
        return Env(id=f"{module}:{name}" if dot else None, kwargs=options)
    return Env() if isinstance(source, NotKnown | Bound) else None


def _from_list(workers: str) -> Callable[[Caller, list[Any], dict[str, Any]], Env | None]:
    def make(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
        makers = args[0] if args else kwargs.get("env_fns")
        start = args[1] if len(args) > 1 else kwargs.get("start_method")
        method = start if isinstance(start, str) and workers == "subproc" else None
        if isinstance(makers, NotKnown):
            return Env(n_envs=makers, workers=workers, start_method=method)
        if not isinstance(makers, list) or not makers:
            return None
        env = _one_of(caller, makers[0]) or Env()
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


def _box(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Any:
    named = dict(zip(("low", "high", "shape", "dtype"), args, strict=False)) | kwargs
    shape, dtype = named.get("shape"), named.get("dtype", "float32")
    if isinstance(shape, NotKnown | Symbol):
        return None
    if shape is None:  # then the bounds are arrays
        bound = named.get("high", named.get("low"))
        if isinstance(bound, list) and all(is_plain(v) for v in bound):
            shape = [len(bound)]
        else:  # gymnasium takes two numbers for a space of one
            shape = [1] if all(isinstance(named.get(name), int | float) for name in ("low", "high")) else None
    if isinstance(shape, int):
        shape = [shape]
    if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
        return None
    if not isinstance(dtype, str):
        return None
    space: dict[str, Any] = {"type": "box", "shape": list(shape), "dtype": _dtype(dtype)}
    low, high = named.get("low"), named.get("high")
    for name, bound in (("low", low), ("high", high)):
        if isinstance(bound, int | float) and not isinstance(bound, bool) and abs(bound) < 1e300:
            space[name] = bound
    return space


def _dtype(text: str) -> str:
    name = text.rpartition(".")[2].removesuffix("_")
    return {"float": "float64", "int": "int64", "double": "float64"}.get(name, name)


def _discrete(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Any:
    n = args[0] if args else kwargs.get("n")
    return {"type": "discrete", "n": n} if isinstance(n, int) else None


def _multidiscrete(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Any:
    nvec = args[0] if args else kwargs.get("nvec")
    ok = isinstance(nvec, list) and all(isinstance(n, int) for n in nvec)
    return {"type": "multidiscrete", "nvec": nvec} if ok else None


def _multibinary(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Any:
    n = args[0] if args else kwargs.get("n")
    return {"type": "multibinary", "n": n} if isinstance(n, int | list) else None


def _dict_space(caller: Caller, args: list[Any], kwargs: dict[str, Any]) -> Any:
    parts = args[0] if args and isinstance(args[0], dict) else kwargs.get("spaces", kwargs)
    if not isinstance(parts, dict) or not parts or not all(is_space(space) for space in parts.values()):
        return None
    return {"type": "dict", "spaces": {str(name): space for name, space in parts.items()}}


# Calls whose result is understood, by their last name.
MAKERS: Mapping[str, Callable[[Caller, list[Any], dict[str, Any]], Any]] = {
    "make": _make,
    "make_vec": _make_vec,
    "make_vec_env": _make_vec,
    "make_atari_env": _make_atari,
    "DummyVecEnv": _from_list("dummy"),
    "SubprocVecEnv": _from_list("subproc"),
    "VecFrameStack": _frame_stack,
    "VecNormalize": _normalize,
    "Box": _box,
    "Discrete": _discrete,
    "MultiDiscrete": _multidiscrete,
    "MultiBinary": _multibinary,
    "Dict": _dict_space,
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "int": int, "float": float, "bool": bool, "str": str, "abs": abs, "max": max, "min": min, "round": round,
    "dict": dict, "list": lambda items=(): list(items), "tuple": lambda items=(): list(items),
}  # fmt: skip


def wrapper_entry(symbol: str, kwargs: Mapping[str, Any]) -> Any:
    """Return a wrapper as a run file names it."""
    own = {str(k): plain(v) for k, v in kwargs.items() if is_plain(v) and k not in ("env", "**")}
    return {str(symbol): own} if own else str(symbol)


_WRAPPER_ARGUMENTS = {
    "ResizeObservation": ("shape",), "GrayscaleObservation": ("keep_dim",), "GrayScaleObservation": ("keep_dim",),
    "FrameStackObservation": ("stack_size",), "FrameStack": ("num_stack",), "TimeLimit": ("max_episode_steps",),
    "WarpFrame": ("width", "height"),
}  # fmt: skip


def wrapper_arguments(name: str, args: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(_WRAPPER_ARGUMENTS.get(name, ()), args, strict=False))


def number_range(args: list[Any]) -> Any:
    if not all(isinstance(a, int) for a in args):
        return NotKnown("range of something not known")
    try:
        numbers = range(*args)
    except (TypeError, ValueError):
        return NotKnown("range")
    return list(numbers) if len(numbers) <= LONGEST_RANGE else NotKnown(f"a range of {len(numbers)}")
