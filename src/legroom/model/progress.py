"""What a training says about itself while it runs, as one JSON object per line.

The training is a child process: it cannot hand over objects, and what it writes has to be readable by whoever watches,
also when a reward is not a number yet. JSON has no NaN, so a figure that is not finite travels as null.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from legroom.errors import BadInput

TrainingPhase = Literal["start", "collect", "update", "checkpoint", "evaluate"]
PHASES: tuple[str, ...] = get_args(TrainingPhase)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a training is.

    Args:
        timesteps: environment steps so far, those before a resume included.
        total: the steps it is to make in all.
        iteration: rounds of collecting and updating begun so far; a new number means that the one before is complete.
        seconds: since the training began; a resume may count on or begin at 0, only differences are used.
    """

    timesteps: int
    total: int
    iteration: int
    phase: TrainingPhase
    steps_per_s: float
    reward_mean: float | None
    episode_length_mean: float | None
    seconds: float

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Progress:
        """Return the progress that plain data describes; keys it does not know are skipped.

        Raises:
            BadInput: a figure is missing or is none.
        """
        return cls(
            timesteps=_get(data, "timesteps", int),
            total=_get(data, "total", int),
            iteration=_get(data, "iteration", int, 0),
            phase=_phase(data),
            steps_per_s=_number(data, "steps_per_s"),
            reward_mean=_number_or_none(data, "reward_mean"),
            episode_length_mean=_number_or_none(data, "episode_length_mean"),
            seconds=_number(data, "seconds"),
        )


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory of the whole process tree at one moment of a training.

    Args:
        gpu_nbytes: None where it uses no GPU.
        left_nbytes: what the container would still give, None where it has no limit.
        pressure: share of the last seconds in which everything stood still for memory, None where nobody tells.
        mapped_nbytes: this tree's share of library files, as far as they are in `host_nbytes`.
    """

    seconds: float
    host_nbytes: int
    gpu_nbytes: int | None
    phase: TrainingPhase
    left_nbytes: int | None = None
    pressure: float | None = None
    mapped_nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened in a training, on the clock of its memory samples."""

    seconds: float
    kind: Literal["checkpoint", "retreat", "step"]
    text: str


def finite(value: float | None) -> float | None:
    """Return the number, None where there is none: NaN and infinity say as little as nothing does."""
    return value if value is not None and math.isfinite(value) else None


def _get(data: dict[str, Any], key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
    value = data.get(key, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise BadInput(f"progress of a training: {key} is {value!r}")
    return value


def _number_or_none(data: dict[str, Any], key: str) -> float | None:
    return finite(None if data.get(key) is None else float(_get(data, key, (int, float))))


def _number(data: dict[str, Any], key: str) -> float:
    value = _number_or_none(data, key)
    return math.nan if value is None else value


def _phase(data: dict[str, Any]) -> Any:
    phase = data.get("phase")
    if phase not in PHASES:
        raise BadInput(f"progress of a training: phase is {phase!r}", hint=f"one of {', '.join(PHASES)}")
    return phase
