"""Environments and spaces of gymnasium as scripts make them.

Each function mirrors the signature of the one it is named after, as far as memory depends on it, and returns what it
makes: an `Env`, a space in the words of a run file, or None where an argument is not known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import Any

from legroom.reading.interpreter.values import (
    Bound,
    Class,
    Function,
    NotKnown,
    Partial,
    Symbol,
    is_plain,
    is_settled,
    plain,
)
from legroom.reading.known_spaces import NEUTRAL_WRAPPERS, WRAPPERS


@dataclass(frozen=True)
class Env:
    """An environment as far as the script describes it; `None` is not known."""

    id: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    n_envs: Any = 1
    workers: str = "dummy"
    start_method: str | None = None
    frame_stack: Any = None
    wrappers: tuple[Any, ...] = ()
    normalize: Any = False
    observation: dict[str, Any] | None = None
    action: dict[str, Any] | None = None
    doubted: bool = False  # whether an unknown function may have made several of it
    # the call that made it; wrapped, it is still the same one
    origin: object = field(default_factory=object, compare=False, repr=False)
    # of the script's folder that it is made of
    classes: tuple[Class, ...] = field(default=(), compare=False, repr=False)


# Called with the one who follows the script, which calls its functions and classes and knows what `gym.register` gave
# an id, with the arguments by position, and those by name.
Call = Callable[[Any, list[Any], dict[str, Any]], Any]


def one_env(caller: Any, source: Any, env_kwargs: Any = None) -> Env | None:
    """Return the environment that an id, a class or a function without arguments makes."""
    options = {str(k): v for k, v in env_kwargs.items()} if isinstance(env_kwargs, dict) else {}
    if isinstance(source, Symbol):
        module, dot, name = source.rpartition(".")
        return Env(id=f"{module}:{name}" if dot else None, kwargs=options)
    if isinstance(source, str):
        entry, given = caller.registered.get(source, (None, {}))
        return Env(id=source, kwargs=options) if entry is None else one_env(caller, entry, given | options)
    if isinstance(source, Env):
        return source
    if isinstance(source, Function | Class | Partial):
        made = called(caller, source, [], options)
        if isinstance(made, Function | Class | Partial):  # make_env(rank) that returns _init
            made = called(caller, made, [], {})
        return made if isinstance(made, Env) else Env() if made is not None else None
    return Env() if isinstance(source, NotKnown | Bound) else None


def called(caller: Any, function: Function | Class | Partial, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return what a function or class of the script makes, where a library calls it."""
    line = getattr(getattr(function, "node", None), "lineno", 0)
    call = ast.Call(ast.Name("env"), [], [], lineno=line, col_offset=0)
    return caller.apply(function, args, kwargs, call)


def _make(caller: Any, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    name = args[0] if args else kwargs.pop("id", None)
    own = {k: v for k, v in kwargs.items() if k not in ("render_mode", "disable_env_checker", "**")}
    return one_env(caller, name, own) if isinstance(name, str) else None


def _register(caller: Any, args: list[Any], kwargs: dict[str, Any]) -> NotKnown:
    given = dict(zip(("id", "entry_point"), args, strict=False)) | kwargs
    if isinstance(given.get("entry_point"), str | Class | Function):
        caller.registered[str(given.get("id"))] = given["entry_point"], given.get("kwargs") or {}
    return NotKnown("register")


def _make_vec(caller: Any, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    env = one_env(caller, args[0] if args else kwargs.get("id"), kwargs.get("env_kwargs"))
    count = args[1] if len(args) > 1 else kwargs.get("num_envs", 1)
    return None if env is None else replace(env, n_envs=count, origin=object())


def is_space(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in ("box", "discrete", "multidiscrete", "multibinary", "dict")


def _box(caller: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    named = dict(zip(("low", "high", "shape", "dtype"), args, strict=False)) | kwargs
    shape, dtype = named.get("shape"), named.get("dtype", "float32")
    if shape is None:  # then the bounds are arrays
        bound = named.get("high", named.get("low"))
        if isinstance(bound, list) and all(is_plain(v) for v in bound):
            shape = [len(bound)]
        else:  # gymnasium takes two numbers for a space of one
            shape = [1] if all(isinstance(named.get(name), int | float) for name in ("low", "high")) else None
    if isinstance(shape, int):
        shape = [shape]
    if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape) or not isinstance(dtype, str):
        return None
    dtype = dtype.rpartition(".")[2].removesuffix("_")
    dtype = {"float": "float64", "int": "int64", "double": "float64"}.get(dtype, dtype)
    space: dict[str, Any] = {"type": "box", "shape": list(shape), "dtype": dtype}
    for name in ("low", "high"):
        bound = named.get(name)
        if isinstance(bound, int | float) and not isinstance(bound, bool) and abs(bound) < 1e300:
            space[name] = bound
    return space


def _counted(kind: str, name: str, of: type | UnionType) -> Call:
    """Return what makes a space that whole numbers describe."""

    def space(caller: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        given = args[0] if args else kwargs.get(name)
        whole = all(isinstance(each, int) for each in (given if isinstance(given, list) else [given]))
        return {"type": kind, name: given} if isinstance(given, of) and whole else None

    return space


def _dict_space(caller: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    parts = args[0] if args and isinstance(args[0], dict) else kwargs.get("spaces", kwargs)
    if not isinstance(parts, dict) or not parts or not all(is_space(space) for space in parts.values()):
        return None
    return {"type": "dict", "spaces": {str(name): space for name, space in parts.items()}}


def _make_vec_env(caller: Any, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
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
    count = args[1] if len(args) > 1 else kwargs.get("n_envs", 1)
    env = replace(env, n_envs=count, origin=object())  # each call makes its own
    kind, options = kwargs.get("vec_env_cls"), kwargs.get("vec_env_kwargs")
    if isinstance(kind, Symbol) and kind.endswith("SubprocVecEnv"):
        start = options.get("start_method") if isinstance(options, dict) else None
        return replace(env, workers="subproc", start_method=start if isinstance(start, str) else None)
    return env


def _make_atari_env(caller: Any, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    wrapper = Symbol("stable_baselines3.common.atari_wrappers.AtariWrapper")
    return _make_vec_env(caller, args, {**kwargs, "wrapper_class": wrapper})


def _from_list(workers: str) -> Call:
    def make(caller: Any, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
        makers = args[0] if args else kwargs.get("env_fns")
        start = args[1] if len(args) > 1 else kwargs.get("start_method")
        method = start if isinstance(start, str) and workers == "subproc" else None
        if isinstance(makers, NotKnown) or (isinstance(makers, list) and not is_settled(makers)):
            unknown = makers if isinstance(makers, NotKnown) else NotKnown("the number of environments")
            return Env(n_envs=unknown, workers=workers, start_method=method)
        if not isinstance(makers, list) or not makers:
            return None
        env = one_env(caller, makers[0]) or Env()
        return replace(env, n_envs=len(makers), workers=workers, start_method=method, origin=object())

    return make


def _frame_stack(caller: Any, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    env = args[0] if args else kwargs.get("venv")
    count = args[1] if len(args) > 1 else kwargs.get("n_stack")
    return replace(env, frame_stack=count) if isinstance(env, Env) else None


def _normalize(caller: Any, args: list[Any], kwargs: dict[str, Any]) -> Env | None:
    env = args[0] if args else kwargs.get("venv")
    own = {k: v for k, v in kwargs.items() if k != "venv" and isinstance(v, bool | int | float)}
    return replace(env, normalize=own or True) if isinstance(env, Env) else None


# Calls whose result is understood, by their last name.
ENV_CALLS: Mapping[str, Call] = {
    "make": _make,
    "make_vec": _make_vec,
    "register": _register,
    "make_vec_env": _make_vec_env,
    "make_atari_env": _make_atari_env,
    **dict.fromkeys(("DummyVecEnv", "SyncVectorEnv"), _from_list("dummy")),
    **dict.fromkeys(("SubprocVecEnv", "AsyncVectorEnv"), _from_list("subproc")),
    "VecFrameStack": _frame_stack,
    "VecNormalize": _normalize,
    "Box": _box,
    "Discrete": _counted("discrete", "n", int),
    "MultiDiscrete": _counted("multidiscrete", "nvec", list),
    "MultiBinary": _counted("multibinary", "n", int | list),
    "Dict": _dict_space,
}


_KNOWN_PACKAGES = frozenset({"gym", "gymnasium", "stable_baselines3", "sb3_contrib", "shimmy", "minigrid", "ale_py"})
_SEVERAL = re.compile(r"vec|multi|parallel|batch|pool", re.I)


def is_foreign(symbol: str) -> bool:
    """Return whether a function is of a package whose functions may do with an environment what they like."""
    return "." in symbol and symbol.partition(".")[0] not in _KNOWN_PACKAGES


def wrapper_entry(symbol: str, kwargs: Mapping[str, Any]) -> Any:
    own = {str(k): plain(v) for k, v in kwargs.items() if is_plain(v) and k not in ("env", "**")}
    return {str(symbol): own} if own else str(symbol)


_WRAPPER_ARGUMENTS = {
    "ResizeObservation": ("shape",), "GrayscaleObservation": ("keep_dim",), "GrayScaleObservation": ("keep_dim",),
    "FrameStackObservation": ("stack_size",), "FrameStack": ("num_stack",), "TimeLimit": ("max_episode_steps",),
    "WarpFrame": ("width", "height"),
}  # fmt: skip


def wrapped_by_library(env: Env, symbol: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Env:
    """Return the environment inside a library's wrapper, called with `args` and `kwargs`."""
    name = symbol.rpartition(".")[2]
    if name in NEUTRAL_WRAPPERS:
        return env
    if is_foreign(symbol) and (name[:1].islower() or _SEVERAL.search(name)):
        env = replace(env, doubted=True)
    positional = zip(_WRAPPER_ARGUMENTS.get(name, ()), args[1:], strict=False)
    own = kwargs if name in WRAPPERS and not args[1:] else {**kwargs, **dict(positional)}
    return replace(env, wrappers=(*env.wrappers, wrapper_entry(symbol, own)))
