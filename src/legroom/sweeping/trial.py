"""The nouns of a sweep: a trial as it is planned, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from legroom.model.outcome import Outcome
from legroom.model.run import Run
from legroom.training.run_folder import Predicted

Mode = Literal["max", "min"]
Status = Literal["finished", "failed"]
DEFAULT_METRIC = "reward_mean"
MEASURES: dict[str, Mode] = {"seconds": "min", "peak": "min"}  # of every trial, whatever its score says

MIB = 1 << 20
# What a trial's Ray worker and the supervision in it take beside the training itself (PSS, several at once: 118 to 131
# MiB; Ray 2.60, `bench.sweep_packing` of d63e92e7), and what Ray's services and the command that sweeps take.
WORKER_NBYTES = 144 * MIB
SERVICES_NBYTES = 768 * MIB


@dataclass(frozen=True)
class Trial:
    """One point of the grid, ready to be trained."""

    number: int  # from 0, in the order of the grid
    params: Mapping[str, Any]  # what is varied, by key, as the run has it
    asked: Run  # the run with the params in it; `run`: with the free savings and a seed, as it is trained
    run: Run
    device: str
    predicted: Predicted
    requested: int  # bytes of host memory that Ray keeps free for it; `gpu_share`: of a card
    gpu_share: float = 0.0
    shares: int = 0  # the number of the first trial that needs the same memory
    # bytes of library files that it needs besides, where all trials share one machine; 0: they are part of `requested`,
    # since each trial may be on a machine of its own
    mapped: int = 0


@dataclass(frozen=True)
class TrialResult:
    """How a trial ended."""

    trial: Trial
    status: Status
    outcome: Outcome | None
    peak: int  # bytes measured, its largest; 0 where it never ran
    requested: int
    reason: str = ""  # why it did not finish, in one line
    runs: int = 1  # how often it was started, those with more memory included

    def metric(self, name: str) -> float | None:
        """Return the figure by that name; None where the trial did not finish or has none."""
        if self.outcome is None or self.status != "finished":
            return None
        measured = {"seconds": self.outcome.seconds, "peak": float(self.peak)}
        value = self.outcome.score.get(name, measured.get(name))
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Sweep:
    """All trials of a sweep as they ended, and which was the best."""

    target: str
    metric: str
    mode: Mode
    declared: int
    results: Sequence[TrialResult]
    seconds: float = 0.0
    most_at_once: int = 0

    @property
    def best(self) -> int | None:
        """The trial with the best metric; None where none has one."""
        figures = [(figure, r.trial.number) for r in self.results if (figure := r.metric(self.metric)) is not None]
        if not figures:
            return None
        sign = 1 if self.mode == "max" else -1
        return max(figures, key=lambda entry: (sign * entry[0], -entry[1]))[1]

    def to_json(self) -> dict[str, Any]:
        """Return plain data, for programs."""
        return {
            "legroom": 1,
            "run": self.target,
            "metric": self.metric,
            "mode": self.mode,
            "trials": [self._trial_json(result) for result in self.results],
            "best": self.best,
            "declared": self.declared,
            "most_at_once": self.most_at_once,
            "seconds": round(self.seconds, 1),
        }

    def _trial_json(self, result: TrialResult) -> dict[str, Any]:
        outcome = result.outcome
        return {
            "params": dict(result.trial.params),
            "status": result.status,
            "metric": result.metric(self.metric),
            "peak": result.peak,
            "requested": result.requested,
            "predicted": result.trial.predicted.host.nbytes,
            "timesteps": outcome.timesteps if outcome else 0,
            "seconds": outcome.seconds if outcome else 0.0,
            "score": dict(outcome.score) if outcome else {},
            "runs": result.runs,
            "reason": result.reason or None,
            "folder": f"trials/{result.trial.number:03d}",
        }


@dataclass(frozen=True)
class SweepView:
    """A sweep at one moment: how many trials are in which state, and memory in bytes."""

    running: int
    finished: int
    failed: int
    waiting: int
    nbytes: int
    requested: int
    declared: int
    is_stopping: bool = False
