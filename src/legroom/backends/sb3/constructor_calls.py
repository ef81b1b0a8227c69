"""A Run from what a script has in hand: the arguments of a constructor, or a live model.

For the script that dies while *building* its model: `run_from_call(PPO, "CnnPolicy", env, n_steps=...)` takes the
arguments and builds nothing, no algorithm, no network, no buffer. It looks at the environment's spaces and at class
names only. What has no bearing on memory and no plain form (schedules, noise) is left out.

Mirrors `BaseAlgorithm.__init__` and `_wrap_env` of stable-baselines3 2.9.
"""

import difflib
import inspect
from collections.abc import Mapping
from enum import Enum
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common import buffers
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit
from stable_baselines3.common.vec_env import (
    SubprocVecEnv,
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from legroom.backends.base import algorithm_names, find_algorithm
from legroom.backends.sb3.stored import stored_observation
from legroom.environments.gym_spaces import from_gymnasium
from legroom.environments.objects import name_object
from legroom.errors import BadInput
from legroom.model.facts import NEUTRAL, Algorithm
from legroom.model.run import EnvSpec, PolicySpec, Run, Spaces

# Arguments of the constructors that a Run keeps elsewhere than in `hyperparams`.
ELSEWHERE = frozenset({"policy", "env", "policy_kwargs", "device", "seed"})
# Sizes of arrays: nothing else in `hyperparams` can make a prediction absurd.
SIZES = ("n_steps", "batch_size", "n_epochs", "buffer_size")
# Wrappers that pass observations on in the shape and type they get them.
_TRANSPARENT = (VecMonitor, VecCheckNan)
# What `_setup_model` fills in where the user gave None; naming them would say no more.
_STANDARD_BUFFERS = frozenset({
    "RolloutBuffer", "DictRolloutBuffer", "ReplayBuffer", "DictReplayBuffer", "NStepReplayBuffer",
    "MaskableRolloutBuffer", "MaskableDictRolloutBuffer",
})  # fmt: skip


class _NotDataError(Exception):
    """A value that has no plain form and no bearing on memory."""


def run_from_call(algo_class: Any, policy: Any = None, env: Any = None, *args: Any, **kwargs: Any) -> Run:
    """Return the run that `algo_class(policy, env, *args, **kwargs)` would be, without making it.

    Args:
        env: a gymnasium environment, an SB3 VecEnv, or a gymnasium id (which a traced prediction builds).

    Raises:
        BadInput: legroom does not know the algorithm, or the constructor would not take these arguments.
    """
    algorithm = _algorithm(algo_class)
    given = _bind(algo_class, (policy, env, *args), kwargs)
    chosen_policy, chosen_env = given.get("policy"), given.get("env")
    if chosen_policy is None:
        raise BadInput(f"{algorithm.name}: the policy is missing", hint='as in predict(PPO, "MlpPolicy", env)')
    if chosen_env is None:
        raise BadInput(f"{algorithm.name}: the environment is missing", hint='as in predict(PPO, "MlpPolicy", env)')
    return _assemble(
        algorithm,
        env=_env_spec(chosen_env),
        policy=_policy_spec(algo_class, chosen_policy, given.get("policy_kwargs") or {}),
        hyperparams={key: value for key, value in given.items() if key not in ELSEWHERE},
        device=given.get("device", "auto"),
        seed=given.get("seed"),
        name=_name(algorithm, chosen_env),
        algo_class=_own_class(algo_class, algorithm),
    )


def run_from_model(model: BaseAlgorithm) -> Run:
    """Return the run that a live model is, with its real hyperparameters, environments and device.

    Raises:
        BadInput: legroom does not know the algorithm.
    """
    algorithm = _algorithm(type(model))
    policy_kwargs = dict(getattr(model, "policy_kwargs", None) or {})
    hyperparams = {key: getattr(model, key) for key in algorithm.defaults if hasattr(model, key)}
    if "use_rms_prop" in algorithm.defaults:
        # A2C does not keep the flag; it puts the optimizer into policy_kwargs instead
        hyperparams["use_rms_prop"] = "optimizer_class" in policy_kwargs
    if "use_sde" in algorithm.defaults:
        policy_kwargs.pop("use_sde", None)  # SAC's family copies the hyperparameter there
    if hyperparams.get("replay_buffer_class") is buffers.NStepReplayBuffer:
        # its arguments were filled in from n_steps and gamma, which are hyperparameters themselves
        hyperparams.pop("replay_buffer_kwargs", None)
    frequency = hyperparams.get("train_freq")
    if isinstance(frequency, TrainFreq) and frequency.unit is TrainFrequencyUnit.STEP:
        hyperparams["train_freq"] = frequency.frequency
    hyperparams = {key: value for key, value in hyperparams.items() if value != {}}  # no buffer arguments
    live_env = model.get_env()
    if live_env is not None:
        env = _env_spec(live_env)
    else:  # loaded without one
        spaces = Spaces(from_gymnasium(model.observation_space), from_gymnasium(model.action_space))
        env = EnvSpec(n_envs=model.n_envs, spaces=spaces)
    return _assemble(
        algorithm,
        env=env,
        policy=_policy_spec(type(model), model.policy_class, policy_kwargs),
        hyperparams=hyperparams,
        device=model.device,
        seed=model.seed,
        name=_name(algorithm, live_env),
        algo_class=_own_class(type(model), algorithm),
    )


def _assemble(
    algorithm: Algorithm,
    *,
    env: EnvSpec,
    policy: PolicySpec,
    hyperparams: Mapping[str, Any],
    device: Any,
    seed: Any,
    name: str,
    algo_class: str | None,
) -> Run:
    plain = {}
    for key, value in hyperparams.items():
        if value is None or key in NEUTRAL or key not in algorithm.defaults:
            continue  # what a user's subclass adds is its own
        if key.endswith("_buffer_class") and _is_standard_buffer(value):
            continue
        try:
            plain[key] = _plain(value)
        except _NotDataError:
            continue
        if key in SIZES:
            _check_size(algorithm, key, plain[key])
    seed = int(seed) if isinstance(seed, int | np.integer) and 0 <= seed < 2**32 else None
    try:
        return Run.model_validate({
            "name": name, "algo": algorithm.name, "env": env, "policy": policy, "hyperparams": plain,
            "device": _device(device), "seed": seed, "algo_class": algo_class,
        })  # fmt: skip
    except ValueError as wrong:
        raise BadInput(f"{algorithm.name}: {wrong}") from wrong


def _algorithm(algo_class: Any) -> Algorithm:
    if isinstance(algo_class, type):
        for base in algo_class.__mro__:  # a user's subclass of PPO takes what PPO takes
            found = find_algorithm("sb3", base.__name__)
            if found is not None and found.is_made_in(base.__module__):
                return found
    shown = algo_class.__name__ if isinstance(algo_class, type) else repr(algo_class)
    raise BadInput(f"unknown algorithm {shown}", hint="a class of " + ", ".join(algorithm_names("sb3")))


def _own_class(algo_class: type, algorithm: Algorithm) -> str | None:
    """Return the name of a user's subclass of an algorithm; None for the algorithm itself."""
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


def _env_spec(env: Any) -> EnvSpec:
    if isinstance(env, str):
        return EnvSpec(id=env)
    if isinstance(env, VecEnv):
        return _vec_env_spec(env)
    if isinstance(env, gymnasium.Env):
        return EnvSpec(spaces=Spaces(from_gymnasium(env.observation_space), from_gymnasium(env.action_space)))
    raise BadInput(
        f"env: an object of type {type(env).__name__} is not an environment",
        hint="a gymnasium.Env, an SB3 VecEnv or a gymnasium id",
    )


def _vec_env_spec(env: VecEnv) -> EnvSpec:
    layers = [env]
    while isinstance(layers[-1], VecEnvWrapper):
        layers.append(layers[-1].venv)
    innermost = layers[-1]
    processes = getattr(innermost, "processes", ()) if isinstance(innermost, SubprocVecEnv) else ()
    normalize = next((layer for layer in layers if isinstance(layer, VecNormalize)), None)
    shown = _visible_layer(layers)
    spec = EnvSpec(
        n_envs=env.num_envs,
        workers="subproc" if isinstance(innermost, SubprocVecEnv) else "dummy",
        start_method=getattr(processes[0], "_start_method", None) if processes else None,
        spaces=Spaces(from_gymnasium(shown.observation_space), from_gymnasium(shown.action_space)),
        normalize={"norm_obs": normalize.norm_obs, "norm_reward": normalize.norm_reward} if normalize else False,
    )
    return _unstacked(spec, shown)


def _visible_layer(layers: list[VecEnv]) -> VecEnv:
    """Return the layer whose observations a Run declares: the outermost, but below a transposition of images.

    SB3 transposes images by itself and a Run leaves that to it; declared as (channels, height, width), a stack of more
    channels than pixels would be taken for one that still has to be transposed.
    """
    for layer in layers:
        if isinstance(layer, VecTransposeImage):
            return layer.venv
        if not isinstance(layer, _TRANSPARENT):
            break
    return layers[0]


def _unstacked(spec: EnvSpec, shown: VecEnv) -> EnvSpec:
    """Return the spec with single frames and `frame_stack`, where that says the same; stacking has its own cost."""
    while isinstance(shown, _TRANSPARENT):
        shown = shown.venv
    if not isinstance(shown, VecFrameStack) or spec.spaces is None:
        return spec
    try:
        frames = Spaces(from_gymnasium(shown.venv.observation_space), spec.spaces.action)
    except BadInput:
        return spec
    unstacked = spec.model_copy(update={"spaces": frames, "frame_stack": shown.stacked_obs.n_stack})
    same = _stored(unstacked) == _stored(spec)  # not so if channels_order says otherwise than SB3 would guess
    return unstacked if same else spec


def _stored(spec: EnvSpec) -> Any:
    return stored_observation(Run(algo="PPO", env=spec))


def _policy_spec(algo_class: Any, policy: Any, policy_kwargs: Mapping[str, Any]) -> PolicySpec:
    aliases: Mapping[str, Any] = getattr(algo_class, "policy_aliases", {})
    if isinstance(policy, str):
        if policy not in aliases:
            close = difflib.get_close_matches(policy, aliases, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(aliases)}"
            raise BadInput(f"{algo_class.__name__}: unknown policy {policy!r}", hint=hint)
        name = policy
    else:
        name = next((alias for alias, known in aliases.items() if known is policy), None) or name_object(policy)
    kwargs = {key: _data_or_name(value) for key, value in policy_kwargs.items()}
    return PolicySpec(
        name=name,
        features_extractor=kwargs.pop("features_extractor_class", None),
        features_extractor_kwargs=kwargs.pop("features_extractor_kwargs", None) or {},
        kwargs=kwargs,
    )


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
        case np.generic():
            return value.item()
        case torch.device():
            return str(value)
        case Mapping():
            return {str(key): _plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_plain(entry) for entry in value]
        case type():
            return name_object(value)
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


def _is_standard_buffer(value: Any) -> bool:
    return (
        isinstance(value, type)
        and value.__name__ in _STANDARD_BUFFERS
        and value.__module__.partition(".")[0] in ("stable_baselines3", "sb3_contrib")
    )


def _check_size(algorithm: Algorithm, key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{algorithm.name}: {key} must be a whole number, not {value!r}")
    if not 1 <= value < 2**63:
        raise BadInput(f"{algorithm.name}: {key}={value} must be positive and below 2**63")


def _device(device: Any) -> str:
    kind = str(device).partition(":")[0]
    return kind if kind in ("auto", "cuda") else "cpu"  # Apple's mps shares the host's memory


def _name(algorithm: Algorithm, env: Any) -> str:
    spec = getattr(env, "spec", None) if isinstance(env, gymnasium.Env) else None
    what = env if isinstance(env, str) else getattr(spec, "id", None)
    return f"{algorithm.name} {what}" if what else algorithm.name
