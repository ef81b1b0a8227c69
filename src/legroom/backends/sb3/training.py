"""The training child: builds the run's environments and algorithm, learns, and leaves checkpoints behind.

Everything heavy or foreign happens here, in a process of its own: torch, the libraries, the user's environment. The
parent (`training.supervise`) gets one JSON line per event through a pipe; what the environment prints goes to the log.

An *iteration boundary* is the moment before a rollout is collected, after the update that follows the previous one: the
only moment at which an algorithm's state is complete without a half-filled rollout. `collect_rollouts` is wrapped to
see it, because every callback of SB3 comes later: gSDE has drawn its noise by then, and resuming would draw it again.
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import RolloutReturn
from stable_baselines3.common.vec_env import VecEnv

from legroom.backends.sb3.evaluating import Evaluator
from legroom.backends.sb3.log_files import make_logger
from legroom.backends.sb3.making import make_model, make_vec_env
from legroom.backends.sb3.measured_items import measured_items
from legroom.backends.sb3.opening_lines import cleaned_line, opening_lines
from legroom.backends.sb3.pictures import Pictures
from legroom.backends.sb3.score import score_of
from legroom.backends.sb3.state import capture, continue_learning, policy_arrays, restore, restore_log
from legroom.device.out_of_memory import is_out_of_memory
from legroom.device.redoing import Retreat
from legroom.environments.env_make import EnvError
from legroom.errors import (
    EXIT_BAD_INPUT,
    EXIT_GOOD,
    EXIT_INTERRUPTED,
    EXIT_TRAINING_FAILED,
    BadInput,
    LegroomError,
)
from legroom.model.run import Run
from legroom.sharing.failures import WorkerDied
from legroom.training.checkpoint import Checkpoint, Checkpoints, Pace, parameters_sha256
from legroom.training.events import EventPipe
from legroom.training.task import TrainTask

PROGRESS_EVERY_S = 0.5
WAIT_FOR_ROOM_S = 600.0  # at the end of a training, for a disk that is full
ROOM_AFTER_S, ROOM_EVERY_S = 1.0, 30.0  # how often to look, seldom in the end
STOP_WITHIN_S = 7.0  # of ten: closing environments takes its time too
LONG_ITERATION_S, LONG_ITERATION_SHARE = 5.0, 0.05


def main() -> None:
    """Carry out the task file named on the command line; exit with the code that says how it ended."""
    task = TrainTask.read(Path(sys.argv[1]))
    with EventPipe(task.events_fd) as events:
        sys.exit(_train(task, events))


def _train(task: TrainTask, events: EventPipe) -> int:
    trainer: Trainer | None = None
    try:
        trainer = Trainer(task, events)
        return trainer.train()
    except (WorkerDied, EOFError, BrokenPipeError, ConnectionResetError) as died:  # SB3's workers have no words
        return _failed(died, trainer, events, cause="worker-died", oom_killed=getattr(died, "oom_killed", False))
    except (LegroomError, EnvError) as refused:
        events.send("refused", message=str(refused))
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        events.send("stopped", step=trainer.step if trainer else 0)
        return EXIT_INTERRUPTED
    except Exception as failed:  # the user's environment or network: whatever it raises ends the run, with its words
        memory = is_out_of_memory(failed)
        on_gpu = isinstance(failed, torch.OutOfMemoryError)
        return _failed(failed, trainer, events, cause="memory" if memory else "error", on_gpu=on_gpu)
    finally:
        if trainer is not None:
            trainer.close()


def _failed(failed: BaseException, trainer: Trainer | None, events: EventPipe, **more: Any) -> int:
    text = traceback.format_exc()
    sys.stderr.write(text)
    message = f"{type(failed).__name__}: {failed}"
    events.send("failed", message=message, traceback=text, step=trainer.step if trainer else 0, **more)
    return EXIT_TRAINING_FAILED


class Trainer:
    """One training from start or checkpoint to its end."""

    def __init__(self, task: TrainTask, events: EventPipe) -> None:
        self.task, self.events = task, events
        self.run: Run = task.run
        self.out = Path(task.out)
        self.iteration = 0
        self._stops = 0  # how often we were asked to stop
        self._retreating = False  # asked to stop because memory is about to run out
        self._writing = False
        self._boundary_at = time.monotonic()
        self._model: BaseAlgorithm | None = None
        signal.signal(signal.SIGINT, self._asked_to_stop)
        signal.signal(signal.SIGTERM, self._asked_to_stop)
        signal.signal(signal.SIGALRM, self._out_of_time)
        signal.signal(signal.SIGUSR1, self._asked_to_retreat)
        self.checkpoints = Checkpoints(self.out, keep=task.keep)
        self.pace = Pace()
        self.env: VecEnv = make_vec_env(self.run)
        self.model = self._model = make_model(self.run, self.env, task.device)
        self.env = self.model.get_env() or self.env  # with SB3's own wrappers around it (VecTransposeImage)
        self.exact, self.why_not_exact = True, ""
        checkpoint = self._resume() if task.resume else None
        self.resumed_from = checkpoint.step if checkpoint else 0
        self.model.set_logger(make_logger(self.out, resumed_from=self.resumed_from, say=self._say))
        if checkpoint is not None:
            restore_log(self.model, checkpoint)
        self.evaluator = Evaluator(self.run, self.model, events) if self.run.eval is not None else None
        self.pictures = Pictures(self.env, self.out, task.pictures_every, events) if task.pictures_every else None
        self._hook_boundaries()
        if hasattr(self.model, "on_retreat"):
            self.model.on_retreat = self._retreated_in_update

    @property
    def step(self) -> int:
        return self._model.num_timesteps if self._model is not None else 0

    def train(self) -> int:
        """Learn until the total is reached or somebody asks to stop; return the exit code."""
        began = time.monotonic()
        total = self.task.total_timesteps
        self.events.send("started", step=self.step, total=total, seed=self.run.seed, resumed_from=self.resumed_from)
        for line in opening_lines(self.run, self.model):
            self._say(line)
        reporter = _Reporter(self.events, total, lambda: self.iteration)
        continue_learning(self.model, total, reporter, log_interval=self._log_interval())
        finished = self.step >= total
        if not self._last_checkpoint() and finished:
            return self._unsaved()
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._retreating and not finished:
            self.events.send("retreated", step=self.step)
            return EXIT_TRAINING_FAILED
        gpu_peak = _gpu_peak(self.model)
        cleaned = cleaned_line(self.model)
        if cleaned is not None:
            self._say(cleaned)
        if self.pictures is not None:
            self.pictures.draw("final.png")
        self.events.send(
            "ended",
            status="finished" if finished else "stopped",
            step=self.step,
            parameters_sha256=parameters_sha256(policy_arrays(self.model)),
            exact=self.exact,
            why_not_exact=self.why_not_exact,
            seconds=time.monotonic() - began,
            items=measured_items(self.model, self.env),
            gpu_peak_nbytes=gpu_peak,
            score=score_of(self.run, self.model, self.env, finished=finished),
        )
        return EXIT_GOOD if finished else EXIT_INTERRUPTED

    def close(self) -> None:
        """Let go of the environments; nothing of it may hide how the training ended."""
        with suppress(Exception):
            self.env.close()
        if self.evaluator is not None:
            with suppress(Exception):
                self.evaluator.close()

    def _resume(self) -> Checkpoint | None:
        checkpoint = self.checkpoints.latest()
        for path, reason in self.checkpoints.damaged:
            self.events.send("say", text=f"checkpoint {path.name} cannot be used: {reason}")
        if checkpoint is None:
            self.events.send("say", text=f"no good checkpoint in {self.out}: starting over")
            return None
        unlike = restore(self.model, checkpoint)
        self.pace.written_at_step = checkpoint.step
        kept = checkpoint.data.get("legroom", {})
        self.iteration = int(kept.get("iteration", 0))
        self.why_not_exact = str(kept.get("why_not_exact", "")) or unlike
        self.exact = not self.why_not_exact
        how = "exact" if self.exact else f"approximate: {self.why_not_exact}"
        self.events.send("say", text=f"resuming from step {checkpoint.step:,} ({how})")
        return checkpoint

    def _hook_boundaries(self) -> None:
        model: Any = self.model
        collect: Callable[..., Any] = model.collect_rollouts
        on_policy = isinstance(model, OnPolicyAlgorithm)

        def collect_rollouts(*args: Any, **kwargs: Any) -> Any:
            if self.iteration_boundary():
                return False if on_policy else RolloutReturn(0, 0, continue_training=False)
            if on_policy:
                self.events.send("phase", phase="collect", step=self.step)
            result = collect(*args, **kwargs)
            if on_policy:
                self.events.send("phase", phase="update", step=self.step)
            self.iteration += 1
            return result

        model.collect_rollouts = collect_rollouts

    def iteration_boundary(self) -> bool:
        """Do what is done between iterations and return whether to stop."""
        if self._stops or self._retreating:
            return True
        if self.iteration and self._checkpoint_is_due():
            self._checkpoint()
        if self.evaluator is not None:
            self.evaluator.at_boundary()
        if self.pictures is not None:
            self.pictures.at_boundary(self.iteration)
        every = self.run.memory.empty_cache_every
        if every and self.iteration % every == 0 and self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        return False

    def _checkpoint_is_due(self) -> bool:
        every = self.task.checkpoint_every
        took, self._boundary_at = time.monotonic() - self._boundary_at, time.monotonic()
        if every is None and took >= LONG_ITERATION_S and self.pace.last_seconds <= LONG_ITERATION_SHARE * took:
            return self.pace.written_at_step != self.step  # so that a stop in the middle loses nothing before it
        if every is None and not isinstance(self.model, OnPolicyAlgorithm):
            every = 10_000  # replay makes them large, though only what is new is written
        return self.pace.is_due(self.step, every=every)

    def _last_checkpoint(self) -> bool:
        """Write the end of the training, and wait for room where the disk is full; False where that was in vain."""
        until, pause_s = time.monotonic() + WAIT_FOR_ROOM_S, ROOM_AFTER_S
        while True:
            self._checkpoint()
            if self.pace.written_at_step == self.step:
                return True
            if self._stops or self._retreating or time.monotonic() > until:
                return False
            self._say(f"waiting for room, {max(until - time.monotonic(), 0):.0f} s at most; Ctrl-C gives it up")
            self.checkpoints.make_room()
            looking_at = time.monotonic() + pause_s
            while time.monotonic() < looking_at and not self._stops:
                time.sleep(0.1)
            pause_s = min(2 * pause_s, ROOM_EVERY_S)

    def _unsaved(self) -> int:
        message = f"what was learned after step {self.pace.written_at_step or 0:,} could not be written"
        self.events.send("failed", message=message, step=self.step, cause="disk")
        return EXIT_TRAINING_FAILED

    def _say(self, text: str) -> None:
        self.events.send("say", text=text)

    def _checkpoint(self) -> None:
        if self.pace.written_at_step == self.step:
            return
        self.events.send("phase", phase="checkpoint", step=self.step)
        self._writing = True
        try:
            with self.pace.writing(self.step):
                path = self._write_checkpoint()
        except BadInput as error:  # a full disk, as a rule: what is learned so far is more than a reason to stop
            self._say(f"warning: {error}; training goes on")
            self.pace.put_off()
            return
        finally:
            self._writing = False
        self.events.send("checkpoint", step=self.step, path=str(path), seconds=self.pace.last_seconds)

    def _write_checkpoint(self) -> Path:
        state = capture(self.model, previous=self.checkpoints.newest_path())
        self.exact, self.why_not_exact = state.exact, state.why_not_exact
        kept = {"iteration": self.iteration, "why_not_exact": state.why_not_exact}
        return self.checkpoints.write(
            self.step, state.tensors, {**state.data, "legroom": kept}, link=state.link, files=state.files
        )

    def _asked_to_stop(self, number: int, frame: Any) -> None:
        self._stops += 1
        if self._stops > 1 or self._model is None:
            raise KeyboardInterrupt
        self.events.send("stopping", step=self.step)
        # An iteration may take an hour. Its beginning is in the last checkpoint; what it has done since is given up.
        signal.setitimer(signal.ITIMER_REAL, STOP_WITHIN_S)

    def _out_of_time(self, number: int, frame: Any) -> None:
        if self._writing:  # a checkpoint that is on its way is worth the wait
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            return
        raise KeyboardInterrupt

    def _asked_to_retreat(self, number: int, frame: Any) -> None:
        self._retreating = True

    def _retreated_in_update(self, retreat: Retreat) -> None:
        changed = retreat.size != retreat.size_before
        schedule = self.model.micro_batch if changed else None  # type: ignore[attr-defined]
        self.events.send(
            "retreat", step=self.step, update=retreat.update, why=retreat.why, what=retreat.what, micro_batch=schedule
        )

    def _log_interval(self) -> int:
        return 1 if isinstance(self.model, OnPolicyAlgorithm) else 4  # SB3's own defaults


class _Reporter(BaseCallback):
    """Tells the parent how far training is, at most twice a second."""

    def __init__(self, events: EventPipe, total: int, iteration: Callable[[], int]) -> None:
        super().__init__()
        self._events, self._total, self._iteration = events, total, iteration
        self._began = self._told = time.monotonic()
        self._began_at = 0

    def _on_training_start(self) -> None:
        self._began, self._began_at = time.monotonic(), self.model.num_timesteps

    def _on_step(self) -> bool:
        now = time.monotonic()
        if now - self._told >= PROGRESS_EVERY_S:
            self._told = now
            self._tell(now)
        return True

    def _on_rollout_end(self) -> None:
        if isinstance(self.model, OnPolicyAlgorithm):
            self._tell(time.monotonic())

    def _tell(self, now: float) -> None:
        episodes = self.model.ep_info_buffer or ()
        seconds = max(now - self._began, 1e-9)
        self._events.send(
            "progress",
            timesteps=self.model.num_timesteps,
            total=self._total,
            iteration=self._iteration(),
            phase="collect",
            steps_per_s=(self.model.num_timesteps - self._began_at) / seconds,
            reward_mean=float(np.mean([episode["r"] for episode in episodes])) if episodes else None,
            episode_length_mean=float(np.mean([episode["l"] for episode in episodes])) if episodes else None,
            seconds=seconds,
            gpu_nbytes=_gpu_now(self.model),
        )


def _gpu_now(model: BaseAlgorithm) -> int | None:
    return torch.cuda.memory_reserved(model.device) if model.device.type == "cuda" else None


def _gpu_peak(model: BaseAlgorithm) -> int | None:
    return torch.cuda.max_memory_reserved(model.device) if model.device.type == "cuda" else None


if __name__ == "__main__":
    main()
