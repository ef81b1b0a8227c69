"""The process that does the heavy part of a prediction: imports the libraries, makes small updates, traces.

    main() < a pickled list of Request, from `bill.tracing`, which starts it

A process of its own keeps the command light and small: nothing it imports or allocates outlives the prediction, and a
crash in a user's network is a message. One run is worked on in this process; of several, each in a fork of it, so that
the libraries are imported once and no run's leftovers are taken for another's memory.

A few real updates of a run's algorithm are made, and this process's own memory is what is measured. The run has one
environment and declared spaces; the batch is the one to try. The rollout or replay buffer is real but
mostly untouched: pages of `np.zeros` that are only read take no memory.
"""

import gc
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.applied_knobs import turn_knobs
from legroom.backends.sb3.bill.scratch import Answer, Measured, Request
from legroom.backends.sb3.building import HOST_ONLY, class_of_run, find_class, importable, policy_arguments, wrapped
from legroom.backends.sb3.light_imports import COMPILER, import_lightly, is_imported
from legroom.backends.sb3.stored import batch_samples, one_env, pass_samples
from legroom.backends.sb3.trace import trace_run
from legroom.backends.sb3.updates import in_pieces
from legroom.environments.gym_spaces import to_gymnasium
from legroom.errors import Untraceable
from legroom.machine.child_process import queued_s
from legroom.machine.tree import give_back_from
from legroom.model.facts import episode_limit, spaces_of
from legroom.model.run import Run
from legroom.orphan import end_with

MOST_AT_ONCE = 4
# Collect and update until the peak has stopped rising: gradients and optimizer state exist from the second update on,
# and malloc's heap goes on growing for a while as blocks of many sizes come and go.
MAX_ROUNDS = 80
CALM_ROUNDS, LEAST_ROUNDS = 16, 3
# Of the processor; beyond the first, as many rounds without a new peak are enough as there were before it; beyond the
# second, none is waited for.
TIME_S, LONGEST_S = 0.8, 2.5
# For all updates together, in seconds of the processor: a busy machine takes longer for the same. What was found until
# then counts; where it was nothing, two smaller batches are tried.
PATIENCE_S, WALL_S = 8.0, 60.0
SMALLER = (16, 8)  # so much smaller
STEPS = 2  # environment steps per round
REPLAY_ROWS = 32
MAPPED_BLOCK = 65536
LIMIT_BYTES = 6 << 30  # of writable memory, counted virtually: a mistake here must not take the machine along
# Arguments that memory of an update does not depend on and that need objects built
_LEFT_OUT = HOST_ONLY | {
    "buffer_size", "learning_starts", "learning_rate", "clip_range", "clip_range_vf", "n_epochs", "n_steps",
    "batch_size", "train_freq", "gradient_steps",
}  # fmt: skip


class StillEnv(gymnasium.Env[Any, Any]):
    """Shows zeros for ever."""

    def __init__(self, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action
        self.mask_size = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._zeros(self.observation_space), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._zeros(self.observation_space), 0.0, False, False, {}

    def action_masks(self) -> np.ndarray:
        return np.ones(self.mask_size, dtype=bool)

    def _zeros(self, space: gymnasium.Space[Any]) -> Any:
        if isinstance(space, gymnasium.spaces.Dict):
            return {key: self._zeros(sub) for key, sub in space.spaces.items()}
        return np.zeros(space.shape or (), dtype=space.dtype)


def measure_updates(run: Run, batches: list[int]) -> list[Measured]:
    """Return the peak and the remaining bytes of updates at each batch, above a process that made a first tiny one.

    With several batches malloc maps every larger block for itself, as it does with the blocks over 32 MiB of a large
    batch; a small batch's would come from the heap instead, and what the heap loses does not grow with the batch. It
    also gives each block back at once, so that one batch leaves nothing for the next.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, hard))
    tiny = StillEnv(gymnasium.spaces.Box(-1, 1, (4,)), gymnasium.spaces.Discrete(2))
    _without_log(PPO("MlpPolicy", tiny, n_steps=8, batch_size=8, n_epochs=1, device="cpu")).learn(16)
    try:
        with importable(run):
            try:
                return _measured(run, batches)
            except TimeoutError:
                if batches[-1] < SMALLER[0]:
                    raise
            gc.collect()
            return _measured(run, [batches[-1] // divisor for divisor in SMALLER])
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _measured(run: Run, batches: list[int]) -> list[Measured]:
    """Return the same.

    Raises:
        TimeoutError: not a single update of one of the batches was done in time.
    """
    if len(batches) > 1:
        give_back_from(MAPPED_BLOCK)
    before, _ = resident()
    measured = []
    for batch in batches:
        model = build(run, batch)
        with at_most(PATIENCE_S / len(batches), WALL_S / len(batches)):
            peaks, kept = update(model, batch, episode_limit(run))
        warm = warm_rounds(model)
        del model
        # What came on top, once all there is was there, is what malloc loses between blocks.
        risen = max(peaks) - max(peaks[:warm])
        measured.append(Measured(batch, max(peaks) - before, kept - before, len(peaks), risen, warm))
        gc.collect()
    return measured


@contextmanager
def at_most(seconds: float, wall_s: float = WALL_S) -> Iterator[None]:
    """Raise TimeoutError in the block after so many seconds of the processor (between two operators, where Python
    looks up), or of the clock, without those in which it waited for a processor."""

    began = time.monotonic() - queued_s()

    def stop(signum: int, frame: Any) -> None:
        left = wall_s - (time.monotonic() - queued_s() - began)
        if signum == signal.SIGALRM and left > 0:  # it waited for a processor
            signal.setitimer(signal.ITIMER_REAL, left)
            return
        raise TimeoutError(f"it takes more than {seconds:.0f} s of the processor or {wall_s:.0f} s")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, wall_s)}
    before = {number: signal.signal(number, stop) for number in timers}
    for timer, after in timers.values():
        signal.setitimer(timer, after)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def warm_rounds(model: Any) -> int:
    """Return how many rounds it takes until all tensors of an update are there.

    Gradients and optimizer state come with the first one, so that the second has them at its peak. Where the actor is
    updated more seldom than the critics, its own come with the round it waited for.
    """
    return 2 * max(int(getattr(model, "policy_delay", 1)), 1)


def build(run: Run, batch: int) -> Any:
    """Return the run's model with a buffer of just enough rows; `batch` samples go through the networks at once."""
    algorithm = algorithm_of(run)
    piece = None
    if pass_samples(run) < batch_samples(run):  # two micro-batches: from the second on, gradients are added up
        piece, batch = batch, 2 * batch
    observation, action = (to_gymnasium(space) for space in spaces_of(run))
    env = StillEnv(observation, action)
    if algorithm.masked:
        env.mask_size = int(np.sum(getattr(action, "nvec", getattr(action, "n", 0))))
    vec_env = wrapped(run, DummyVecEnv([lambda: env]))
    arguments = {key: value for key, value in run.hyperparams.items() if key not in _LEFT_OUT}
    if algorithm.family == "off-policy":
        arguments |= {"buffer_size": REPLAY_ROWS, "batch_size": batch}
    elif "batch_size" in algorithm.defaults:
        arguments |= {"n_steps": max(batch, 2), "batch_size": batch}
        if "n_epochs" in algorithm.defaults:
            arguments["n_epochs"] = 1
        if "normalize_advantage" in algorithm.defaults and batch == 1:
            arguments["normalize_advantage"] = False  # one sample has no standard deviation
    else:
        arguments |= {"n_steps": batch}
    policy = find_class(run, run.policy.name) if ":" in run.policy.name else run.policy.name
    orthogonal = torch.nn.init.orthogonal_
    try:  # half a minute for layers of 4096, and the memory of an update does not depend on the weights
        torch.nn.init.orthogonal_ = lambda tensor, *_, **__: tensor
        model = class_of_run(run)(policy, vec_env, device="cpu", policy_kwargs=policy_arguments(run), **arguments)
    finally:
        torch.nn.init.orthogonal_ = orthogonal
    if piece is not None:
        in_pieces(model, piece, redoes=False)
    turn_knobs(model, run.memory, run.source)
    return model


def _without_log(model: Any) -> Any:
    """Give the model a logger that writes nothing: SB3's own leaves a folder in the temporary folder."""
    model.set_logger(Logger(folder=None, output_formats=[]))
    return model


def update(model: Any, batch: int, episode: int | None = None) -> tuple[list[int], int]:
    """Collect a few steps and update, again and again; return the peak of each time, and the most kept after one.

    Args:
        episode: the length of all episodes, where it is known; a recurrent update depends on it.

    Raises:
        TimeoutError: the first one was not done in time; of later ones, what was found before counts.
    """
    _, callback = _without_log(model)._setup_learn(1_000)
    peaks: list[int] = []
    kept = calm = 0
    began = time.process_time()
    try:
        least = max(LEAST_ROUNDS, warm_rounds(model))
        while len(peaks) < MAX_ROUNDS and not _is_calm(calm, len(peaks), time.process_time() - began, least):
            now, peak = _one_round(model, callback, batch, episode)
            calm = calm + 1 if peaks and peak <= max(peaks) else 0
            peaks.append(peak)
            kept = max(kept, now)
    except TimeoutError:
        if not peaks:
            raise
        peaks[-1] = max(peaks[-1], resident()[1])
    return peaks, kept


def _is_calm(calm: int, rounds: int, seconds: float, least: int = LEAST_ROUNDS) -> bool:
    """Return whether enough rounds were made, given how many came after the one with the highest peak."""
    if seconds < TIME_S or rounds < least:
        return calm >= CALM_ROUNDS
    return calm >= rounds // 2 or seconds > LONGEST_S


def _one_round(model: Any, callback: Any, batch: int, episode: int | None) -> tuple[int, int]:
    """Collect a few steps and update once; return the resident bytes after it and at its peak."""
    rollout = getattr(model, "rollout_buffer", None)
    if rollout is None:
        model.learning_starts = 0
        model.collect_rollouts(
            model.env, callback, model.train_freq._replace(frequency=STEPS), model.replay_buffer, learning_starts=0
        )
        reset_peak()
        model.train(gradient_steps=1, batch_size=model.batch_size)
    else:
        model.collect_rollouts(model.env, callback, rollout, n_rollout_steps=min(STEPS, rollout.buffer_size))
        rollout.full = True
        if hasattr(rollout, "hidden_states_pi"):
            # Minibatches are cut into sequences, padded to the longest: a long and a short one make twice a batch.
            # Every step of the longest keeps its own buffers, so that short episodes need less than one long one.
            rollout.episode_starts[1 :: min(batch, episode or batch)] = 1
        reset_peak()  # initialising large layers takes more than a small update, but no run's peak is there
        model.train()
    return resident()


def resident() -> tuple[int, int]:
    """Return the resident bytes of this process now and at their peak."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024, int(fields["VmHWM"].split()[0]) * 1024


def reset_peak() -> None:
    """Let the peak start again from now."""
    Path("/proc/self/clear_refs").write_text("5")


def answer(request: Request) -> Answer:
    """Return what tracing and measuring gave; what cannot be done is a reason, never an exception."""
    measured, not_measured = [], ""
    if request.batches:
        # before tracing, while the process holds nothing but the libraries
        try:
            measured = measure_updates(one_env(request.run), request.batches)
        except Exception as wrong:  # a user's classes may raise anything
            words = " ".join(f"{type(wrong).__name__}: {wrong}".split())
            not_measured = f"a small real update could not be made: {words}"
    try:
        net = trace_run(request.run, request.device, card=request.card, values=request.values)
    except Untraceable as reason:
        return Answer(None, str(reason), reason.way, reason.modelled, measured, not_measured)
    net = replace(net, compiles=is_imported(COMPILER))
    return Answer(net, measured=measured, not_measured=not_measured)


def _forked(requests: list[Request]) -> Iterator[Answer]:
    """Yield the answers, each worked out in a fork of this process beside the others, since one may end its process."""
    fork, running = multiprocessing.get_context("fork"), []
    for request in requests:
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=_answer_in_fork, args=(request, theirs, os.getpid()))
        process.start()
        theirs.close()
        running.append((ours, process))
    for ours, process in running:
        try:
            yield ours.recv()
        except EOFError:
            process.join()
            how = f"the process that worked on it ended with exit code {process.exitcode}"
            yield Answer(None, how, not_measured=how)


def _answer_in_fork(request: Request, to: Connection, parent: int) -> None:
    end_with(parent)
    to.send(answer(request))


def main() -> None:
    requests: list[Request] = pickle.load(sys.stdin.buffer)
    answers_to = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a user's module prints is not an answer
    warnings.simplefilter("ignore")
    import_lightly()
    if len(requests) == 1:
        answers = [answer(requests[0])]
    else:
        at_once = min(os.cpu_count() or 1, MOST_AT_ONCE)
        answers = [one for first in range(0, len(requests), at_once) for one in _forked(requests[first:][:at_once])]
    with os.fdopen(answers_to, "wb") as file:
        pickle.dump(answers, file, protocol=pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    main()
