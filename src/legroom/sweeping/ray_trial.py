"""One trial of a sweep inside a Ray worker: a training as `legroom train` supervises it, kept to what it requested.

The training is a child of the worker with a folder of its own, so checkpoints, logs and survival are those of any other
training. It is stopped, with a checkpoint, as soon as it takes more than Ray has kept free for it: the sweep starts it
again with what was measured, and it goes on from there. No knob is turned meanwhile: what is compared has to stay as it
was asked for.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from legroom.errors import EXIT_BAD_INPUT, LegroomError
from legroom.model.outcome import MemorySample, Outcome, Progress
from legroom.sweeping.sweep_folder import Live, SweepFolder
from legroom.sweeping.trial import WORKER_NBYTES, Trial
from legroom.training.request import Training
from legroom.training.run_folder import RunFolder
from legroom.training.train import train

LIVE_EVERY_S = 0.5


def train_trial(task: dict[str, Any]) -> dict[str, Any]:
    """Train the trial of a task, which Ray runs."""
    # Modules beside the run, and relative paths in it, are where the command was given.
    with suppress(OSError):
        os.chdir(task["directory"])
    sweep = SweepFolder(Path(task["folder"]))
    return run_trial(sweep, sweep.trials()[task["number"]], requested=task["requested"], runs=task["runs"])


def run_trial(sweep: SweepFolder, trial: Trial, *, requested: int, runs: int) -> dict[str, Any]:
    """Train a trial, or go on with it; return how it ended: status, peak, reason, and whether it exceeded."""
    folder = sweep.trial(trial.number)
    watch = _Watch(sweep, folder, requested=requested, runs=runs, without_libraries=bool(trial.mapped))
    if sweep.is_stopping():
        return {"status": "waiting", "peak": Live.read(folder).peak, "exceeded": False, "reason": ""}
    kept = folder.run()
    run = kept.replace(total_timesteps=trial.run.total_timesteps) if kept is not None else trial.run
    training = Training(trial.asked, run, folder.path, trial.device, trial.predicted, resume=kept is not None)
    try:
        # Ray starts its processes with SIGINT blocked, which a child inherits: it would never hear that it shall stop.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        outcome, _ = train(training, watch)
    except LegroomError as error:
        code = "refused" if error.exit_code == EXIT_BAD_INPUT else "failed"
        return {"status": code, "peak": watch.peak, "exceeded": False, "reason": str(error)}
    finally:
        watch.over()
    return _ended(outcome, watch)


def _ended(outcome: Outcome, watch: _Watch) -> dict[str, Any]:
    memory = outcome.status == "failed" and any(r.what.startswith("given up") for r in outcome.retreats)
    reason = outcome.error or ""
    if outcome.status == "stopped":
        reason = watch.why or "stopped"
    elif memory:
        reason = outcome.retreats[-1].why
    exceeded = watch.exceeded or memory or watch.peak > watch.limit
    return {"status": outcome.status, "peak": watch.peak, "exceeded": exceeded, "reason": reason}


class _Watch:
    """A display that shows nothing: writes the trial's memory down, and stops it where it must end."""

    def __init__(
        self, sweep: SweepFolder, folder: RunFolder, *, requested: int, runs: int, without_libraries: bool
    ) -> None:
        self.peak, self.exceeded, self.why = 0, False, ""
        self.limit = requested - WORKER_NBYTES
        self._sweep, self._folder = sweep, folder
        self._requested, self._runs, self._without_libraries = requested, runs, without_libraries
        self._timesteps, self._due, self._asked = 0, 0.0, False

    def progress(self, progress: Progress) -> None:
        self._timesteps = progress.timesteps

    def memory(self, sample: MemorySample) -> None:
        nbytes = sample.host_nbytes - (sample.mapped_nbytes if self._without_libraries else 0)
        self.peak = max(self.peak, nbytes)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + LIVE_EVERY_S
            self._write(nbytes)
            if self._sweep.is_stopping():
                self._stop("stopped")
        if nbytes > self.limit:
            self.exceeded = True
            self._stop("took more than it had requested")

    def say(self, line: str) -> None:
        """Leave it: the training's own log has it."""

    def over(self) -> None:
        """Say that nothing is in use any more."""
        self._write(0)

    def _write(self, nbytes: int) -> None:
        live = Live(nbytes, self.peak, self._requested, self._timesteps, self._runs, self.why)
        live.write(self._folder)

    def _stop(self, why: str) -> None:
        """Have the supervision do what Ctrl-C does, once: a checkpoint at the end of the iteration."""
        if not self._asked:
            self._asked, self.why = True, why
            raise KeyboardInterrupt
