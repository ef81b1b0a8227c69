"""The training child of RLlib runs: Ray started or joined, RLlib's algorithm driven one iteration at a time.

The parent (`training.supervise`) gets one JSON line per event through a pipe, as from an SB3 run. RLlib computes in a
thread of its own, so that signals are heard at once. A runner that dies is RLlib's to restart; this process waits no
longer than `STALLED_S` for steps to be made again, and where the learner itself fails, it ends and says so: the parent
goes on from the last checkpoint.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from ray.exceptions import RayError

from legroom.backends.brax.log import TrainingLog
from legroom.backends.brax.stopping import Aside, GivenUp, Stopping
from legroom.backends.rllib.config import building, make_config
from legroom.backends.rllib.deaths import DeathNotices, RunnerRaised, reason_of
from legroom.backends.rllib.results import Result, result_of
from legroom.backends.rllib.saving import Saving
from legroom.backends.rllib.score import judge
from legroom.backends.rllib.state import WHY_NOT_EXACT, WHY_NOT_EXACT_REPLAY, parameters_hash, restore
from legroom.backends.rllib.translation import rllib_plan
from legroom.cluster.capacity import local_cpus, refuse_what_cannot_be_placed, rooms_of_cluster
from legroom.cluster.import_path import importable_by_workers
from legroom.cluster.session import RaySession, ray_session
from legroom.device.out_of_memory import is_out_of_memory
from legroom.environments.env_make import EnvError
from legroom.errors import (
    EXIT_BAD_INPUT,
    EXIT_GOOD,
    EXIT_INTERRUPTED,
    EXIT_TRAINING_FAILED,
    BadInput,
    LegroomError,
)
from legroom.training.checkpoint import Checkpoint
from legroom.training.events import EventPipe
from legroom.training.folder import LOG
from legroom.training.task import TrainTask

BUILT_WITHIN_S = 300.0  # actors of a cluster that others use have to wait for room
STALLED_S = 180.0  # without a single step, though runners were restarted


class Stalled(Exception):
    """No runner makes steps any more."""


def main() -> None:
    """Carry out the task file named on the command line; exit with the code that says how it ended."""
    task = TrainTask.read(Path(sys.argv[1]))
    with EventPipe(task.events_fd) as events:
        code = _train(task, events)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # RLlib's thread may be waiting for an actor that is gone


def _train(task: TrainTask, events: EventPipe) -> int:
    trainer: Trainer | None = None
    try:
        trainer = Trainer(task, events)
        return trainer.train()
    except (LegroomError, EnvError) as refused:
        events.send("refused", message=str(refused))
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        saved = trainer is not None and trainer.saving.pace.written_at_step is not None
        events.send("stopped", step=trainer.step if trainer else 0, exact=False if saved else None)
        return EXIT_INTERRUPTED
    except Exception as failed:  # the user's environment or network, or Ray: whatever it raises ends the run
        text = traceback.format_exc()
        sys.stderr.write(text)
        lost = isinstance(failed, RayError | Stalled | ConnectionError)
        told = f"{type(failed).__name__}: {reason_of(str(failed)) if lost else failed}"
        if isinstance(failed, RunnerRaised):
            told, text = str(failed), failed.traceback
        cause = "memory" if is_out_of_memory(failed) else "worker-died" if lost else "error"
        step = trainer.step if trainer else 0
        events.send("failed", message=told, traceback=text, step=step, cause=cause, on_gpu=False)
        return EXIT_TRAINING_FAILED


class Trainer:
    """One training from start or checkpoint to its end."""

    def __init__(self, task: TrainTask, events: EventPipe) -> None:
        self.task, self.events, self.run = task, events, task.run
        self.out = Path(task.out)
        self.step = self.iteration = 0
        self.stopping = Stopping(lambda: events.send("stopping", step=self.step))
        self.aside = Aside(self.stopping)
        memory = self.run.memory
        self.plan = rllib_plan(self.run, runner_nbytes=memory.runner_bytes, learner_nbytes=memory.learner_bytes)
        self.saving = Saving(self.out, task.keep, task.checkpoint_every, self.plan, events, self.stopping)
        self.last = Result()
        self.why_not_exact = WHY_NOT_EXACT if self.plan.replay_capacity is None else WHY_NOT_EXACT_REPLAY
        self._advanced_at = time.monotonic()

    def train(self) -> int:
        """Learn until the total is reached or somebody asks to stop; return the exit code."""
        checkpoint = self._last_checkpoint() if self.task.resume else None
        self.step = self._began_at = checkpoint.step if checkpoint else 0
        self.events.send(
            "started", step=self.step, total=self.task.total_timesteps, seed=self.run.seed, resumed_from=self.step
        )
        for line in self.plan.said:
            self._say(line)
        with ExitStack() as stack:
            try:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="legroom-rllib-")))
                stack.enter_context(importable_by_workers(self.task.cluster))
                stack.enter_context(self._session())
                refuse_what_cannot_be_placed(self.plan, rooms_of_cluster())
                self.notices = DeathNotices(self._say, self.out / LOG)
                stack.callback(self.notices.close)
                algorithm = self._built(folder)
                self._resume(algorithm, checkpoint)
                log = TrainingLog(self.out, resumed_from=self.step, say=self._say)
                stack.callback(log.close)
                self._learn(algorithm, log)
            except GivenUp:  # before there was anything to keep
                raise KeyboardInterrupt from None
            return self._end(algorithm)

    def _session(self) -> AbstractContextManager[RaySession]:
        store = self.run.memory.object_store_bytes
        return ray_session(self.task.cluster, num_cpus=local_cpus(self.plan), object_store_nbytes=store)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _learn(self, algorithm: Any, log: TrainingLog) -> None:
        self._began = time.monotonic()
        while self.step < self.task.total_timesteps and not self.stopping:
            began = time.monotonic()
            self._tell("collect")
            self._take(self.aside.do(algorithm.train, needed=True))
            took = time.monotonic() - began
            log.write(self.step, self.last.row(self.iteration, time.monotonic() - self._began))
            self._tell("collect")
            if not self.stopping and self.saving.is_due(self.step, took):
                self._save(algorithm)

    def _take(self, results: dict[str, Any]) -> None:
        """Take in what an iteration says, and see to it that there is an end to iterations that say nothing."""
        if self.notices.raised is not None:
            raise self.notices.raised
        before = self.step
        self.last = result_of(results, before=self.last)
        self.step, self.iteration = max(self.last.steps, before), self.iteration + 1
        if self.step > before:
            self._advanced_at = time.monotonic()
        elif time.monotonic() - self._advanced_at > STALLED_S:
            why = self.notices.why_gone()
            raise Stalled(
                f"no env runner has made a step for {STALLED_S:.0f} s, {self.last.healthy} of them answer{why}"
            )

    # -- what is told -------------------------------------------------------------------------------------------------

    def _tell(self, phase: str) -> None:
        seconds = max(time.monotonic() - self._began, 1e-9)
        self.events.send(
            "progress",
            timesteps=self.step,
            total=self.task.total_timesteps,
            iteration=self.iteration,
            phase=phase,
            steps_per_s=(self.step - self._began_at) / seconds,
            reward_mean=self.last.reward_mean,
            episode_length_mean=self.last.length_mean,
            seconds=seconds,
        )

    def _say(self, text: str) -> None:
        self.events.send("say", text=text)

    # -- beginning and end --------------------------------------------------------------------------------------------

    def _built(self, folder: Path) -> Any:
        """Return RLlib's algorithm with all its actors; no longer than it may take.

        Raises:
            BadInput: the cluster has no room for them by then, or RLlib refuses the settings.
            Stalled: it had room when the training began, and has none now.
        """
        config = make_config(self.run, self.plan, self.task.device)

        def build() -> Any:
            with building(folder, self.plan.runner_nbytes):
                return config.build_algo()

        try:
            return self.aside.do(build, needed=False, within_s=BUILT_WITHIN_S)
        except TimeoutError:
            late = f"{self.plan.runners} env runners were not there after {BUILT_WITHIN_S:.0f} s"
            if self.task.resume:  # they were there before: the cluster fails, not what was asked of it
                raise Stalled(f"{late}{self.notices.why_gone()}") from None
            raise BadInput(late, hint="is the cluster busy? ray status tells") from None
        except Exception as failed:
            if self.notices.raised is not None:
                raise self.notices.raised from failed
            if isinstance(failed, ValueError):
                words = " ".join(str(failed).split())[:300]
                raise BadInput(f"RLlib refuses it: {words}", path=self.run.source) from failed
            raise

    def _last_checkpoint(self) -> Checkpoint | None:
        checkpoint = self.saving.checkpoints.latest()
        for path, reason in self.saving.checkpoints.damaged:
            self._say(f"checkpoint {path.name} cannot be used: {reason}")
        if checkpoint is None:
            self._say(f"no good checkpoint in {self.out}: starting over")
        return checkpoint

    def _resume(self, algorithm: Any, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            return
        self.aside.do(lambda: restore(algorithm, checkpoint), needed=False)
        kept = checkpoint.data.get("legroom", {})
        self.iteration = int(kept.get("iteration", 0))
        self.last = Result.from_json(kept.get("last", {}))
        self.saving.pace.written_at_step = checkpoint.step
        self._say(f"resuming from step {checkpoint.step:,} (approximate: {self.why_not_exact})")

    def _save(self, algorithm: Any) -> bool:
        return self.saving.write(algorithm, self.step, {"iteration": self.iteration, "last": self.last.to_json()})

    def _end(self, algorithm: Any) -> int:
        finished = self.step >= self.task.total_timesteps
        kept = {"iteration": self.iteration, "last": self.last.to_json()}
        if self.step and not self.saving.write_last(algorithm, self.step, kept) and finished:
            message = f"what was learned after step {self.saving.pace.written_at_step or 0:,} could not be written"
            self.events.send("failed", message=message, step=self.step, cause="disk")
            return EXIT_TRAINING_FAILED
        self.stopping.in_time()
        if self.stopping.retreating and not finished:
            self.events.send("retreated", step=self.step)
            return EXIT_TRAINING_FAILED
        score = self.last.score() | (judge(self.run, self.plan, algorithm) if finished else {})
        self.events.send(
            "ended",
            status="finished" if finished else "stopped",
            step=self.step,
            parameters_sha256=parameters_hash(algorithm),
            exact=False,
            why_not_exact=self.why_not_exact,
            seconds=time.monotonic() - self._began,
            items={},
            gpu_peak_nbytes=None,
            score=score,
        )
        return EXIT_GOOD if finished else EXIT_INTERRUPTED


if __name__ == "__main__":
    main()
