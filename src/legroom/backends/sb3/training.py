"""SB3's part of a training: environments and algorithm as the run says, SB3's own `learn` driven between boundaries.

An *iteration boundary* is the moment before a rollout is collected, after the update that follows the previous one: the
only moment at which an algorithm's state is complete without a half-filled rollout (`rollout_state` tells of those with
one). `collect_rollouts` is wrapped to see it, because every callback of SB3 comes later: gSDE has drawn its noise by
then, and resuming would draw it again.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger, filter_excluded_keys
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import RolloutReturn
from stable_baselines3.common.vec_env import VecEnv

from legroom.backends.sb3.judging import (
    Pictures,
    PolicyEvaluator,
    cleaned_line,
    measured_items,
    opening_lines,
    score_of,
)
from legroom.backends.sb3.making import make_model, make_vec_env, watch_calls
from legroom.backends.sb3.rollout_state import going_on, may_stop_here, rest_of, stops_within
from legroom.backends.sb3.state import capture, continue_learning, policy_arrays, restore, restore_log
from legroom.backends.sb3.updates import update_of
from legroom.device.redoing import Retreat, is_out_of_memory
from legroom.environments.env_make import EnvError
from legroom.errors import BadInput, LegroomError
from legroom.machine.limits import limit_reached
from legroom.machine.stack_signal import answer_stack_signal
from legroom.model.learner import Evaluation, FailureCause, Learned, Learner, Loop, SavedState, State, Status, TrainTask
from legroom.sharing.messages import WorkerDied
from legroom.training.checkpoint import parameters_sha256
from legroom.training.events import EnvCalls
from legroom.training.finite import all_finite, loss_not_finite
from legroom.training.progress_log import TrainingLog

PROGRESS_EVERY_S = 0.5
CHECKPOINT_REPLAY_EVERY = 10_000  # replay makes checkpoints large, though only what is new is written


def failure_cause(error: Exception) -> FailureCause:
    """Return what an exception of a training with SB3 means."""
    if isinstance(error, WorkerDied | EOFError | BrokenPipeError | ConnectionResetError):  # SB3's have no words
        return FailureCause("worker-died", oom_killed=getattr(error, "oom_killed", False))
    if isinstance(error, LegroomError | EnvError):
        return FailureCause("refused")
    if is_out_of_memory(error):
        return FailureCause("memory", on_gpu=isinstance(error, torch.OutOfMemoryError))
    return FailureCause("error")


class Sb3Learner(Learner):
    """A model of SB3 or sb3-contrib with its environments."""

    def __init__(self, task: TrainTask, loop: Loop) -> None:
        self._task, self._loop, self._run = task, loop, task.run
        self._out = Path(task.out)
        self.total_timesteps = task.total_timesteps
        self._calls = EnvCalls(task.calls_fd)
        answer_stack_signal()
        try:
            self._env = self._watched(lambda: make_vec_env(self._run))
        except (OSError, RuntimeError) as error:
            if (reached := limit_reached(error)) is None:
                raise
            workers = f"{self._run.env.n_envs} environments with workers: {self._run.env.workers}"
            raise BadInput(f"{workers} cannot be started: {reached}") from error
        self.model: Any = make_model(self._run, self._env, task.device)
        self._update = update_of(self.model)
        self._env = self.model.get_env() or self._env  # with SB3's own wrappers around it (VecTransposeImage)
        self._on_policy = isinstance(self.model, OnPolicyAlgorithm)
        self.checkpoint_every = None if self._on_policy else CHECKPOINT_REPLAY_EVERY
        self._on_gpu = self.model.device.type == "cuda"
        self._collecting = False  # a rollout that a checkpoint can hold
        self._evaluator = PolicyEvaluator(self._run, self.model, self._watched)
        self._pictures: Pictures | None = None

    def _watched(self, make: Callable[[], VecEnv]) -> VecEnv:
        """Return the environments that `make` makes, with their calls where the supervisor sees them."""
        with self._calls.calling("build"):
            env = make()
        workers = watch_calls(env, self._calls)
        if workers:
            self._loop.send("workers", envs={str(pid): envs for pid, envs in workers.items()})
        return env

    @property
    def timesteps(self) -> int:  # type: ignore[override]
        done: int = self.model.num_timesteps
        return done

    @property
    def stops_within(self) -> bool:  # type: ignore[override]
        return stops_within(self.model)

    @property
    def is_within(self) -> bool:  # type: ignore[override]
        return self._collecting or self._update_at is not None

    @property
    def place(self) -> int:  # type: ignore[override]
        at = self._update_at
        return 0 if at is None else 1 + len(at["figures"])

    @property
    def _update_at(self) -> dict[str, Any] | None:
        return None if self._update is None else self._update.at

    def begin(self) -> None:
        self._open_log(resumed_from=0)

    def restore(self, checkpoint: SavedState) -> str:
        unlike = restore(self.model, checkpoint)
        self._collecting = self._on_policy and self.model.rollout_buffer.pos > 0 and self._update_at is None
        self._open_log(resumed_from=checkpoint.step)
        restore_log(self.model, checkpoint)
        return unlike

    def _open_log(self, *, resumed_from: int) -> None:
        log = TrainingLog(self._out, resumed_from=resumed_from, say=self._loop.say)
        self.model.set_logger(Logger(str(self._out), [_Rows(log)]))

    def run(self, loop: Loop) -> None:
        """Let SB3 learn, with a boundary before every rollout."""
        for line in opening_lines(self._run, self.model):
            loop.say(line)
        if self._task.pictures_every:
            self._pictures = Pictures(self._env, self._out, self._task.pictures_every, loop.say)
        if self._update is not None:
            self._update.on_retreat = self._retreated
        self._hook_boundaries(loop)
        if self.stops_within:
            self._hook_steps(loop)
        if self._update_at is not None:
            loop.phase("update")
            self.model.train()
        log_interval = 1 if self._on_policy else 4  # SB3's own defaults
        continue_learning(self.model, self.total_timesteps, _Reporter(loop), log_interval=log_interval)

    def _hook_boundaries(self, loop: Loop) -> None:
        collect: Callable[..., Any] = self.model.collect_rollouts
        on_policy = self._on_policy

        def collect_rollouts(*args: Any, **kwargs: Any) -> Any:
            if loss := loss_not_finite(self.model.logger.name_to_value):
                loop.not_finite(loss, ends=False)
            if loop.boundary():
                return False if on_policy else RolloutReturn(0, 0, continue_training=False)
            if on_policy:
                loop.phase("collect")
            rows = self.model.rollout_buffer.pos if self._collecting else 0
            self._collecting = self.stops_within
            with going_on(self.model, rows):
                result = rest_of(collect, rows, args, kwargs) if rows else collect(*args, **kwargs)
            self._collecting = False
            if on_policy:
                loop.phase("update")
            loop.completed()
            return result

        self.model.collect_rollouts = collect_rollouts

    def _hook_steps(self, loop: Loop) -> None:
        """Offer the loop the moments before a minibatch, and before the policy is asked for the actions of a step."""
        policy = self.model.policy
        forward = policy.forward

        def asked(*args: Any, **kwargs: Any) -> Any:
            if self._collecting and may_stop_here(self.model):
                loop.within()
            return forward(*args, **kwargs)

        policy.forward = asked  # a hook of torch's would take ten times as long
        if self._update is not None:
            self._update.between = loop.within

    def between_iterations(self) -> None:
        if self._pictures is not None:
            self._pictures.at_boundary(self._loop.iteration)

    def capture(self, previous: SavedState | None) -> State:
        return capture(self.model, previous=previous, within=self.is_within)

    def status(self) -> Status:
        episodes = self.model.ep_info_buffer or ()
        return Status(
            reward_mean=float(np.mean([episode["r"] for episode in episodes])) if episodes else None,
            length_mean=float(np.mean([episode["l"] for episode in episodes])) if episodes else None,
            gpu_nbytes=torch.cuda.memory_reserved(self.model.device) if self._on_gpu else None,
        )

    def evaluate(self) -> Evaluation:
        return self._evaluator.evaluate()

    def learned(self, *, finished: bool) -> Learned:
        gpu_peak = torch.cuda.max_memory_reserved(self.model.device) if self._on_gpu else None
        cleaned = cleaned_line(self.model)
        if cleaned is not None:
            self._loop.say(cleaned)
        if self._pictures is not None:
            self._pictures.draw("final.png")
        return Learned(
            parameters_sha256=parameters_sha256(policy_arrays(self.model)),
            items=measured_items(self.model, self._env),
            gpu_peak_nbytes=gpu_peak,
            score=score_of(self._run, self.model, self._env, finished=finished),
        )

    def close(self) -> None:
        with suppress(Exception):
            self._env.close()
        self._evaluator.close()

    def _retreated(self, retreat: Retreat) -> None:
        changed = retreat.size != retreat.size_before
        schedule = self._update.micro_batch if self._update is not None and changed else None
        told = {"update": retreat.update, "why": retreat.why, "what": retreat.what, "micro_batch": schedule}
        self._loop.send("retreat", step=self.timesteps, **told)


class _Reporter(BaseCallback):
    """Tells the parent how far training is, at most twice a second, and the loop of numbers that are not finite."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self._loop = loop

    def _on_step(self) -> bool:
        self._loop.progress(every_s=PROGRESS_EVERY_S)
        rewards, seen = self.locals.get("rewards"), self.locals.get("new_obs")
        if isinstance(rewards, np.ndarray) and not all_finite(rewards):
            env = int(np.flatnonzero(~np.isfinite(rewards))[0])
            self._loop.not_finite(f"environment {env} gave the reward {rewards[env]}", ends=True)
        for name, array in seen.items() if isinstance(seen, dict) else (("", seen),):
            if isinstance(array, np.ndarray) and array.dtype.kind == "f" and not all_finite(array):
                env = int(np.argwhere(~np.isfinite(array))[0][0])
                of = f" ({name})" if name else ""
                self._loop.not_finite(f"environment {env} gave an observation{of} that is not finite", ends=False)
        return True

    def _on_rollout_end(self) -> None:
        if isinstance(self.model, OnPolicyAlgorithm):
            self._loop.progress()


class _Rows(KVWriter):
    """SB3's figures in the log of the training."""

    def __init__(self, log: TrainingLog) -> None:
        self._log = log

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        shown = filter_excluded_keys(key_values, key_excluded, "tensorboard")
        figures = {name: float(value) for name, value in shown.items() if isinstance(value, int | float | np.number)}
        self._log.write(step, filter_excluded_keys(key_values, key_excluded, "csv"), shown=figures)

    def close(self) -> None:
        self._log.close()
