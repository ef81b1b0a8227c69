"""A Run from the call of an algorithm's constructor: one that a script has in hand, a live model, a recorded one.

All three are the same call: an algorithm, a policy, arguments by name and an environment, as far as they are known.
For the script that dies while *building* its model, `run_from_call(PPO, "CnnPolicy", env, n_steps=...)` takes the
arguments and builds nothing: it looks at the environment's spaces and at class names only. What was recorded in another
process (`legroom.hollow.model_calls`) is names and plain values, so that neither SB3 nor torch need be installed here.
What has no bearing on memory and no plain form (schedules, noise) is left out.

Mirrors `BaseAlgorithm.__init__` and `_wrap_env` of stable-baselines3 2.9.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from legroom.backends.base import algorithm_names, find_algorithm
from legroom.backends.sb3.stored import stored_observation
from legroom.environments.objects import name_object
from legroom.errors import BadInput
from legroom.hollow.model_calls import environment, space
from legroom.model.facts import NEUTRAL, Algorithm
from legroom.model.run import Run

# Sizes of arrays: nothing else in `hyperparams` can make a prediction absurd.
SIZES = ("n_steps", "batch_size", "n_epochs", "buffer_size")
# What `_setup_model` fills in where the user gave None; naming them would say no more.
_STANDARD_BUFFER = re.compile(
    r"(?:stable_baselines3|sb3_contrib)\.[\w.]*:(?:(?:Maskable)?(?:Dict)?RolloutBuffer|MaskableDictRolloutBuffer"
    r"|(?:Dict|NStep)?ReplayBuffer)"
)
_LAYERS = "torch.nn.modules."
_SPACES = "box, discrete, multidiscrete, multibinary or dict"


class _NotDataError(Exception):
    """A value that has no plain form and no bearing on memory."""


def run_of_object(what: Any, arguments: Mapping[str, Any] | None) -> Run | None:
    """Return the run that a recorded call (a mapping), a live model or, with arguments, a constructor's call is.

    Raises:
        BadInput: legroom does not know the algorithm, or the constructor would not take these arguments.
    """
    if isinstance(what, Mapping):
        return run_from_record(what)
    return run_from_model(what) if arguments is None else run_from_call(what, **arguments)


def run_from_call(algo_class: Any, policy: Any = None, env: Any = None, *args: Any, **kwargs: Any) -> Run:
    """Return the run that `algo_class(policy, env, *args, **kwargs)` would be, without making it.

    Args:
        env: a gymnasium environment, an SB3 VecEnv, or a gymnasium id (which a traced prediction builds).

    Raises:
        BadInput: legroom does not know the algorithm, or the constructor would not take these arguments.
    """
    algorithm = _algorithm_of(algo_class)
    given = _bind(algo_class, (policy, env, *args), kwargs)
    for name, what in (("policy", "policy"), ("env", "environment")):
        if given.get(name) is None:
            raise BadInput(f"{algorithm.name}: the {what} is missing", hint='as in predict(PPO, "MlpPolicy", env)')
    return _assembled(
        algorithm, given,
        env=_environment(given["env"]), policy=_policy_name(algo_class, given["policy"]),
        policy_kwargs=given.get("policy_kwargs") or {}, name=_name(algorithm, given["env"]), algo_class=algo_class,
    )  # fmt: skip


def run_from_model(model: Any) -> Run:
    """Return the run that a live model is, with its real hyperparameters, environments and device.

    Raises:
        BadInput: legroom does not know the algorithm.
    """
    algorithm = _algorithm_of(type(model))
    policy_kwargs = dict(getattr(model, "policy_kwargs", None) or {})
    given = {key: getattr(model, key) for key in (*algorithm.defaults, "device", "seed") if hasattr(model, key)}
    if "use_rms_prop" in algorithm.defaults:
        # A2C does not keep the flag; it puts the optimizer into policy_kwargs instead
        given["use_rms_prop"] = "optimizer_class" in policy_kwargs
    if "use_sde" in algorithm.defaults:
        policy_kwargs.pop("use_sde", None)  # SAC's family copies the hyperparameter there
    if getattr(given.get("replay_buffer_class"), "__name__", "") == "NStepReplayBuffer":
        # its arguments were filled in from n_steps and gamma, which are hyperparameters themselves
        given.pop("replay_buffer_kwargs", None)
    frequency = given.get("train_freq")
    if isinstance(frequency, tuple) and _plain(frequency[1]) == "step":
        given["train_freq"] = frequency[0]
    live_env = model.get_env()  # None where it was loaded without one
    env = {"n_envs": model.n_envs, "spaces": _spaces(model)} if live_env is None else _environment(live_env)
    return _assembled(
        algorithm, {key: value for key, value in given.items() if value != {}},  # no buffer arguments
        env=env, policy=_policy_name(type(model), model.policy_class), policy_kwargs=policy_kwargs,
        name=_name(algorithm, live_env), algo_class=type(model),
    )  # fmt: skip


def run_from_record(record: Mapping[str, Any]) -> Run | None:
    """Return the run that a recorded call makes; None where it is no algorithm that we know, or has no environment."""
    found, env = _algorithm(record.get("bases") or ()), record.get("env")
    if found is None or not env:
        return None
    arguments: Mapping[str, Any] = record.get("arguments") or {}
    given = {  # everything that the constructor saw, its defaults too
        name: value for name, value in arguments.items()
        if value not in (found.defaults.get(name), {}) and not _is_object(value)
    }  # fmt: skip
    kwargs = {name: _public_name(value) for name, value in (arguments.get("policy_kwargs") or {}).items()}
    try:
        run = _assembled(
            found, {**given, "seed": arguments.get("seed")}, env=_as_declared(env),
            policy=str(record.get("policy") or "MlpPolicy"),
            policy_kwargs={name: value for name, value in kwargs.items() if not _is_object(value)}, name=found.name,
        )  # fmt: skip
    except (BadInput, ValueError):
        return None
    device = record.get("device") if record.get("device") in ("cpu", "cuda") else "auto"
    return run.replace(device=device, total_timesteps=record.get("total_timesteps") or None)


def _assembled(
    algorithm: Algorithm,
    given: Mapping[str, Any],
    *,
    env: Mapping[str, Any],
    policy: str,
    policy_kwargs: Mapping[str, Any],
    name: str,
    algo_class: type | None = None,
) -> Run:
    """Return the run of a call.

    Args:
        given: the arguments by name; those that are no hyperparameters of the algorithm are left out.
        env: as a run file has it.

    Raises:
        BadInput: a size is none, or something in it cannot be.
    """
    hyperparams = {}
    for key, value in given.items():
        if value is None or key in NEUTRAL or key not in algorithm.defaults:
            continue  # what a user's subclass adds is its own
        try:
            hyperparams[key] = _plain(value)
        except _NotDataError:
            continue
        if key.endswith("_buffer_class") and _STANDARD_BUFFER.fullmatch(str(hyperparams[key])):
            del hyperparams[key]
        if key in SIZES:
            _check_size(algorithm, key, hyperparams[key])
    kwargs = {key: _data_or_name(value) for key, value in policy_kwargs.items()}
    seed, device = _data_or_name(given.get("seed")), str(given.get("device", "auto")).partition(":")[0]
    try:
        return Run.model_validate({
            "name": name, "algo": algorithm.name, "env": env, "hyperparams": hyperparams,
            "policy": {
                "name": policy, "features_extractor": kwargs.pop("features_extractor_class", None),
                "features_extractor_kwargs": kwargs.pop("features_extractor_kwargs", None) or {}, "kwargs": kwargs,
            },
            "device": device if device in ("auto", "cuda") else "cpu",  # Apple's mps shares the host's memory
            "seed": seed if isinstance(seed, int) and 0 <= seed < 2**32 else None,
            "algo_class": None if algo_class is None else _own_class(algo_class, algorithm),
        })  # fmt: skip
    except ValueError as wrong:
        raise BadInput(f"{algorithm.name}: {wrong}") from wrong


def _algorithm(bases: Iterable[tuple[str, str]]) -> Algorithm | None:
    """Return the algorithm that a class is, by the modules and names of it and its bases: a subclass of PPO is PPO."""
    for module, name in bases:
        found = find_algorithm("sb3", name)
        if found is not None and found.is_made_in(module):
            return found
    return None


def _algorithm_of(algo_class: Any) -> Algorithm:
    bases = algo_class.__mro__ if isinstance(algo_class, type) else ()
    found = _algorithm((base.__module__, base.__name__) for base in bases)
    if found is not None:
        return found
    shown = algo_class.__name__ if isinstance(algo_class, type) else repr(algo_class)
    raise BadInput(f"unknown algorithm {shown}", hint="a class of " + ", ".join(algorithm_names("sb3")))


def _own_class(algo_class: type, algorithm: Algorithm) -> str | None:
    itself = algo_class.__name__ == algorithm.name and algorithm.is_made_in(algo_class.__module__)
    return None if itself else name_object(algo_class)


def _bind(algo_class: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, as the constructor would see them; those left out are left out."""
    signature = inspect.signature(algo_class)
    while args and args[-1] is None and len(args) <= 2:
        args = args[:-1]  # policy and env may come by keyword as well
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as wrong:
        unknown = [key for key in kwargs if key not in signature.parameters]
        close = difflib.get_close_matches(unknown[0], signature.parameters, n=1) if unknown else []
        hint = f"did you mean {close[0]!r}?" if close else ""
        raise BadInput(f"{algo_class.__name__}: {wrong}", hint=hint) from wrong
    given: dict[str, Any] = {}
    for key, value in bound.arguments.items():
        match signature.parameters[key].kind:
            case inspect.Parameter.VAR_KEYWORD:
                given |= value
            case inspect.Parameter.VAR_POSITIONAL:
                # a subclass that passes everything on: policy and env come first in every constructor of SB3
                given |= dict(zip(("policy", "env"), value, strict=False))
            case _:
                given[key] = value
    return given


def _environment(env: Any) -> dict[str, Any]:
    """Return the environment of a call as a run file has it.

    Raises:
        BadInput: it is none, or SB3 takes no such space.
    """
    import gymnasium
    from stable_baselines3.common.vec_env import VecEnv

    if isinstance(env, str):
        return {"id": env}
    if isinstance(env, gymnasium.Env):
        return {"spaces": _spaces(env)}
    if not isinstance(env, VecEnv):
        hint = "a gymnasium.Env, an SB3 VecEnv or a gymnasium id"
        raise BadInput(f"env: an object of type {type(env).__name__} is not an environment", hint=hint)
    try:
        return _as_declared({**environment(env), "id": None})  # it is here to be looked at
    except TypeError as wrong:
        raise BadInput(f"{wrong} is not supported", hint=_SPACES) from wrong


def _spaces(owner: Any) -> dict[str, Any]:
    try:
        return {"observation": space(owner.observation_space), "action": space(owner.action_space)}
    except TypeError as wrong:
        raise BadInput(f"{wrong} is not supported", hint=_SPACES) from wrong


def _as_declared(seen: Mapping[str, Any]) -> dict[str, Any]:
    """Return a vectorised environment as a run file has it: with single frames and `frame_stack` where that says the
    same, as stacking has its own cost.
    """
    env: dict[str, Any] = {
        name: seen[name] for name in ("id", "n_envs", "workers", "start_method", "normalize") if seen.get(name)
    }
    whole = env | {"spaces": {"observation": seen["observation"], "action": seen["action"]}}
    if not seen.get("frame_stack"):
        return whole
    frames = {"observation": seen["frame"], "action": seen["action"]}
    stacked = env | {"spaces": frames, "frame_stack": seen["frame_stack"]}
    try:
        same = _stored(stacked) == _stored(whole)  # not so if channels_order says otherwise than SB3 would guess
    except ValueError:
        return whole
    return stacked if same else whole


def _stored(env: Mapping[str, Any]) -> Any:
    return stored_observation(Run.model_validate({"algo": "PPO", "env": env}))


def _policy_name(algo_class: Any, policy: Any) -> str:
    aliases: Mapping[str, Any] = getattr(algo_class, "policy_aliases", {})
    if not isinstance(policy, str):
        return next((alias for alias, known in aliases.items() if known is policy), None) or name_object(policy)
    if policy not in aliases:
        close = difflib.get_close_matches(policy, aliases, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(aliases)}"
        raise BadInput(f"{algo_class.__name__}: unknown policy {policy!r}", hint=hint)
    return policy


def _plain(value: Any) -> Any:
    """Return `value` as plain data, classes by name.

    Raises:
        _NotDataError: an instance or function: a schedule, a noise, a callback.
    """
    match value:
        case Enum():  # before str and int, which an enum of SB3 also is
            return _plain(value.value)
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(key): _plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_plain(entry) for entry in value]
        case type():
            return name_object(value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a number of NumPy's
        return value.item()
    raise _NotDataError


def _data_or_name(value: Any) -> Any:
    """Return `value` as plain data; for networks also functions and instances count, so they get a name."""
    if isinstance(value, Mapping):
        return {str(key): _data_or_name(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, Enum):
        return [_data_or_name(entry) for entry in value]
    try:
        return _plain(value)
    except _NotDataError:
        return name_object(value)


def _is_object(value: Any) -> bool:
    """Return whether a recorded value was an instance or a function: a schedule, a noise, a callback."""
    return isinstance(value, str) and (value.startswith("<") or ":function" in value)


def _public_name(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_LAYERS):
        return f"torch.nn.{value.rpartition(':')[2]}"
    return value


def _check_size(algorithm: Algorithm, key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{algorithm.name}: {key} must be a whole number, not {value!r}")
    if not 1 <= value < 2**63:
        raise BadInput(f"{algorithm.name}: {key}={value} must be positive and below 2**63")


def _name(algorithm: Algorithm, env: Any) -> str:
    what = env if isinstance(env, str) else getattr(getattr(env, "spec", None), "id", None)
    return f"{algorithm.name} {what}" if what else algorithm.name
