"""What a training library plugs into the one training loop (`training.child`), and what that loop offers it.

A backend makes a `Learner`. The loop asks it for one iteration after another and does everything that is the same for
all libraries between them: signals, checkpoints, resuming, pacing, a disk that is full, the events that the parent
hears. A small backend states `step`, `capture`, `restore` and `learned`; everything else has a default. The parent
writes what the child is to do as a file, a `TrainTask`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from legroom.model.outcome import TrainingPhase
from legroom.model.run import Run

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Exported:
    """A file that was written, and what its reader should know."""

    path: Path
    algorithm: str
    step: int
    nbytes: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TrainTask:
    """One start of the training child."""

    run: Run  # what to train, with the knobs already turned and its seed chosen
    out: str  # the folder to train in
    device: str = "cpu"
    total_timesteps: int = 0  # where it ends, counted from the very beginning
    events_fd: int = -1  # the descriptor the child writes its events to
    resume: bool = False  # go on from the last good checkpoint of `out`
    checkpoint_every: int | None = None  # environment steps; None: as the run says, or by time
    pictures_every: int | None = None  # iterations between two pictures of the workload; None: no pictures
    cluster: str | None = None  # local, auto, or the address of one, for backends that train on one; None: not said
    calls_fd: int = -1  # memory in which the child notes calls of environments (`training.events`); -1: nobody looks

    def write(self, path: Path) -> None:
        data = {name: getattr(self, name) for name in TrainTask.__dataclass_fields__} | {"run": self.run.model_dump()}
        path.write_text(json.dumps(data))

    @classmethod
    def read(cls, path: Path) -> TrainTask:
        data: dict[str, Any] = json.loads(path.read_text())
        return cls(**data | {"run": Run.model_validate(data["run"])})


Result = TypeVar("Result")
Figures = Mapping[str, float | int | None]


@dataclass(frozen=True)
class State:
    """All that a later iteration reads: what a checkpoint holds."""

    tensors: Mapping[str, np.ndarray[Any, Any]]  # arrays by `group/name`; they may share the learner's memory
    # all else, as JSON. What the learner keeps beside the library's own state stands under `legroom`.
    data: Mapping[str, Any]
    why_not_exact: str = ""  # why going on does not give the bits of an uninterrupted run; "" where it does
    # further files that an earlier checkpoint has already: their names and paths
    link: Mapping[str, Path] = field(default_factory=dict)
    # further files: their names, and what writes each to a path
    files: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        return not self.why_not_exact


class SavedState(Protocol):
    """A state as it was read back: `training.checkpoint.Checkpoint`."""

    path: Path
    files: dict[str, dict[str, Any]]

    @property
    def step(self) -> int: ...
    @property
    def data(self) -> dict[str, Any]: ...
    def tensors(self, group: str) -> dict[str, np.ndarray[Any, Any]]: ...
    def file(self, name: str) -> Path: ...


@dataclass(frozen=True)
class Status:
    """How training goes: means of the last episodes, None where none has ended, and memory of the card in use."""

    reward_mean: float | None = None
    length_mean: float | None = None
    gpu_nbytes: int | None = None


@dataclass(frozen=True)
class Evaluation:
    """Returns of the episodes of one evaluation."""

    mean: float
    spread: float
    length: float | None = None
    figures: Figures = field(default_factory=dict)  # further ones for the log, by name


@dataclass(frozen=True)
class Learned:
    """What is known when a training ends."""

    parameters_sha256: str
    items: Mapping[str, int] = field(default_factory=dict)  # measured bytes by the names that items of a bill have
    gpu_peak_nbytes: int | None = None
    score: Mapping[str, Any] = field(default_factory=dict)  # numbers by name, for the report


@dataclass(frozen=True)
class FailureCause:
    """What an exception of a training means."""

    # `refused`: what was asked for cannot be trained; `memory`: an allocation failed; `worker-died`: going on from the
    # last checkpoint may help; `error`: it would happen again
    kind: Literal["refused", "memory", "worker-died", "error"]
    on_gpu: bool = False  # the memory that ran out is the card's
    oom_killed: bool = False  # a process was killed for its memory
    message: str = ""  # where the exception's own are not the ones to show
    traceback: str = ""


class Loop(Protocol):
    """What the training loop offers a learner."""

    @property
    def iteration(self) -> int:
        """Iterations completed so far, those before a resume included."""

    def boundary(self) -> bool:
        """Do what is done between two iterations, and return whether to stop; the learner's state is complete now."""

    def completed(self, figures: Figures | None = None) -> None:
        """Count an iteration; log its figures unless the library has a log of its own."""

    def progress(self, *, every_s: float = 0.0) -> None:
        """Tell the parent how far training is, at most once in so many seconds."""

    def not_finite(self, what: str, *, ends: bool) -> None:
        """Tell that a number that is not finite was seen.

        Args:
            what: in a few words, to be followed by "at step N".
            ends: no training can go on with it; otherwise it explains what may happen later.
        """

    def say(self, text: str) -> None:
        """Show a line to the user."""

    def phase(self, phase: TrainingPhase) -> None:
        """Tell the parent what begins now."""

    def send(self, event: str, **fields: Any) -> None:
        """Send the parent an event."""

    def within(self) -> None:
        """Write a checkpoint within an iteration where one is due; the learner's state has to be complete now.

        Raises:
            Exception: somebody asked to stop; it must reach the caller of `Learner.run`.
        """

    def in_background(self, function: Callable[[], Result], *, needed: bool, within_s: float | None = None) -> Result:
        """Compute in a thread of its own, so that signals are heard (`training.background.BackgroundThread.run`)."""


class Learner(Protocol):
    """One training of one library, from the beginning or from a checkpoint."""

    timesteps: int  # environment steps made so far
    total_timesteps: int  # where it ends; libraries may round up what the task says
    # environment steps between two checkpoints where the user says nothing; None: by time
    checkpoint_every: int | None = None
    stops_within: bool = False  # it calls `Loop.within` in its iterations, and can capture its state there
    is_within: bool = False  # its state is one within an iteration
    place: int = 0  # what tells two states within an iteration apart that have the same `timesteps`

    def begin(self) -> None:
        """Get ready to learn from the beginning."""
        return

    def restore(self, checkpoint: SavedState) -> str:
        """Get ready to go on from a checkpoint; called instead of `begin`.

        Returns why going on is not exact, "" where it is.

        Raises:
            BadInput: the checkpoint is of something else.
        """

    def step(self) -> Figures:
        """Do one iteration, collecting and learning, and return its figures for the log; unless `run` does it all."""
        return {}

    def run(self, loop: Loop) -> None:
        """Iterate until the total is reached or a boundary says stop.

        A library that drives its own loop overrides this, and calls the three methods where they belong.
        """
        while self.timesteps < self.total_timesteps and not loop.boundary():
            loop.progress()
            loop.completed(self.step())

    def between_iterations(self) -> None:
        """Do what the library needs at a boundary, after a checkpoint and an evaluation."""
        return

    def capture(self, previous: SavedState | None) -> State:
        """Return the state at a boundary.

        Args:
            previous: the last checkpoint; what has not changed since may be linked.
        """

    def status(self) -> Status:
        return Status()

    def evaluation_due(self, *, finished: bool) -> bool | None:
        """Return whether to evaluate now; None: as the run's `eval.every` says, and not in the end."""
        return None

    def evaluate(self) -> Evaluation | None:
        """Evaluate what is learned so far; None where the library cannot."""
        return None

    def learned(self, *, finished: bool) -> Learned:
        """Return what is known in the end; a workload judges only what was finished."""

    def close(self) -> None:
        """Let go of environments and other processes."""
        return
