"""brax's part of a training: its own training step, driven one at a time.

One compiled program does all of an iteration, collecting and learning, so there is nothing to see within one; and it is
given its inputs for good (they are donated). When memory runs out there is nothing left to redo a step with: the child
ends and says so, and the parent goes on from the last checkpoint with the next knob turned.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from legroom.backends.brax.envs import Episodes
from legroom.backends.brax.preparing import Prepared, begin_envs, make_ready, use_compilation_cache
from legroom.backends.brax.schedule import next_keys, schedule_of
from legroom.backends.brax.state import RESETS, Carry, capture, parameters_sha256, restore, without_weak_types
from legroom.environments.objects import resolve_object
from legroom.errors import LegroomError
from legroom.model.learner import (
    Evaluation,
    FailureCause,
    Figures,
    Learned,
    Learner,
    Loop,
    SavedState,
    State,
    Status,
    TrainTask,
)
from legroom.model.run import Run
from legroom.training.background import Abandoned

TIME_LIMIT_S = 60.0  # of a judge
# XLA's own word, and C++'s: the last while tracing and compiling
OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory", "bad_alloc")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the exception is a failed allocation; what a program had been given (donated) is gone then."""
    if isinstance(error, MemoryError):
        return True
    # jax's own exception is a RuntimeError, and what its bindings raise is nothing more
    return isinstance(error, RuntimeError) and any(word in str(error) for word in OUT_OF_MEMORY)


def failure_cause(error: Exception) -> FailureCause:
    """Return what an exception of a training with brax means."""
    if isinstance(error, LegroomError):
        return FailureCause("refused")
    return FailureCause("memory" if is_out_of_memory(error) else "error", on_gpu=on_gpu())


class BraxLearner(Learner):
    """brax's compiled training step, and what one step hands to the next."""

    def __init__(self, task: TrainTask, loop: Loop) -> None:
        self._task, self._loop, self._run = task, loop, task.run
        self._schedule = schedule_of(self._run, task.total_timesteps)
        self.timesteps, self.total_timesteps = 0, self._schedule.env_steps
        self._prepared: Prepared
        self._carry: Carry | None = None
        self._steps_in_epoch = 0
        self._episodes = Episodes()
        self._evaluations: list[dict[str, float]] = []
        self._why_not_exact = ""

    def begin(self) -> None:
        self._prepare(begin=True)
        self._carry = self._prepared.first
        self.timesteps = self._carry.step  # SAC has filled its replay buffer

    def restore(self, checkpoint: SavedState) -> str:
        self._prepare(begin=False)
        found = restore(checkpoint, self._prepared.first, device_name())
        kept = found.data.get("legroom", {})
        self._steps_in_epoch = int(kept.get("steps_in_epoch", 0))
        self._episodes, self._evaluations = Episodes(kept.get("episodes")), list(kept.get("evaluations", []))
        self._why_not_exact = str(kept.get("why_not_exact", "")) or found.why_not_exact
        envs = found.env_state
        if envs is None:
            captured = self._prepared.captured
            envs = self._loop.in_background(lambda: begin_envs(captured, checkpoint.step), needed=False)
        self._carry, self.timesteps = Carry(found.training_state, envs, found.keys, found.replay), checkpoint.step
        return self._why_not_exact

    def _prepare(self, *, begin: bool) -> None:
        use_compilation_cache()
        self._loop.say(f"jax {jax.__version__} on {device_name()}")
        if self._run.env.timeout is not None:
            self._loop.say("env.timeout is not watched: environments are part of brax's compiled step")
        steps = self._schedule.steps_at_once
        self._prepared = self._loop.in_background(lambda: make_ready(self._run, begin=begin, steps=steps), needed=False)
        self._loop.say(self._prepared.told())

    def step(self) -> Figures:
        """Make the training steps of one iteration, and what brax does between two of its epochs."""
        carry, prepared = self._carry, self._prepared
        assert carry is not None
        keys = dict(carry.keys)
        self._carry = None  # donated: from here on it is gone, whatever happens
        steps = self._schedule.steps_at_once
        last = self._steps_in_epoch + steps >= self._schedule.steps_per_epoch
        following = next_keys(self._run, keys, steps=steps, epoch_ends=last)

        def compute() -> tuple[Carry, dict[str, float]]:
            *found, metrics = prepared.step(*carry.arguments, keys["step"])
            metrics = {name: float(value.mean()) for name, value in metrics.items()}  # waits for the step to end
            state, envs, *replay = without_weak_types(tuple(found))
            if last and self._schedule.resets:
                envs = prepared.reset(envs, following[RESETS])
            return Carry(state, self._episodes.take(envs), following, *replay), metrics

        self._carry, metrics = self._loop.in_background(compute, needed=True)
        self.timesteps = self._carry.step
        self._steps_in_epoch = 0 if last else self._steps_in_epoch + steps
        figures = {f"training/{name}": value for name, value in metrics.items()}
        nbytes = in_use_nbytes()
        return figures if nbytes is None else figures | {"memory/bytes_in_use": nbytes}

    def capture(self, previous: SavedState | None) -> State:
        assert self._carry is not None
        arrays, described = capture(self._carry, device_name())
        kept = {
            "steps_in_epoch": self._steps_in_epoch,
            "episodes": self._episodes.sums,
            "evaluations": self._evaluations,
        }
        return State(arrays, described | {"algorithm": self._run.algo, "legroom": kept}, self._why_not_exact)

    def status(self) -> Status:
        return Status(self._episodes.reward_mean, self._episodes.length_mean, in_use_nbytes())

    def evaluation_due(self, *, finished: bool) -> bool:
        """Return whether brax would evaluate now: also before anything is learned."""
        every = self._schedule.evaluate_every
        return self._schedule.evaluate_last if finished else every is not None and self._loop.iteration % every == 0

    def evaluate(self) -> Evaluation:
        assert self._carry is not None
        prepared, state = self._prepared, self._carry.training_state
        if "evaluator" not in vars(prepared):
            self._loop.say("XLA compiles the evaluation")
        figures = self._loop.in_background(lambda: prepared.evaluate(state), needed=False)
        mean, spread = figures["eval/episode_reward"], figures["eval/episode_reward_std"]
        length = figures["eval/avg_episode_length"]
        self._evaluations.append({"step": self.timesteps, "reward": mean, "length": length})
        return Evaluation(mean, spread, length, figures)

    def learned(self, *, finished: bool) -> Learned:
        assert self._carry is not None
        score = self._score() | (self._judgement(self._carry) if finished else {})
        return Learned(
            parameters_sha256=parameters_sha256(self._carry.training_state),
            items=self._prepared.measured_items(self._carry),
            gpu_peak_nbytes=peak_nbytes(),
            score=score,
        )

    def _judgement(self, carry: Carry) -> dict[str, Any]:
        """Return what the workload makes of the policy, and have it draw one; nothing where nobody waits for it."""
        judge = Judge(self._run, self._prepared, carry, self._loop.say)
        try:
            if self._task.pictures_every:
                pictures = Path(self._task.out) / "pictures"
                self._loop.in_background(lambda: judge.draw(pictures), needed=False)
            return self._loop.in_background(judge.score, needed=False)
        except Abandoned:
            return {}

    def _score(self) -> dict[str, Any]:
        """Return the last episodes of training, and the first and the last evaluation."""
        score: dict[str, Any] = {"episodes": self._episodes.count}
        if self._episodes.count:
            score |= {"reward_mean": self._episodes.reward_mean, "length_mean": self._episodes.length_mean}
        for name, at in (("first_eval", 0), ("eval", -1)):
            if self._evaluations:
                score |= {f"{name}_{figure}": self._evaluations[at][figure] for figure in ("reward", "length")}
        return score


class Judge:
    """What the workload makes of a trained policy: numbers by name, and pictures; what goes wrong there is a remark.

    Its environment names its judge in the attribute `score`, as for SB3 (`backends.sb3.judging`): a function that gets
    a function from observation and action mask to action, the environment's arguments and a time limit. Its attribute
    `picture` names one that gets the same function and arguments, and the path of the GIF to write.
    """

    def __init__(self, run: Run, prepared: Prepared, carry: Carry, say: Callable[[str], None]) -> None:
        self._run, self._say = run, say
        self._env = prepared.captured.env.unwrapped
        params = prepared.policy_params(carry.training_state)
        policy = jax.jit(prepared.captured.make_policy(params, deterministic=True))
        self._policy, self._key = policy, jax.random.PRNGKey(0)  # deterministic: the key plays no part

    def act(self, observation: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Return the action for one observation; continuous ones have no masks."""
        actions, _ = self._policy(np.asarray(observation, np.float32)[None], self._key)
        action: np.ndarray = np.asarray(actions)[0]
        return action

    def score(self) -> dict[str, Any]:
        name = getattr(self._env, "score", None)
        if not isinstance(name, str):
            return {}
        judge = resolve_object(name)
        return self._asked("score", lambda: judge(self.act, self._kwargs, time_limit_s=TIME_LIMIT_S)) or {}

    def draw(self, folder: Path) -> None:
        """Write a film of the policy, if the environment knows how."""
        name = getattr(self._env, "picture", None)
        if not isinstance(name, str):
            self._say("--visualization: this environment has no `picture`; nothing is drawn")
            return
        folder.mkdir(exist_ok=True)
        self._asked("picture", lambda: resolve_object(name)(self.act, self._kwargs, folder / "final.gif"))

    @property
    def _kwargs(self) -> dict[str, Any]:
        return dict(self._run.env.kwargs)

    def _asked(self, what: str, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Exception as failed:  # somebody else's code must not end a training that is over
            self._say(f"{self._run.env.id}'s {what}: {type(failed).__name__}: {failed}")
            return None


def device_name() -> str:
    """Return platform and kind of the device: a program may compute other last bits on another."""
    device = jax.local_devices()[0]
    return device.platform if device.platform == "cpu" else f"{device.platform} {device.device_kind}"


def on_gpu() -> bool:
    platform: str = jax.local_devices()[0].platform
    return platform != "cpu"


def in_use_nbytes() -> int | None:
    """Return the bytes that live on the device now; None where it does not tell (the host)."""
    return _stat("bytes_in_use")


def peak_nbytes() -> int | None:
    return _stat("peak_bytes_in_use")


def _stat(name: str) -> int | None:
    stats = jax.local_devices()[0].memory_stats()  # None on the host
    return int(stats[name]) if stats and name in stats else None
