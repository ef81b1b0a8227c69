"""RLlib's part of a training: Ray started or joined, RLlib's algorithm driven one iteration at a time.

RLlib computes in a thread of its own, so that signals are heard at once. A runner that dies is RLlib's to restart; this
process waits no longer than `STALLED_S` for steps to be made again, and where the learner itself fails, it ends and
says so: the parent goes on from the last checkpoint.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ray.exceptions import RayError
from ray.rllib.core import DEFAULT_MODULE_ID

from legroom.backends.rllib.actors import (
    DeathNotices,
    RunnerRaised,
    local_cpus,
    reason_of,
    refuse_what_cannot_be_placed,
    rooms_of_cluster,
)
from legroom.backends.rllib.config import building, make_config
from legroom.backends.rllib.results import Result, result_of, reward_not_finite
from legroom.backends.rllib.state import WHY_NOT_EXACT, WHY_NOT_EXACT_REPLAY, capture, parameters_hash, restore
from legroom.backends.rllib.translation import RllibPlan, rllib_plan
from legroom.backends.sb3.judging import judgement
from legroom.cluster.session import RayTimedOut, environment, ray_session
from legroom.device.redoing import is_out_of_memory
from legroom.environments.env_make import EnvError, build
from legroom.errors import BadInput, LegroomError
from legroom.model.files import clear_left_over, new_temporary
from legroom.model.learner import FailureCause, Figures, Learned, Learner, Loop, SavedState, State, Status, TrainTask
from legroom.model.run import Run

BUILT_WITHIN_S = 300.0  # actors of a cluster that others use have to wait for room
STALLED_S = 180.0  # without a single step, though runners were restarted


class Stalled(Exception):
    """No runner makes steps any more."""


def failure_cause(error: Exception) -> FailureCause:
    """Return what an exception of a training with RLlib means."""
    lost = isinstance(error, RayError | Stalled | ConnectionError | RayTimedOut)
    if isinstance(error, LegroomError | EnvError) and not lost:
        return FailureCause("refused")
    cause = FailureCause("memory" if is_out_of_memory(error) else "worker-died" if lost else "error")
    if isinstance(error, RunnerRaised):
        return replace(cause, message=str(error), traceback=error.traceback)
    return replace(cause, message=f"{type(error).__name__}: {reason_of(str(error))}") if lost else cause


class RllibLearner(Learner):
    """RLlib's algorithm with its runners, and the Ray that they live in."""

    def __init__(self, task: TrainTask, loop: Loop) -> None:
        self._task, self._loop, self._run = task, loop, task.run
        self.timesteps, self.total_timesteps = 0, task.total_timesteps
        self._plan = rllib_plan(self._run)
        self._algorithm: Any = None
        self._last = Result()
        self._why_not_exact = WHY_NOT_EXACT if self._plan.replay_capacity is None else WHY_NOT_EXACT_REPLAY
        self._advanced_at = time.monotonic()
        self._stack = ExitStack()

    def begin(self) -> None:
        """Start or join Ray, and have RLlib build its algorithm."""
        for line in self._plan.said:
            self._loop.say(line)
        if self._run.env.timeout is not None:
            self._loop.say(f"env.timeout is not watched: after {STALLED_S:.0f} s without a step, it restarts")
        stack, store = self._stack, self._run.memory.object_store_bytes
        clear_left_over(out := Path(self._task.out))  # of a child of this training that was killed
        stack.callback(shutil.rmtree, folder := new_temporary(out), ignore_errors=True)
        cluster = self._task.cluster or "local"
        stack.enter_context(importable_by_workers(cluster))
        stack.enter_context(ray_session(cluster, num_cpus=local_cpus(self._plan), object_store_nbytes=store))
        refuse_what_cannot_be_placed(self._run, self._plan, rooms_of_cluster())
        self._notices = DeathNotices(self._loop.say)
        stack.callback(self._notices.close)
        self._algorithm = self._built(folder)

    def restore(self, checkpoint: SavedState) -> str:
        self.begin()
        self._loop.in_background(lambda: restore(self._algorithm, checkpoint), needed=False)
        self._last = Result.from_json(checkpoint.data.get("legroom", {}).get("last", {}))
        self.timesteps = checkpoint.step
        return self._why_not_exact

    def step(self) -> Figures:
        """Do one iteration, and see to it that there is an end to iterations in which no step is made."""
        results = self._loop.in_background(self._algorithm.train, needed=True)
        if self._notices.raised is not None:
            raise self._notices.raised
        before, earlier = self.timesteps, self._last
        self._last = result_of(results, before=earlier)
        self.timesteps = max(self._last.steps, before)
        if wrong := reward_not_finite(self._last, before=earlier):
            self._loop.not_finite(wrong, ends=True)
        if self.timesteps > before:
            self._advanced_at = time.monotonic()
        elif time.monotonic() - self._advanced_at > STALLED_S:
            why = self._notices.why_gone()
            raise Stalled(
                f"no env runner has made a step for {STALLED_S:.0f} s, {self._last.healthy} of them answer{why}"
            )
        return self._last.row()

    def capture(self, previous: SavedState | None) -> State:
        arrays, data = capture(self._algorithm)
        kept = {"last": asdict(self._last)}
        return State(arrays, data | {"algorithm": self._plan.algo, "legroom": kept}, self._why_not_exact)

    def status(self) -> Status:
        return Status(self._last.reward_mean, self._last.length_mean)

    def evaluation_due(self, *, finished: bool) -> bool:
        return False

    def learned(self, *, finished: bool) -> Learned:
        score = self._last.score() | (judge(self._run, self._plan, self._algorithm) if finished else {})
        return Learned(parameters_hash(self._algorithm), score=score)

    def close(self) -> None:
        self._stack.close()

    def _built(self, folder: Path) -> Any:
        """Return RLlib's algorithm with all its actors; no longer than it may take.

        Raises:
            BadInput: the cluster has no room for them by then, or RLlib refuses the settings.
            Stalled: it had room when the training began, and has none now.
        """
        config = make_config(self._run, self._plan, self._task.device)

        def build() -> Any:
            with building(folder, self._run.memory.runner_bytes):
                return config.build_algo()

        try:
            return self._loop.in_background(build, needed=False, within_s=BUILT_WITHIN_S)
        except TimeoutError:
            late = f"{self._plan.runners} env runners were not there after {BUILT_WITHIN_S:.0f} s"
            if self._task.resume:  # they were there before: the cluster fails, not what was asked of it
                raise Stalled(f"{late}{self._notices.why_gone()}") from None
            raise BadInput(late, hint="is the cluster busy? ray status shows it") from None
        except Exception as failed:
            if self._notices.raised is not None:
                raise self._notices.raised from failed
            if gone := self._notices.gone:  # RLlib takes the answer of one that answers, and there may be none
                raise Stalled(f"{gone} env runners died while RLlib was built{self._notices.why_gone()}") from failed
            if isinstance(failed, ValueError):
                words = " ".join(str(failed).split())[:300]
                raise BadInput(f"RLlib refuses it: {words}", path=self._run.source) from failed
            raise


JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"


@contextmanager
def importable_by_workers(cluster: str) -> Iterator[None]:
    """Have workers of a session that is entered meanwhile import what this process can import.

    A Ray of our own inherits the environment of the process that starts it. On a cluster that runs already, the job
    says it; `ray.init` takes a job's settings from a variable, which is how Ray's own job submission passes them on.
    """
    path = os.pathsep.join(dict.fromkeys(entry for entry in sys.path if entry))
    name, value = "PYTHONPATH", path
    if cluster != "local":
        name, value = JOB_CONFIG, json.dumps({"runtime_env": {"env_vars": {"PYTHONPATH": path}}})
    with environment({name: value}):
        yield


def judge(run: Run, plan: RllibPlan, algorithm: Any) -> dict[str, Any]:
    """Return the workload's own figures by name; none where it has no judge, or wrappers it cannot know of."""
    if run.env.wrappers or run.env.id is None or plan.algo == "SAC":
        return {}
    env = build(run.env.id, run.env.arguments, ())
    try:
        name = env.get_wrapper_attr("score")
    except AttributeError:
        return {}
    finally:
        env.close()
    policy = algorithm.get_module(DEFAULT_MODULE_ID).policy

    def predict(observation: Any, *, deterministic: bool, **masks: Any) -> Any:
        return policy.predict(observation, deterministic=deterministic, **(masks if plan.masked else {}))

    stacked = run.env.frame_stack is not None and run.env.frame_stack > 1
    return judgement(run, name, predict, run.env.frame_stack if stacked else None)
