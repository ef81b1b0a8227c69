"""The Outcome: what happened in a training, as `outcome.json` beside its logs.

The keys are a contract that programs read, so the fields have the names and the nesting of the JSON. Further keys may
follow; a reader skips the ones it does not know.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from legroom.errors import EXIT_GOOD, EXIT_INTERRUPTED, EXIT_TRAINING_FAILED, BadInput
from legroom.model.data import Between, Data
from legroom.model.files import read_document, write_whole
from legroom.model.sealed import seal, unseal

FILE_NAME = "outcome.json"
Count = Annotated[int, Between(0, (1 << 63) - 1)]
_SKIP_UNKNOWN = {"extra": "ignore", "strict": True}


@dataclass(frozen=True)
class Attempt(Data):
    """One start of the training: why it was made, and the knobs that were turned for it."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _SKIP_UNKNOWN

    reason: str
    knobs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Retreat(Data):
    """One time that memory ran out, or was about to, and what was done about it.

    Args:
        step: environment steps when it happened.
        why: what happened, in one line.
        what: what was done: the knobs that were turned, or that it was resumed as it was.
        update: the gradient step that was redone, where that happened inside an update.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _SKIP_UNKNOWN

    step: Count
    why: str
    what: str
    update: Count | None = None


@dataclass(frozen=True)
class MeasuredPeak(Data):
    """The largest number of bytes in one place: as predicted (None where nothing was) and as it came."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _SKIP_UNKNOWN

    predicted: Count | None
    measured: Count


@dataclass(frozen=True)
class MeasuredPeaks(Data):
    """The peaks of a training; `gpu` is None where it used none."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _SKIP_UNKNOWN

    host: MeasuredPeak
    gpu: MeasuredPeak | None = None


@dataclass(frozen=True)
class MeasuredItem(Data):
    """One item of the bill in bytes; `measured` is None where nothing can measure it alone."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _SKIP_UNKNOWN

    name: str
    predicted: Count
    measured: Count | None = None


@dataclass(frozen=True)
class Outcome(Data):
    """What happened in a training.

    Args:
        timesteps: environment steps trained, those before a resume included.
        parameters_sha256: over the policy's state dict, tensors in name order, raw little-endian bytes; for brax over
            policy and value parameters, leaves in tree order.
        attempts: every start, the first included.
        retreats: every time memory ran out, or was about to.
        micro_batch: the schedule that came of it, [[from_update, size], ...]; a run file that has it repeats this one.
        resume: whether a resume from the last checkpoint repeats the uninterrupted run to the bit; None where there is
            no checkpoint.
        score: what the workload makes of the trained policy; numbers by name.
        seconds: how long it took, all attempts together.
        error: why it failed, in one line.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _SKIP_UNKNOWN

    status: Literal["finished", "stopped", "failed"]
    timesteps: Count
    peaks: MeasuredPeaks
    parameters_sha256: str | None = None
    attempts: tuple[Attempt, ...] = ()
    resume: Literal["exact", "approximate"] | None = None
    score: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    items: tuple[MeasuredItem, ...] = ()
    error: str | None = None
    retreats: tuple[Retreat, ...] = ()
    micro_batch: tuple[tuple[Count, Count], ...] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    legroom: Literal[1] = 1

    @property
    def exit_code(self) -> int:
        """Return what `legroom train` ends with."""
        return {"finished": EXIT_GOOD, "stopped": EXIT_INTERRUPTED, "failed": EXIT_TRAINING_FAILED}[self.status]

    def to_json(self) -> dict[str, Any]:
        """Return plain data in the contract's order of keys; a number that is not finite becomes null."""
        data: dict[str, Any] = _plain(self.model_dump())
        contract = ("legroom", "status", "timesteps", "parameters_sha256", "attempts", "peaks", "resume", "score")
        return {key: data.pop(key) for key in contract} | data

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON, whole or not at all.

        Raises:
            OSError: it cannot be written there.
        """
        write_whole(path, seal(self.to_json()))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Outcome:
        """Return the outcome in a file.

        Raises:
            BadInput: there is none, it is damaged, a later release wrote it, or it is not one.
        """
        from pydantic import TypeAdapter, ValidationError  # heavy: only when something is to be validated

        try:
            data = unseal(read_document(path), path)
            return TypeAdapter(cls).validate_json(json.dumps(data))  # as JSON: it has no tuples
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", path=path, hint="legroom train writes it") from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            problem = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
            raise BadInput(f"is not an outcome of a training: {problem}", path=path, hint="train again") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if hasattr(value, "item"):  # NumPy's numbers, which a score may well be, know themselves as plain ones
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
