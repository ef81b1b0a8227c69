"""train(run) -> Outcome: start the child, see it through, and write down what happened.

Everything that can be refused is refused before the first step: a folder that is in use, a total that was not said.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from legroom.errors import (
    EXIT_BAD_INPUT,
    EXIT_GOOD,
    EXIT_INTERRUPTED,
    EXIT_TRAINING_FAILED,
    BadInput,
)
from legroom.model.outcome import Attempt, MeasuredItem, MeasuredPeak, MeasuredPeaks, Outcome
from legroom.model.run import Run
from legroom.probing.import_path import import_path
from legroom.training.folder import OUTCOME, Predicted, RunFolder
from legroom.training.supervise import Display, Story, supervise
from legroom.training.task import TrainTask

PICTURES_EVERY = 10  # iterations


@dataclass(frozen=True)
class Training:
    """One training to be done: the run as it was asked for and as it is trained, and where.

    Args:
        asked: as the file says it; the knobs of the outcome are what differs in `run`.
        run: with the savings in it, the seed and the total.
        written_timesteps: the total that the run file says, where the command line said another.
    """

    asked: Run
    run: Run
    folder: RunFolder
    device: str
    predicted: Predicted | None = None
    written_timesteps: int | None = None
    resume: bool = False
    checkpoint_every: int | None = None
    pictures: bool = False
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Ended:
    """How a training ended, for the command line and for the charts."""

    outcome: Outcome
    exit_code: int
    story: Story


def train(training: Training, display: Display) -> Ended:
    """Train to the end, a stop or a failure; the outcome is in the folder when this returns.

    Raises:
        BadInput: the folder is in use, or the child refused what it was given.
    """
    run, folder = training.run, training.folder
    if run.total_timesteps is None:
        raise BadInput(f"{run.name} does not say how long it trains", path=run.source, hint="--timesteps N")
    with folder.locked():
        before = folder.outcome() if training.resume else None
        folder.keep(run, training.predicted)
        checkpoint = run.checkpoint
        task = TrainTask(
            run=run,
            out=str(folder.path),
            device=training.device,
            total_timesteps=run.total_timesteps,
            events_fd=-1,
            resume=training.resume,
            checkpoint_every=training.checkpoint_every or (checkpoint.every if checkpoint else None),
            keep=checkpoint.keep if checkpoint else 3,
            pictures_every=PICTURES_EVERY if training.pictures else None,
        )
        story = supervise(task, display, import_path=import_path(run))
        if story.end.get("event") == "refused":
            if not training.resume:
                folder.forget()
            raise BadInput(story.end["message"])
        outcome = _outcome(training, story, before)
        outcome.write(folder.path / OUTCOME)
    return Ended(outcome, _exit_code(story), story)


def is_finished(folder: RunFolder, total_timesteps: int | None) -> bool:
    """Return whether the training in the folder has reached the total."""
    outcome = folder.outcome()
    return outcome is not None and outcome.status == "finished" and outcome.timesteps >= (total_timesteps or 0)


def turned_knobs(asked: Run, trained: Run) -> dict[str, Any]:
    """Return the settings in which the trained run differs from the one asked for, by their names in the run file."""
    knobs = {}
    for part in ("memory", "env", "policy", "hyperparams"):
        before, after = _settings(getattr(asked, part)), _settings(getattr(trained, part))
        for key, value in after.items():
            if before.get(key) != value and key != "spaces":
                knobs[f"{part}.{key}"] = value
    return knobs


def _settings(part: Any) -> dict[str, Any]:
    return part if isinstance(part, dict) else part.model_dump()


def _outcome(training: Training, story: Story, before: Outcome | None) -> Outcome:
    end, predicted = story.end, training.predicted
    reason = "resume" if training.resume and story.started_step else "start"
    attempt = Attempt(reason, turned_knobs(training.asked, training.run))
    host = MeasuredPeak(predicted.host.nbytes if predicted else None, story.host_peak_nbytes)
    gpu = None
    if story.gpu_peak_nbytes is not None:
        gpu = MeasuredPeak(predicted.gpu.nbytes if predicted and predicted.gpu else None, story.gpu_peak_nbytes)
    exact = end.get("exact")
    return Outcome(
        status=_status(story),
        timesteps=story.step,
        parameters_sha256=end.get("parameters_sha256"),
        attempts=(*(before.attempts if before else ()), attempt),
        peaks=MeasuredPeaks(_higher(host, before.peaks.host if before else None), gpu),
        resume=None if exact is None else "exact" if exact else "approximate",
        score=end.get("score") or {},
        seconds=round((before.seconds if before else 0.0) + (story.samples[-1].seconds if story.samples else 0.0), 1),
        items=_items(predicted, end.get("items") or {}),
        error=_error(story),
        versions=dict(training.versions or {}),
    )


def _higher(peak: MeasuredPeak, earlier: MeasuredPeak | None) -> MeasuredPeak:
    """Return the peak over all attempts; what an earlier one measured still counts."""
    return peak if earlier is None else MeasuredPeak(peak.predicted, max(peak.measured, earlier.measured))


def _items(predicted: Predicted | None, measured: Mapping[str, int]) -> tuple[MeasuredItem, ...]:
    """Return the predicted items beside what was measured of them; workers count as one."""
    if predicted is None:
        return ()
    items = [MeasuredItem(name, nbytes, measured.get(name)) for name, nbytes in predicted.items]
    return tuple(items)


def _status(story: Story) -> Any:
    match story.end.get("event"):
        case "ended":
            return story.end["status"]
        case "stopped":
            return "stopped"
    return "failed"


def _error(story: Story) -> str | None:
    if story.end.get("event") == "failed":
        return f"at step {story.step:,}: {story.end['message']}"
    if not story.end:
        return f"at step {story.step:,}: the training process {_death(story.exit_code)}"
    return None


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code} and without a word"


def _exit_code(story: Story) -> int:
    match _status(story):
        case "finished":
            return EXIT_GOOD
        case "stopped":
            return EXIT_INTERRUPTED
    return EXIT_BAD_INPUT if story.end.get("event") == "refused" else EXIT_TRAINING_FAILED
