"""The training child of brax runs: brax's own training step, driven one at a time, with checkpoints in between.

The parent (`training.supervise`) gets one JSON line per event through a pipe, as from an SB3 run. What differs: one
compiled program does all of a step, collecting and learning, so there is nothing to see within one; and it is given its
inputs for good (they are donated). When memory runs out there is nothing left to redo a step with: the child ends and
says so, and the parent goes on from the last checkpoint with the next knob turned.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

from legroom.backends.brax.devices import device_name, in_use_nbytes, on_gpu, peak_nbytes, preallocation
from legroom.backends.brax.episodes import Episodes
from legroom.backends.brax.facts import is_ppo
from legroom.backends.brax.judging import Judge
from legroom.backends.brax.log import TrainingLog
from legroom.backends.brax.out_of_memory import is_out_of_memory
from legroom.backends.brax.preparing import Prepared, begin_envs, make_ready, use_compilation_cache
from legroom.backends.brax.saving import Saving
from legroom.backends.brax.schedule import evaluation_key, next_keys, schedule_of
from legroom.backends.brax.state import RESETS, Carry, parameters_sha256, restore, without_weak_types
from legroom.backends.brax.stopping import Aside, GivenUp, Stopping
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
from legroom.training.task import TrainTask


def main() -> None:
    """Carry out the task file named on the command line; exit with the code that says how it ended."""
    task = TrainTask.read(Path(sys.argv[1]))
    with EventPipe(task.events_fd) as events:
        code = _train(task, events)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the thread that computes may be within XLA, which does not survive an orderly end


def _train(task: TrainTask, events: EventPipe) -> int:
    trainer: Trainer | None = None
    try:
        trainer = Trainer(task, events)
        return trainer.train()
    except LegroomError as refused:
        events.send("refused", message=str(refused))
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        events.send("stopped", step=trainer.step if trainer else 0, exact=trainer.goes_on_exactly if trainer else None)
        return EXIT_INTERRUPTED
    except Exception as failed:  # the user's environment, or XLA: whatever it raises ends the run, with its words
        text = traceback.format_exc()
        sys.stderr.write(text)
        if trainer is not None:
            trainer.save_what_is_left()
        events.send(
            "failed",
            message=f"{type(failed).__name__}: {failed}",
            traceback=text,
            step=trainer.step if trainer else 0,
            cause="memory" if is_out_of_memory(failed) else "error",
            on_gpu=on_gpu(),
        )
        return EXIT_TRAINING_FAILED


class Trainer:
    """One training from start or checkpoint to its end."""

    def __init__(self, task: TrainTask, events: EventPipe) -> None:
        self.task, self.events, self.run = task, events, task.run
        if not is_ppo(self.run):
            raise BadInput(f"brax's {self.run.algo} cannot be trained yet", path=self.run.source, hint="PPO can")
        self.out = Path(task.out)
        self.stopping = Stopping(lambda: events.send("stopping", step=self.step))
        self.aside = Aside(self.stopping)
        self.schedule = schedule_of(self.run, task.total_timesteps)
        self.saving = Saving(self.out, task.keep, task.checkpoint_every, device_name(), events, self.stopping)
        self.carry: Carry | None = None
        self.step = 0  # environment steps
        self.steps_in_epoch = self.iteration = 0
        self.episodes = Episodes()
        self.evaluations: list[dict[str, float]] = []
        self._evaluated = False  # in this process: it is compiled then
        self._elapsed_before_s = 0.0
        self.why_not_exact = ""

    @property
    def goes_on_exactly(self) -> bool | None:
        """Whether a resume repeats the uninterrupted training to the bit; None where there is nothing to resume."""
        return None if self.saving.pace.written_at_step is None else not self.why_not_exact

    def train(self) -> int:
        """Learn until the total is reached or somebody asks to stop; return the exit code."""
        use_compilation_cache()
        checkpoint = self._last_checkpoint() if self.task.resume else None
        resumed_from = checkpoint.step if checkpoint else 0
        self.events.send(
            "started", step=resumed_from, total=self.task.total_timesteps, seed=self.run.seed, resumed_from=resumed_from
        )
        self.step = self._began_at = resumed_from
        self._began = time.monotonic()
        self.log = TrainingLog(self.out, resumed_from=resumed_from, say=self._say)
        try:
            self._say(f"jax {jax.__version__} on {device_name()}: {preallocation()}")
            prepared = self.aside.do(lambda: make_ready(self.run, begin=checkpoint is None), needed=False)
            self._begin(prepared, checkpoint)
            self._say(prepared.told())
            self._learn(prepared)
        except GivenUp:
            pass
        finally:
            self.log.close()
        return self._end(prepared if self.carry is not None else None)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _learn(self, prepared: Prepared) -> None:
        total = self.schedule.env_steps
        self._began = time.monotonic()  # compiling is told of; it would spoil the steps per second
        if self.schedule.evaluate_every is not None and self.step == 0:
            self._evaluate(prepared)
        while self.step < total and not self.stopping:
            began = time.monotonic()
            self._tell("collect")
            figures = self._one_step(prepared)
            took = time.monotonic() - began
            self._log_step(figures, took)
            if self.stopping:
                return
            if self.saving.is_due(self.step, took):
                self._save()
            every = self.schedule.evaluate_every
            if self.step < total and every is not None and self.iteration % every == 0:
                self._evaluate(prepared)
        if self.step >= total and self.schedule.evaluate_last:
            self._save()  # what is learned comes before what it is worth
            self._evaluate(prepared)

    def _one_step(self, prepared: Prepared) -> dict[str, float]:
        """Make one training step, and what brax does between two of its epochs."""
        carry, keys = self.carry, dict(self.carry.keys) if self.carry else {}
        assert carry is not None
        self.carry = None  # donated: from here on it is gone, whatever happens
        last = self.steps_in_epoch + 1 >= self.schedule.steps_per_epoch
        following = next_keys(keys, epoch_ends=last)

        def compute() -> tuple[Any, Any, dict[str, float]]:
            state, envs, metrics = prepared.step(carry.training_state, carry.env_state, keys["step"])
            metrics = {name: float(value.mean()) for name, value in metrics.items()}  # waits for the step to end
            state, envs = without_weak_types((state, envs))
            if last and self.schedule.resets:
                envs = prepared.reset(envs, following[RESETS])
            return state, self.episodes.take(envs), metrics

        state, envs, metrics = self.aside.do(compute, needed=True)
        self.carry = Carry(state, envs, following)
        self.step, self.iteration = self.carry.step, self.iteration + 1
        self.steps_in_epoch = 0 if last else self.steps_in_epoch + 1
        return metrics

    def _evaluate(self, prepared: Prepared) -> None:
        assert self.carry is not None
        self.events.send("phase", phase="evaluate", step=self.step)
        params, key = prepared.policy_params(self.carry.training_state), evaluation_key(self.run)
        figures = self.aside.do(lambda: prepared.evaluator.evaluate(params, key), needed=False)
        if not self._evaluated:
            self._say(f"evaluation compiled in {prepared.evaluator.compile_s:.0f} s")
            self._evaluated = True
        mean, spread = figures["eval/episode_reward"], figures["eval/episode_reward_std"]
        length = figures["eval/avg_episode_length"]
        self.evaluations.append({"step": self.step, "reward": mean, "length": length})
        self.log.write(self.step, self._times() | figures)
        self.events.send("evaluated", step=self.step, mean=mean, spread=spread, length=length)

    # -- what is told -------------------------------------------------------------------------------------------------

    def _log_step(self, figures: dict[str, float], took: float) -> None:
        row = self._times() | {
            "time/fps": self.schedule.env_steps_each / max(took, 1e-9),
            "rollout/ep_rew_mean": self.episodes.reward_mean,
            "rollout/ep_len_mean": self.episodes.length_mean,
            **{f"training/{name}": value for name, value in figures.items()},
        }
        if (nbytes := in_use_nbytes()) is not None:
            row["memory/bytes_in_use"] = nbytes
        self.log.write(self.step, row)
        self._tell("collect")

    def _times(self) -> dict[str, float | int | None]:
        elapsed_s = self._elapsed_before_s + time.monotonic() - self._began
        return {"time/iterations": self.iteration, "time/time_elapsed": elapsed_s}

    def _tell(self, phase: str) -> None:
        seconds = max(time.monotonic() - self._began, 1e-9)
        self.events.send(
            "progress",
            timesteps=self.step,
            total=self.task.total_timesteps,
            iteration=self.iteration,
            phase=phase,
            steps_per_s=(self.step - self._began_at) / seconds,
            reward_mean=self.episodes.reward_mean,
            episode_length_mean=self.episodes.length_mean,
            seconds=seconds,
            gpu_nbytes=in_use_nbytes(),
        )

    def _say(self, text: str) -> None:
        self.events.send("say", text=text)

    # -- beginning and end --------------------------------------------------------------------------------------------

    def _last_checkpoint(self) -> Checkpoint | None:
        checkpoint = self.saving.checkpoints.latest()
        for path, reason in self.saving.checkpoints.damaged:
            self._say(f"checkpoint {path.name} cannot be used: {reason}")
        if checkpoint is None:
            self._say(f"no good checkpoint in {self.out}: starting over")
        return checkpoint

    def _begin(self, prepared: Prepared, checkpoint: Checkpoint | None) -> None:
        """Have the first carry: as brax begins, or as the checkpoint says."""
        if checkpoint is None:
            self.carry = prepared.first
            return
        found = restore(checkpoint, prepared.first, device_name())
        kept = found.data.get("legroom", {})
        self.iteration, self.steps_in_epoch = int(kept.get("iteration", 0)), int(kept.get("steps_in_epoch", 0))
        self.episodes, self.evaluations = Episodes(kept.get("episodes")), list(kept.get("evaluations", []))
        self._elapsed_before_s = float(kept.get("elapsed_s", 0.0))
        self.why_not_exact = str(kept.get("why_not_exact", "")) or found.why_not_exact
        envs = found.env_state
        if envs is None:
            envs = self.aside.do(lambda: begin_envs(prepared.captured, self.step), needed=False)
        self.carry = Carry(found.training_state, envs, found.keys)
        self.saving.pace.written_at_step = checkpoint.step
        how = f"approximate: {self.why_not_exact}" if self.why_not_exact else "exact"
        self._say(f"resuming from step {checkpoint.step:,} ({how})")

    def _save(self) -> bool:
        assert self.carry is not None
        return self.saving.write(self.carry, self._kept())

    def save_what_is_left(self) -> None:
        """Write a checkpoint where a failure has left something to write: an evaluation donates nothing."""
        if self.carry is not None and self.step:
            with suppress(Exception):
                self._save()

    def _kept(self) -> dict[str, Any]:
        kept = {
            "iteration": self.iteration,
            "elapsed_s": self._times()["time/time_elapsed"],
            "steps_in_epoch": self.steps_in_epoch,
            "episodes": self.episodes.sums,
            "evaluations": self.evaluations,
            "why_not_exact": self.why_not_exact,
        }
        return {"algorithm": self.run.algo, "legroom": kept}

    def _end(self, prepared: Prepared | None) -> int:
        finished = self.step >= self.schedule.env_steps
        if self.carry is None or prepared is None:  # before there was anything to keep
            if self.stopping.retreating:
                return self._retreated()
            raise KeyboardInterrupt
        if self.step and not self.saving.write_last(self.carry, self._kept()) and finished:
            message = f"what was learned after step {self.saving.pace.written_at_step or 0:,} could not be written"
            self.events.send("failed", message=message, step=self.step, cause="disk")
            return EXIT_TRAINING_FAILED
        self.stopping.in_time()
        if self.stopping.retreating and not finished:
            return self._retreated()
        score = self._score() | (self._judgement(prepared, self.carry) if finished else {})
        self.stopping.in_time()
        self.events.send(
            "ended",
            status="finished" if finished else "stopped",
            step=self.step,
            parameters_sha256=parameters_sha256(self.carry.training_state),
            exact=not self.why_not_exact,
            why_not_exact=self.why_not_exact,
            seconds=time.monotonic() - self._began,
            items=prepared.measured_items(self.carry),
            gpu_peak_nbytes=peak_nbytes(),
            score=score,
        )
        return EXIT_GOOD if finished else EXIT_INTERRUPTED

    def _retreated(self) -> int:
        self.events.send("retreated", step=self.step)
        return EXIT_TRAINING_FAILED

    def _judgement(self, prepared: Prepared, carry: Carry) -> dict[str, Any]:
        """Return what the workload makes of the policy, and have it draw one; nothing where nobody waits for it."""
        judge = Judge(self.run, prepared, carry, self._say)
        try:
            if self.task.pictures_every:
                self.aside.do(lambda: judge.draw(self.out / "pictures"), needed=False)
            return self.aside.do(judge.score, needed=False)
        except GivenUp:
            return {}

    def _score(self) -> dict[str, Any]:
        """Return the last episodes of training, and the first and the last evaluation."""
        score: dict[str, Any] = {"episodes": self.episodes.count}
        if self.episodes.count:
            score |= {"reward_mean": self.episodes.reward_mean, "length_mean": self.episodes.length_mean}
        for name, at in (("first_eval", 0), ("eval", -1)):
            if self.evaluations:
                score |= {f"{name}_{figure}": self.evaluations[at][figure] for figure in ("reward", "length")}
        return score


if __name__ == "__main__":
    main()
