"""Runs that need no validation: the ones legroom ships, which the test suite validates.

Skipping pydantic here saves a third of the time of `legroom predict mine:full` (see `model.data`).
"""

from typing import Any

from legroom.model.run import CheckpointSpec, EnvSpec, EvalSpec, MemorySpec, PolicySpec, Run, Spaces
from legroom.model.spaces import SPACE_TYPES

_PARTS = {"env": EnvSpec, "policy": PolicySpec, "memory": MemorySpec, "eval": EvalSpec, "checkpoint": CheckpointSpec}


def run_from_trusted(data: dict[str, Any]) -> Run:
    """Return the run that valid data describes; what it does with invalid data is undefined."""
    parts: dict[str, Any] = {key: cls(**_tuples(data[key])) for key, cls in _PARTS.items() if data.get(key)}
    env = parts["env"]
    if env.spaces is not None:
        spaces = Spaces(**{key: _space(value) for key, value in env.spaces.items()})
        parts["env"] = env.model_copy(update={"spaces": spaces})
    return Run(**{**data, **parts})


def _space(data: dict[str, Any]) -> Any:
    if data["type"] == "dict":
        return SPACE_TYPES["dict"](spaces={key: _space(sub) for key, sub in data["spaces"].items()})
    return SPACE_TYPES[data["type"]](**_tuples(data))


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    # one level is enough: keyword arguments deeper down belong to the user's classes and stay lists
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
