"""What a training says about itself while it runs, and the Outcome, `outcome.json` beside its logs.

The training is a child process: it cannot hand over objects, and what it writes has to be readable also when a reward
is not a number yet. JSON has no NaN, so a figure that is not finite travels as null. The keys of the outcome are a
contract that programs read, so the fields have the names and the nesting of the JSON. Further keys may follow; a reader
skips the ones it does not know.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal, get_args

from legroom.errors import EXIT_GOOD, EXIT_INTERRUPTED, EXIT_TRAINING_FAILED, BadInput
from legroom.model.files import read_document, seal, unseal, write_whole
from legroom.model.spaces import Between, Data

TrainingPhase = Literal["start", "collect", "update", "checkpoint", "evaluate"]
PHASES: tuple[str, ...] = get_args(TrainingPhase)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a training is."""

    timesteps: int  # environment steps so far, those before a resume included
    total: int  # the steps it is to make in all
    iteration: int  # rounds of collecting and updating begun so far; a new number means that the one before is complete
    phase: TrainingPhase
    steps_per_s: float
    reward_mean: float | None
    episode_length_mean: float | None
    seconds: float  # since the training began; a resume may count on or begin at 0, only differences are used

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Progress:
        """Return the progress of an event, whose other keys are skipped; a figure that is not finite is null there."""
        found = {each.name: data[each.name] for each in fields(cls)}
        return cls(**found | {name: math.nan for name in ("steps_per_s", "seconds") if found[name] is None})


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory of the whole process tree at one moment of a training."""

    seconds: float
    host_nbytes: int
    gpu_nbytes: int | None  # None where it uses no GPU
    phase: TrainingPhase
    left_nbytes: int | None = None  # what the container would still give, None where it has no limit
    # share of the last seconds in which everything stood still for memory, None where nobody tells
    pressure: float | None = None
    mapped_nbytes: int = 0  # this tree's share of library files, as far as they are in `host_nbytes`


@dataclass(frozen=True, slots=True)
class TrainingEvent:
    """Something that happened in a training, on the clock of its memory samples."""

    seconds: float
    kind: Literal["checkpoint", "retreat", "step"]
    text: str


def finite(value: float | None) -> float | None:
    """Return the number, None where there is none: NaN and infinity say as little as nothing does."""
    return value if value is not None and math.isfinite(value) else None


FILE_NAME = "outcome.json"
Count = Annotated[int, Between(0, (1 << 63) - 1)]


class _Kept(Data):
    """A part of the outcome: keys that it does not know are skipped."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "ignore", "strict": True}


@dataclass(frozen=True)
class Attempt(_Kept):
    """One start of the training: why it was made, and the knobs that were turned for it."""

    reason: str
    knobs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedRetreat(_Kept):
    """One time that memory ran out, or was about to, and what was done about it."""

    step: Count  # environment steps when it happened
    why: str  # what happened, in one line
    what: str  # what was done: the knobs that were turned, or that it was resumed as it was
    update: Count | None = None  # the gradient step that was redone, where that happened inside an update


@dataclass(frozen=True)
class MeasuredPeak(_Kept):
    """The largest number of bytes in one place: as predicted (None where nothing was) and as it came."""

    predicted: Count | None
    measured: Count


@dataclass(frozen=True)
class MeasuredPeaks(_Kept):
    """The peaks of a training; `gpu` is None where it used none."""

    host: MeasuredPeak
    gpu: MeasuredPeak | None = None


@dataclass(frozen=True)
class MeasuredItem(_Kept):
    """One item of the bill in bytes; `measured` is None where nothing can measure it alone."""

    name: str
    predicted: Count
    measured: Count | None = None


@dataclass(frozen=True)
class Outcome(_Kept):
    """What happened in a training."""

    status: Literal["finished", "stopped", "failed"]
    timesteps: Count  # environment steps trained, those before a resume included
    peaks: MeasuredPeaks
    # over the policy's state dict, tensors in name order, raw little-endian bytes; for brax over policy and value
    # parameters, leaves in tree order
    parameters_sha256: str | None = None
    attempts: tuple[Attempt, ...] = ()  # every start, the first included
    # whether a resume from the last checkpoint repeats the uninterrupted run to the bit; None where there is no
    # checkpoint
    resume: Literal["exact", "approximate"] | None = None
    # what the workload makes of the trained policy; numbers by name
    score: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # how long it took, all attempts together
    items: tuple[MeasuredItem, ...] = ()
    error: str | None = None  # why it failed, in one line
    retreats: tuple[RecordedRetreat, ...] = ()  # every time memory ran out, or was about to
    # the schedule that came of it, [[from_update, size], ...]; a run file that has it repeats this one
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
