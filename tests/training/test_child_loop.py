"""The one training loop around a learner that states only what it must: it steps, stops, goes on, says how it was."""

import os
import signal
from typing import Any

import numpy as np
import pytest

from legroom.errors import EXIT_BAD_INPUT, EXIT_GOOD, EXIT_INTERRUPTED, EXIT_TRAINING_FAILED, BadInput
from legroom.model.learner import Evaluation, FailureCause, Learned, Learner, State
from legroom.model.run import Run
from legroom.model.task import TrainTask
from legroom.training import child
from legroom.training.arrays import parameters_sha256
from legroom.training.checkpoint import Checkpoints
from legroom.training.progress_log import read_progress
from legroom.training.supervise import ChildRecord
from legroom.training.train import _resume

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)


class Counter(Learner):
    """Learns by adding; what it has learned is a function of how often."""

    def __init__(self, task: TrainTask, fails_at: int | None = None) -> None:
        self.timesteps, self.total_timesteps, self.fails_at = 0, task.total_timesteps, fails_at
        self.weights = np.zeros(3, np.float32)

    def step(self):
        if self.timesteps == self.fails_at:
            raise MemoryError("no more")
        self.timesteps += 10
        self.weights = self.weights * 1.5 + np.float32(self.timesteps)
        return {"train/sum": float(self.weights.sum())}

    def capture(self, previous):
        return State({"policy/weights": self.weights}, {"algorithm": "Counter"})

    def restore(self, checkpoint):
        self.weights, self.timesteps = checkpoint.tensors("policy")["weights"], checkpoint.step
        return ""

    def evaluate(self):
        return Evaluation(float(self.timesteps), 0.0)

    def learned(self, *, finished):
        return Learned(parameters_sha256({"weights": self.weights}), score={"finished": finished})


class Toy:
    """The few questions of a backend that the loop asks."""

    fails_at: int | None = None
    refuses = ""

    def learner(self, task, loop):
        if self.refuses:
            raise BadInput(self.refuses)
        return Counter(task, self.fails_at)

    def failure_cause(self, error):
        kinds: Any = {MemoryError: "memory", BadInput: "refused"}
        return FailureCause(kinds.get(type(error), "error"))


class Events:
    """Keeps what is told; sends this process a signal when a step is told that is far enough."""

    def __init__(self, at: int | None = None, number: signal.Signals = signal.SIGTERM) -> None:
        self.told: list[dict[str, Any]] = []
        self.at, self.number = at, number

    def send(self, event, **fields):
        self.told.append({"event": event, **fields})
        if event == "progress" and self.at is not None and fields["timesteps"] >= self.at:
            self.at = None
            os.kill(os.getpid(), self.number)

    def of(self, event):
        return [each for each in self.told if each["event"] == event]


@pytest.fixture
def toy(monkeypatch):
    backend = Toy()
    monkeypatch.setattr(child, "backend_of", lambda run: backend)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield backend
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def train(out, events, **task):
    run = Run.model_validate(
        dict(algo="PPO", env=dict(id="CartPole-v1"), eval=dict(every=40), seed=1, total_timesteps=100)
    )
    out.mkdir(exist_ok=True)
    return child.TrainingLoop(
        TrainTask(run, str(out), "cpu", 100, -1, **{"checkpoint_every": 20, **task}), events
    ).train()


def test_a_learner_that_only_steps_is_trained_logged_evaluated_and_kept(toy, tmp_path):
    events = Events()
    assert train(tmp_path / "run", events) == EXIT_GOOD
    (ended,) = events.of("ended")
    assert (ended["status"], ended["step"], ended["exact"], ended["score"]) == (
        "finished",
        100,
        True,
        {"finished": True},
    )
    assert [each["step"] for each in events.of("checkpoint")] == [20, 40, 60, 80, 100]
    assert [each["step"] for each in events.of("evaluated")] == [40, 80]
    assert [row.timesteps for row in read_progress(tmp_path / "run/progress.csv")] == list(range(10, 101, 10))
    assert [good.step for good in Checkpoints(tmp_path / "run").all()] == [60, 80, 100]


def test_stopped_and_resumed_it_ends_with_the_same_bits(toy, tmp_path):
    whole, first, second = Events(), Events(at=50), Events()
    train(tmp_path / "whole", whole)
    assert train(tmp_path / "run", first) == EXIT_INTERRUPTED
    assert [each["step"] for each in (*first.of("stopping"), *first.of("ended"))] == [50, 50]
    assert train(tmp_path / "run", second, resume=True) == EXIT_GOOD
    assert second.of("started")[0]["resumed_from"] == 50
    assert second.of("say")[0]["text"] == "resuming from step 50 (exact)"
    assert second.of("ended")[0]["parameters_sha256"] == whole.of("ended")[0]["parameters_sha256"]
    assert second.of("progress")[-1]["iteration"] == 10


def test_a_request_to_retreat_ends_with_a_checkpoint_and_without_a_result(toy, tmp_path):
    events = Events(at=30, number=signal.SIGUSR1)
    assert train(tmp_path / "run", events) == EXIT_TRAINING_FAILED
    assert events.told[-1] == {"event": "retreated", "step": 30}
    assert [good.step for good in Checkpoints(tmp_path / "run").all()] == [20, 30]


def test_a_failure_says_what_it_was_and_leaves_the_last_checkpoint(toy, tmp_path):
    toy.fails_at, events = 70, Events()
    assert train(tmp_path / "run", events) == EXIT_TRAINING_FAILED
    (failed,) = events.of("failed")
    assert (failed["message"], failed["cause"], failed["step"]) == ("MemoryError: no more", "memory", 70)
    assert failed["exact"] is True
    assert Checkpoints(tmp_path / "run").latest().step == 60


def test_the_last_good_checkpoint_says_how_to_go_on_after_a_child_that_could_not(tmp_path):
    assert _resume(ChildRecord(), tmp_path) is None
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(10, {}, {"legroom": {"why_not_exact": "the environment cannot give its state"}})
    assert _resume(ChildRecord(), tmp_path) == "approximate"
    newest = checkpoints.write(20, {}, {"legroom": {"why_not_exact": ""}})
    assert _resume(ChildRecord(), tmp_path) == "exact"
    assert _resume(ChildRecord(end={"exact": False}), tmp_path) == "approximate"
    (newest / "state.json").unlink()
    assert _resume(ChildRecord(), tmp_path) == "approximate"


def test_what_cannot_be_trained_is_refused_in_its_own_words(toy, tmp_path):
    toy.refuses, events = "not with this", Events()
    assert train(tmp_path / "run", events) == EXIT_BAD_INPUT
    assert events.told == [{"event": "refused", "message": "not with this"}]


def test_a_disk_that_is_full_is_said_and_waited_for(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(child, "ROOM_AFTER_S", 0.05)
    events, write, full = Events(), Checkpoints.write, [True] * 3

    def write_or_not(self, step, *arguments, **more):
        if step >= 80 and full and full.pop():
            raise BadInput("No space left on device")
        return write(self, step, *arguments, **more)

    monkeypatch.setattr(Checkpoints, "write", write_or_not)
    assert train(tmp_path / "run", events) == EXIT_GOOD
    said = " ".join(each["text"] for each in events.of("say"))
    assert "training goes on" in said and "waiting for room" in said
    assert Checkpoints(tmp_path / "run").latest().step == 100
