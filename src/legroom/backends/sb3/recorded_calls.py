"""A Run from a constructor call that the guest of a rehearsed program wrote down (`legroom.hollow.model_calls`).

The counterpart of `constructor_calls`, which has the live objects: here there are names and plain values, and neither
SB3 nor torch need be installed beside legroom.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legroom.backends.base import find_algorithm
from legroom.backends.sb3.stored import stored_observation
from legroom.model.facts import NEUTRAL, Algorithm
from legroom.model.run import Run

ELSEWHERE = frozenset({"policy", "env", "policy_kwargs", "device", "seed"})
STANDARD_BUFFERS = ("stable_baselines3.", "sb3_contrib.")
_LAYERS = "torch.nn.modules."


def run_from_record(record: Mapping[str, Any]) -> Run | None:
    """Return the run that a recorded call makes; None where it is no algorithm that we know, or has no environment."""
    found = _algorithm(record)
    env = _env(record.get("env"))
    if found is None or env is None:
        return None
    arguments: Mapping[str, Any] = record.get("arguments") or {}
    seed = arguments.get("seed")
    try:
        return Run.model_validate({
            "name": found.name, "algo": found.name, "env": env, "policy": _policy(record, arguments),
            "hyperparams": dict(_hyperparams(found, arguments)), "seed": seed if isinstance(seed, int) else None,
            "device": record.get("device") if record.get("device") in ("cpu", "cuda") else "auto",
            **({"total_timesteps": steps} if (steps := record.get("total_timesteps")) else {}),
        })  # fmt: skip
    except ValueError:
        return None


def _algorithm(record: Mapping[str, Any]) -> Algorithm | None:
    for package, name in record.get("bases") or ():  # a user's subclass of PPO is PPO
        found = find_algorithm("sb3", str(name))
        if found is not None and found.is_made_in(package):
            return found
    return None


def _hyperparams(algorithm: Algorithm, arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments that differ from the constructor's defaults and have a plain form."""
    return [
        (name, value)
        for name, value in arguments.items()
        if name in algorithm.defaults and name not in ELSEWHERE and name not in NEUTRAL
        and value is not None and value != algorithm.defaults[name] and value != {} and not _is_object(value)
        and not (name.endswith("_buffer_class") and str(value).startswith(STANDARD_BUFFERS))
    ]  # fmt: skip


def _is_object(value: Any) -> bool:
    """Return whether a value was an instance or a function: a schedule, a noise, a callback."""
    return isinstance(value, str) and (value.startswith("<") or ":function" in value)


def _policy(record: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    kwargs = {name: _named(value) for name, value in (arguments.get("policy_kwargs") or {}).items()}
    return {
        "name": str(record.get("policy") or "MlpPolicy"),
        "features_extractor": kwargs.pop("features_extractor_class", None),
        "features_extractor_kwargs": kwargs.pop("features_extractor_kwargs", None) or {},
        "kwargs": {name: value for name, value in kwargs.items() if not _is_object(value)},
    }


def _named(value: Any) -> Any:
    """Return a class of torch by its public name."""
    if isinstance(value, str) and value.startswith(_LAYERS):
        return f"torch.nn.{value.rpartition(':')[2]}"
    return value


def _env(record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not record:
        return None
    spaces = {"observation": record["observation"], "action": record["action"]}
    env: dict[str, Any] = {
        name: record[name] for name in ("id", "n_envs", "workers", "start_method", "normalize") if record.get(name)
    }
    whole = env | {"spaces": spaces}
    if not record.get("frame_stack"):
        return whole
    frames = {"observation": record["frame"], "action": record["action"]}
    stacked = env | {"spaces": frames, "frame_stack": record["frame_stack"]}
    try:
        same = _stored(stacked) == _stored(whole)  # not so if channels_order says otherwise than SB3 would guess
    except ValueError:
        return whole
    return stacked if same else whole


def _stored(env: Mapping[str, Any]) -> Any:
    return stored_observation(Run.model_validate({"algo": "PPO", "env": env}))
