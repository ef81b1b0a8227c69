"""The training child: one loop for every library, in a process of its own.

Everything heavy or foreign happens here: the libraries, the user's environment. The parent (`training.supervise`) gets
one JSON line per event through a pipe; what the environment prints goes to the log. A backend's `Learner` does the
iterations; whatever is the same for all libraries is done here, at *iteration boundaries*: the moments at which a
learner's state is complete. A learner may have such moments within an iteration, too (`within`).
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from legroom.backends.base import backend_of
from legroom.errors import EXIT_BAD_INPUT, EXIT_GOOD, EXIT_INTERRUPTED, EXIT_TRAINING_FAILED, BadInput
from legroom.machine.limits import limit_reached
from legroom.model.learner import Figures, Learner, TrainTask
from legroom.model.outcome import TrainingPhase
from legroom.model.run import CheckpointSpec
from legroom.orphan import end_unheard
from legroom.training.background import Abandoned, BackgroundThread, StopSignals
from legroom.training.checkpoint import Checkpoint, Checkpoints, Pace
from legroom.training.events import EventPipe
from legroom.training.finite import FiniteWatch, NotFinite, Suspicion, loss_not_finite
from legroom.training.progress_log import TrainingLog
from legroom.training.run_folder import RUN

WAIT_FOR_ROOM_S = 600.0  # at the end of a training, for a disk that is full
ROOM_AFTER_S, ROOM_EVERY_S = 1.0, 30.0  # how often to look, seldom in the end

Result = TypeVar("Result")


def main() -> None:
    """Carry out the task file named on the command line; exit with the code that says how it ended."""
    code = _carry_out(TrainTask.read(Path(sys.argv[1])))
    gc.collect()  # environments close what they have left open, before the modules that they need are gone
    gc.freeze()  # Python would look through all objects again and again as it takes modules apart, for half a second
    sys.exit(code)


def _carry_out(task: TrainTask) -> int:
    with EventPipe(task.events_fd) as events:
        loop = TrainingLoop(task, events)
        code = loop.train(lambda: end_unheard(task.events_fd, lambda: loop.is_saving))
    if loop.computed_in_background:  # its thread may be within XLA or wait for an actor: no orderly end survives that
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


class TrainingLoop:
    """One training from start or checkpoint to its end; offers its learner what `model.learner.Loop` says."""

    def __init__(self, task: TrainTask, events: EventPipe) -> None:
        self._task, self._events, self._run = task, events, task.run
        self.send = events.send
        self.iteration = 0
        self._trainer = backend_of(task.run).trainer
        self._signals = StopSignals(self._stopping)
        kept = task.run.checkpoint or CheckpointSpec()
        self._every, self._keep_best = task.checkpoint_every or kept.every, kept.keep_best or 0
        self._checkpoints = Checkpoints(Path(task.out), keep=kept.keep, keep_best=self._keep_best)
        self._finite = FiniteWatch()
        self._evaluated: tuple[int, float] | None = None  # step and mean of the last evaluation
        self._pace = Pace()
        self._learner: Learner | None = None
        self._background: BackgroundThread | None = None
        self._log: TrainingLog | None = None
        self._why_not_exact = self._warned = ""
        self._resumed_from = self._evaluated_at = 0
        self._began = self._told = self._iteration_began = time.monotonic()
        self._began_at = self._iteration_began_at = 0
        self._elapsed_before_s = 0.0
        self._phase: TrainingPhase = "start"

    @property
    def is_saving(self) -> bool:
        return self._signals.writing

    @property
    def computed_in_background(self) -> bool:
        return self._background is not None

    def train(self, begin: Callable[[], None] = lambda: None) -> int:
        """Learn until the total is reached or a stop is asked for; return the exit code.

        Args:
            begin: is called first; what it raises is told as whatever else goes wrong.
        """
        try:
            begin()
            return self._train()
        except KeyboardInterrupt:
            return self._stopped()
        except NotFinite as story:
            return self._not_finite(story)
        except Exception as failed:  # of the environment, a network, the library: whatever it is ends the run
            # an interrupted import may raise something else than the interrupt
            return self._failed(failed) if self._signals.graceful or not self._signals else self._stopped()
        finally:
            self._close()

    def _train(self) -> int:
        task = self._task
        learner = self._learner = self._trainer.learner(task, self)
        if self._signals:  # an import may swallow what a signal's handler raises
            raise KeyboardInterrupt
        self._signals.graceful = True
        checkpoint = self._last_checkpoint() if task.resume else None
        self._resumed_from = checkpoint.step if checkpoint else 0
        self._log = TrainingLog(Path(task.out), resumed_from=self._resumed_from, say=self.say)
        self.send(
            "started",
            step=self._resumed_from,
            total=task.total_timesteps,
            seed=self._run.seed,
            resumed_from=self._resumed_from,
        )
        try:
            self._get_ready(learner, checkpoint)
        except Abandoned:  # before there was anything to keep
            if self._signals.retreating:
                return self._retreated()
            raise KeyboardInterrupt from None
        with suppress(Abandoned):
            learner.run(self)
            if self._is_finished(learner) and learner.evaluation_due(finished=True):
                self._checkpoint(learner)  # what is learned comes before what it is worth
                self._evaluate(learner)
        return self._end(learner)

    # -- beginning and end --------------------------------------------------------------------------------------------

    def _last_checkpoint(self) -> Checkpoint | None:
        checkpoint = self._checkpoints.latest()
        for line in self._checkpoints.set_damaged_aside():
            self.say(line)
        if checkpoint is None:
            self.say(f"no good checkpoint in {self._task.out}: starting over")
        return checkpoint

    def _get_ready(self, learner: Learner, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            learner.begin()
        else:
            kept = checkpoint.data.get("legroom", {})
            unlike = self._restore(learner, checkpoint)
            self.iteration = int(kept.get("iteration", 0))
            self._elapsed_before_s = float(kept.get("elapsed_s", 0.0))
            self._why_not_exact = str(kept.get("why_not_exact", "")) or unlike
            self._finite.suspicion = Suspicion(**kept["suspicion"]) if kept.get("suspicion") else None
            self._pace.written_at_step, self._pace.written_at_place = checkpoint.step, learner.place
            how = f"not bit-exact: {self._why_not_exact}" if self._why_not_exact else "exact"
            self.say(f"resuming from step {checkpoint.step:,} ({how})")
        if self._keep_best and self._run.eval is None and learner.evaluation_due(finished=True) is None:
            self.say("warning: checkpoint.keep_best keeps nothing, since nothing is evaluated: eval: {every: N}")
        kept = checkpoint.data.get("legroom", {}) if checkpoint is not None else {}
        self._evaluated_at = int(kept.get("evaluated_at", learner.timesteps))
        self._began = time.monotonic()  # compiling and building would spoil the steps per second
        self._began_at = learner.timesteps

    def _restore(self, learner: Learner, checkpoint: Checkpoint) -> str:
        try:
            return learner.restore(checkpoint)
        except OSError as error:  # of the checkpoint's files: a worker that is gone is another story
            name = error.filename
            if not isinstance(name, str) or not Path(name).is_relative_to(checkpoint.path):
                raise
            reason = f"{Path(name).name} cannot be read: {error.strerror}"
            raise BadInput(reason, path=checkpoint.path, hint="--resume tries again") from error

    def _end(self, learner: Learner) -> int:
        finished = self._is_finished(learner)
        if not self._checkpoint_patiently(learner) and finished:
            message = f"training after step {self._pace.written_at_step or 0:,} could not be saved"
            self.send("failed", message=message, step=self._timesteps, exact=self._goes_on_exactly, cause="disk")
            return EXIT_TRAINING_FAILED
        self._signals.in_time()
        if self._signals.retreating and not finished:
            return self._retreated()
        for step, mean in self._checkpoints.best()[:1]:
            self.say(f"best by evaluation: {mean:.2f} at step {step:,}, kept as checkpoints/step-{step:012d}")
        learned = learner.learned(finished=finished)
        self._signals.in_time()
        self.send(
            "ended",
            status="finished" if finished else "stopped",
            step=learner.timesteps,
            parameters_sha256=learned.parameters_sha256,
            exact=self._goes_on_exactly,
            why_not_exact=self._why_not_exact,
            seconds=time.monotonic() - self._began,
            items=dict(learned.items),
            gpu_peak_nbytes=learned.gpu_peak_nbytes,
            score=dict(learned.score),
        )
        return EXIT_GOOD if finished else EXIT_INTERRUPTED

    def _stopped(self) -> int:
        self.send("stopped", step=self._timesteps, exact=self._goes_on_exactly)
        return EXIT_INTERRUPTED

    def _stopping(self) -> None:
        """Tell what comes of the first request to stop."""
        within = self._learner is not None and self._learner.stops_within
        self.send(
            "stopping", step=self._timesteps, within=within, last=self._pace.written_at_step, age_s=self._pace.age_s
        )

    def _retreated(self) -> int:
        self.send("retreated", step=self._timesteps)
        return EXIT_TRAINING_FAILED

    def _failed(self, failed: Exception) -> int:
        cause = self._trainer.failure_cause(failed)
        if cause.kind == "refused":
            self.send("refused", message=cause.message or str(failed))
            return EXIT_BAD_INPUT
        text, limit = traceback.format_exc(), limit_reached(failed)
        if limit is None:  # else one line says it, with the way out
            sys.stderr.write(text)
        if cause.kind == "error" and (story := self._lost_numbers()):
            return self._not_finite(story)
        seen = "".join(f"; before that, {each}" for each in self._finite.seen())
        self.send(
            "failed",
            message=(limit or cause.message or f"{type(failed).__name__}: {failed}") + seen,
            traceback="" if limit else cause.traceback or text,
            step=self._timesteps,
            exact=self._goes_on_exactly,
            cause=cause.kind,
            on_gpu=cause.on_gpu,
            oom_killed=cause.oom_killed,
        )
        return EXIT_TRAINING_FAILED

    def _lost_numbers(self) -> NotFinite | None:
        """Return the story where NaN is behind a failure: libraries raise when their networks give it."""
        try:
            if self._learner is not None:
                self._finite.check(self._learner.capture(None).tensors, self._timesteps)
        except NotFinite as story:
            return story
        except Exception:  # what has failed need not be in a state to be looked at
            return None
        return None

    def _not_finite(self, story: NotFinite) -> int:
        """End with the story; what was written since the first suspicion is put aside."""
        suspicion = self._finite.suspicion
        with suppress(OSError):
            aside = self._checkpoints.put_aside(suspicion.step) if suspicion is not None else []
            for path in aside:
                self.say(f"moved to aside-{path.name}: written after {suspicion and suspicion.what}")
        self.send("failed", message=str(story), step=self._timesteps, exact=self._goes_on_exactly, cause="not-finite")
        return EXIT_TRAINING_FAILED

    def _close(self) -> None:
        """Let go of everything; nothing of it may hide how the training ended."""
        for each in (self._log, self._learner):
            if each is not None:
                with suppress(Exception):
                    each.close()

    @property
    def _timesteps(self) -> int:
        return max(self._resumed_from, self._learner.timesteps if self._learner is not None else 0)

    @staticmethod
    def _is_finished(learner: Learner) -> bool:
        return learner.timesteps >= learner.total_timesteps and not learner.is_within

    @property
    def _goes_on_exactly(self) -> bool | None:
        """Whether a resume repeats the uninterrupted training to the bit; None where there is nothing to resume."""
        return None if self._pace.written_at_step is None else not self._why_not_exact

    # -- between iterations -------------------------------------------------------------------------------------------

    def boundary(self) -> bool:
        """Write a checkpoint and evaluate where that is due; return whether to stop."""
        if self._signals:
            return True
        learner = self._learner
        assert learner is not None
        if self._finite.in_doubt:
            self._finite.check(learner.capture(self._checkpoints.newest).tensors, learner.timesteps)
        every = self._every
        if self._pace.is_due(learner.timesteps, every=every or learner.checkpoint_every, or_overdue=every is None):
            self._checkpoint(learner)
        if self._evaluation_is_due(learner):
            self._evaluate(learner)
        learner.between_iterations()
        self._iteration_began, self._iteration_began_at = time.monotonic(), learner.timesteps
        return False

    def _checkpoint(self, learner: Learner, *, anew: bool = False) -> bool:
        """Write a checkpoint and return whether it is there; a disk that is full is said, and no reason to stop.

        Args:
            anew: also where there is one of this step: more is known about it now.

        Raises:
            NotFinite: what is learned is not worth keeping; the earlier checkpoints are as they were.
        """
        step, place = learner.timesteps, learner.place
        if self._pace.is_written(step, place) and not anew:
            return True
        self.phase("checkpoint")
        self._signals.writing = True
        try:
            began = time.monotonic()
            with self._pace.writing(step, place, within=learner.is_within):
                path = self._write(learner)
        except BadInput as error:
            self.say(f"warning: {error}; training continues")
            self._pace.put_off()
            return False
        finally:
            self._signals.writing = False
        self.send("checkpoint", step=step, path=str(path), seconds=time.monotonic() - began)
        if self._checkpoints.warning != self._warned:  # said once
            self._warned = self._checkpoints.warning
            self.say(self._warned)
        return True

    def _write(self, learner: Learner) -> Path:
        step = learner.timesteps
        state = learner.capture(self._checkpoints.newest)
        self._finite.check(state.tensors, step)
        self._why_not_exact = state.why_not_exact
        kept = {**state.data.get("legroom", {}), "iteration": self.iteration, "why_not_exact": state.why_not_exact}
        if self._finite.suspicion is not None:
            kept["suspicion"] = asdict(self._finite.suspicion)
            self._checkpoints.suspect_since = self._finite.suspicion.step
        if learner.is_within:
            kept["evaluated_at"] = self._evaluated_at
        elif self._evaluated is not None and self._evaluated[0] == step:
            kept["evaluation"] = self._evaluated[1]
        data = {**state.data, "legroom": kept | {"elapsed_s": self._elapsed_s}}
        files = {**state.files, **self._copy_of_run()}
        about = (step, state.tensors, data)
        return self._checkpoints.write(*about, link=state.link, files=files, passing=learner.is_within)

    def within(self) -> None:
        """Write a checkpoint within an iteration where the last one is too old.

        Raises:
            Abandoned: somebody asked to stop; `_end` writes the checkpoint.
        """
        if self._signals:
            raise Abandoned
        learner = self._learner
        if learner is not None and self._every is None and self._pace.is_due(0, within=True):
            phase = self._phase
            self._checkpoint(learner)
            self.phase(phase)

    def _copy_of_run(self) -> dict[str, Callable[[Path], None]]:
        """Return run.json as a file of the checkpoint: where the folder's own is damaged, it comes back from there."""
        try:
            content = (Path(self._task.out) / RUN).read_bytes()
        except OSError:
            return {}

        def copy(path: Path) -> None:
            path.write_bytes(content)

        return {RUN: copy}

    def _checkpoint_patiently(self, learner: Learner) -> bool:
        """Write the end of the training, and wait for room where the disk is full; False where that was in vain."""
        until, pause_s = time.monotonic() + WAIT_FOR_ROOM_S, ROOM_AFTER_S
        while not self._checkpoint(learner):
            if self._signals or time.monotonic() > until:
                return False
            self.say(f"waiting for disk space, {max(until - time.monotonic(), 0):.0f} s at most; Ctrl-C gives up")
            self._checkpoints.make_room()
            looking_at = time.monotonic() + pause_s
            while time.monotonic() < looking_at and not self._signals:
                time.sleep(0.1)
            pause_s = min(2 * pause_s, ROOM_EVERY_S)
        return True

    def _evaluation_is_due(self, learner: Learner) -> bool:
        if self._resumed_from and learner.timesteps == self._resumed_from:  # it was evaluated before, if at all
            return False
        due, spec = learner.evaluation_due(finished=False), self._run.eval
        if due is not None or spec is None:
            return bool(due)
        every = spec.every or max((self._run.total_timesteps or 100_000) // 10, 1)
        return learner.timesteps // every != self._evaluated_at // every

    def _evaluate(self, learner: Learner) -> None:
        step = self._evaluated_at = learner.timesteps
        self.phase("evaluate")
        try:
            found = learner.evaluate()
        except Abandoned:
            raise
        except Exception:  # it has changed nothing of what is learned
            with suppress(Exception):
                self._checkpoint(learner)
            raise
        if found is None:
            return
        if found.figures:
            self._write_row(found.figures)
        self._evaluated = (step, found.mean)
        self.send("evaluated", step=step, mean=found.mean, spread=found.spread, length=found.length)
        if self._checkpoints.would_be_best(found.mean):
            self._checkpoint(learner, anew=True)

    # -- what a learner is offered ------------------------------------------------------------------------------------

    def completed(self, figures: Figures | None = None) -> None:
        """Count an iteration; log its figures and tell how far it is, unless the library does that by itself."""
        self.iteration += 1
        learner = self._learner
        if figures is None or learner is None:
            return
        if loss := loss_not_finite(figures):
            self.not_finite(loss, ends=False)
        took, made = time.monotonic() - self._iteration_began, learner.timesteps - self._iteration_began_at
        status = learner.status()
        means = {"rollout/ep_rew_mean": status.reward_mean, "rollout/ep_len_mean": status.length_mean}
        self._write_row({"time/fps": made / max(took, 1e-9), **means, **figures})
        self.progress()

    def progress(self, *, every_s: float = 0.0) -> None:
        """Tell the parent how far training is, at most once in so many seconds."""
        now, learner = time.monotonic(), self._learner
        if learner is None or now - self._told < every_s:
            return
        self._told = now
        seconds, status = max(now - self._began, 1e-9), learner.status()
        self.send(
            "progress",
            timesteps=learner.timesteps,
            total=self._task.total_timesteps,
            iteration=self.iteration,
            phase="collect",
            steps_per_s=(learner.timesteps - self._began_at) / seconds,
            reward_mean=status.reward_mean,
            episode_length_mean=status.length_mean,
            seconds=seconds,
            gpu_nbytes=status.gpu_nbytes,
        )

    def not_finite(self, what: str, *, ends: bool) -> None:
        """Take note of a number that is not finite; the next boundary ends the training where it has to."""
        self._finite.saw(what, self._timesteps, ends=ends)

    def say(self, text: str) -> None:
        """Show a line to the user."""
        self.send("say", text=text)

    def phase(self, phase: TrainingPhase) -> None:
        """Tell the parent what begins now."""
        self._phase = phase
        self.send("phase", phase=phase, step=self._timesteps)

    def in_background(self, function: Callable[[], Result], *, needed: bool, within_s: float | None = None) -> Result:
        """Compute in a thread of its own, as `BackgroundThread.run` says."""
        if self._background is None:
            self._background = BackgroundThread(self._signals)
        return self._background.run(function, needed=needed, within_s=within_s)

    @property
    def _elapsed_s(self) -> float:
        return self._elapsed_before_s + time.monotonic() - self._began

    def _write_row(self, figures: Figures) -> None:
        times = {"time/iterations": self.iteration, "time/time_elapsed": self._elapsed_s}
        if self._log is not None:
            self._log.write(self._timesteps, {**times, **figures})


if __name__ == "__main__":
    main()
