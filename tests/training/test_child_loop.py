"""The one training loop around a learner that states only what it must: it steps, stops, goes on, says how it was."""

import os
import signal
from typing import Any

import numpy as np
import pytest

from legroom.errors import EXIT_BAD_INPUT, EXIT_GOOD, EXIT_INTERRUPTED, EXIT_TRAINING_FAILED, BadInput
from legroom.model.learner import Evaluation, FailureCause, Learned, Learner, State, TrainTask
from legroom.model.run import Run
from legroom.training import checkpoint_pace, child
from legroom.training.arrays import parameters_sha256
from legroom.training.checkpoint import Checkpoints, Pace
from legroom.training.finite import count_not_finite
from legroom.training.progress_log import read_progress
from legroom.training.supervise import ChildRecord, stop_words
from legroom.training.train import _newest, _resume

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
        self.is_within = self.timesteps % 10 > 0
        return ""

    def evaluate(self):
        return Evaluation(float(self.timesteps), 0.0)

    def learned(self, *, finished):
        return Learned(parameters_sha256({"weights": self.weights}), score={"finished": finished})


class Toy:
    """A trainer, and the backend that it is a part of."""

    fails_at: int | None = None
    refuses = ""

    @property
    def trainer(self):
        return self

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


def train(out, events, keep=3, **task):
    run = Run.model_validate(
        dict(algo="PPO", env=dict(id="CartPole-v1"), eval=dict(every=40), seed=1, total_timesteps=100,
             checkpoint=dict(keep=keep))
    )  # fmt: skip
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
    assert [each["step"] for each in events.of("checkpoint")] == [0, 20, 40, 60, 80, 100]
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
    assert [good.step for good in Checkpoints(tmp_path / "run").all()] == [0, 20, 30]


def test_a_failure_says_what_it_was_and_leaves_the_last_checkpoint(toy, tmp_path):
    toy.fails_at, events = 70, Events()
    assert train(tmp_path / "run", events) == EXIT_TRAINING_FAILED
    (failed,) = events.of("failed")
    assert (failed["message"], failed["cause"], failed["step"]) == ("MemoryError: no more", "memory", 70)
    assert failed["exact"] is True
    assert Checkpoints(tmp_path / "run").latest().step == 60


def test_the_last_good_checkpoint_says_how_to_go_on_after_a_child_that_could_not(tmp_path):
    assert _resume(ChildRecord(), _newest(tmp_path)) is None
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(10, {}, {"legroom": {"why_not_exact": "the environment cannot give its state"}})
    assert _resume(ChildRecord(), _newest(tmp_path)) == "approximate"
    newest = checkpoints.write(20, {}, {"legroom": {"why_not_exact": ""}})
    assert _resume(ChildRecord(), _newest(tmp_path)) == "exact"
    assert _resume(ChildRecord(end={"exact": False}), _newest(tmp_path)) == "approximate"
    (newest / "state.json").unlink()
    assert _resume(ChildRecord(), _newest(tmp_path)) == "approximate"


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
    assert "training continues" in said and "waiting for disk space" in said
    assert Checkpoints(tmp_path / "run").latest().step == 100


def spoil(monkeypatch, at, value=np.nan, **seen):
    """Have the learner's weights turn into `value` at a step, after something was `seen` at another."""
    step = Counter.step

    def spoiled(self):
        figures = step(self)
        if self.timesteps == seen.get("loss_at"):
            figures["train/loss"] = float("nan")
        if self.timesteps >= at:
            self.weights[1] = value
        return figures

    monkeypatch.setattr(Counter, "step", spoiled)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_never_kept_and_ends_with_its_story(toy, tmp_path, monkeypatch, value):
    spoil(monkeypatch, at=70, value=value)
    events = Events()
    assert train(tmp_path / "run", events) == EXIT_TRAINING_FAILED
    (failed,) = events.of("failed")
    assert failed["cause"] == "not-finite"
    kind = "NaN" if np.isnan(value) else "infinite"
    assert failed["message"] == f"not finite: policy/weights holds 1 {kind} of 3 numbers (finite at step 60)"
    assert [good.step for good in Checkpoints(tmp_path / "run").all()] == [20, 40, 60]


def test_a_resume_goes_on_from_before_the_first_suspicion(toy, tmp_path, monkeypatch):
    whole, events, again = Events(), Events(), Events()
    train(tmp_path / "whole", whole)
    with monkeypatch.context() as spoiled:
        spoil(spoiled, at=90, loss_at=50)
        assert train(tmp_path / "run", events, keep=1) == EXIT_TRAINING_FAILED
    assert "train/loss was nan at step 50" in events.of("failed")[0]["message"]
    assert sorted(path.name[-3:] for path in (tmp_path / "run/checkpoints").glob("step-*")) == ["040"]
    assert sorted(path.name[-3:] for path in (tmp_path / "run/checkpoints").glob("aside-*")) == ["080"]
    assert train(tmp_path / "run", again, resume=True) == EXIT_GOOD
    assert again.of("started")[0]["resumed_from"] == 40
    assert again.of("ended")[0]["parameters_sha256"] == whole.of("ended")[0]["parameters_sha256"]


def test_a_checkpoint_with_nan_from_an_earlier_version_is_passed_over(toy, tmp_path):
    checkpoints = Checkpoints(tmp_path / "run")
    for step, number in ((10, 1.0), (20, np.nan)):
        checkpoints.write(step, {"policy/weights": np.full(3, number, np.float32)}, {"legroom": {}})
    assert checkpoints.latest().step == 10
    assert checkpoints.damaged[0][1] == "policy/weights holds NaN"


def test_infinities_that_a_network_is_made_with_are_its_own(toy, tmp_path, monkeypatch):
    capture = Counter.capture
    mask = np.array([0.0, -np.inf], np.float32)

    def masked(self, previous):
        state = capture(self, previous)
        return State({**state.tensors, "policy/mask": mask}, state.data)

    monkeypatch.setattr(Counter, "capture", masked)
    assert train(tmp_path / "run", Events()) == EXIT_GOOD


def test_the_best_by_evaluation_are_kept_beside_the_last(toy, tmp_path, monkeypatch):
    means = {20: 5.0, 40: 9.0, 60: 3.0, 80: 7.0}
    monkeypatch.setattr(Counter, "evaluate", lambda self: Evaluation(means[self.timesteps], 0.0))
    events = Events()
    run = dict(algo="PPO", env=dict(id="CartPole-v1"), eval=dict(every=20), seed=1, total_timesteps=100,
               checkpoint=dict(keep=1, keep_best=2))  # fmt: skip
    task = TrainTask(Run.model_validate(run), str(tmp_path), "cpu", 100, -1, checkpoint_every=30)
    assert child.TrainingLoop(task, events).train() == EXIT_GOOD
    assert [good.step for good in Checkpoints(tmp_path).all()] == [40, 80, 100]
    assert Checkpoints(tmp_path, keep_best=2).best() == [(40, 9.0), (80, 7.0)]


def test_numbers_that_are_not_finite_are_counted_in_every_dtype():
    bits = np.array([0x7F80, 0x7FC0, 0x3F80, 0xFF80], np.uint16).view([("bfloat16", "<u2")])
    assert count_not_finite(bits) == (1, 2)
    assert count_not_finite(np.full(3, 3e38, np.float32)) == (0, 0)  # their sum is not finite
    assert count_not_finite(np.array([np.nan, np.inf, 1], np.float16)) == (1, 1)
    assert count_not_finite(np.arange(3)) == (0, 0)


def test_a_checkpoint_that_the_disk_does_not_give_is_one_line(toy, tmp_path, monkeypatch):
    train(tmp_path / "run", Events(at=40))
    state = next((tmp_path / "run/checkpoints").iterdir()) / "replay.bin"

    def restore(self, checkpoint):
        raise OSError(5, "Input/output error", str(checkpoint.path / state.name))

    monkeypatch.setattr(Counter, "restore", restore)
    events = Events()
    assert train(tmp_path / "run", events, resume=True) == EXIT_BAD_INPUT
    assert "replay.bin cannot be read: Input/output error" in events.of("refused")[0]["message"]


class Slow(Counter):
    """Takes ten steps in an iteration, between which its state is complete."""

    stops_within = True
    is_within = False

    def run(self, loop):
        while self.timesteps < self.total_timesteps and not (not self.is_within and loop.boundary()):
            self.timesteps += 1
            self.weights = self.weights * 1.5 + np.float32(self.timesteps)
            self.is_within = self.timesteps % 10 > 0
            loop.progress()
            if self.is_within:
                loop.within()
            else:
                loop.completed({})


def test_it_stops_and_goes_on_within_an_iteration(toy, tmp_path, monkeypatch):
    """If this fails, Ctrl-C in an iteration of hours loses hours, or what is learned depends on it."""
    monkeypatch.setattr(Toy, "learner", lambda self, task, loop: Slow(task))
    whole, stopped, again = Events(), Events(at=37), Events()
    train(tmp_path / "whole", whole)
    assert train(tmp_path / "run", stopped) == EXIT_INTERRUPTED
    (stopping,) = stopped.of("stopping")
    assert stopping["within"] and stopping["last"] == 20
    said = "stopping after this step, with a checkpoint (if it takes longer than 7 s: back to step 20"
    assert stop_words(stopping).startswith(said)
    assert Checkpoints(tmp_path / "run").latest().step == 37
    assert train(tmp_path / "run", again, resume=True) == EXIT_GOOD
    assert again.of("ended")[0]["parameters_sha256"] == whole.of("ended")[0]["parameters_sha256"]
    assert not any(good.passing for good in Checkpoints(tmp_path / "run").all())


def test_within_an_iteration_the_last_checkpoint_is_never_old(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(Toy, "learner", lambda self, task, loop: Slow(task))
    monkeypatch.setattr(checkpoint_pace, "OLDEST_S", 0.0)
    monkeypatch.setattr(checkpoint_pace, "OLDEST_SHARE", 1e9)
    events = Events()
    assert train(tmp_path / "run", events, checkpoint_every=None) == EXIT_GOOD
    assert [each["step"] for each in events.of("checkpoint")] == list(range(101))
    assert len(Checkpoints(tmp_path / "run").all()) == 3  # those within iterations take no place of the others
    monkeypatch.undo()
    clock = iter([0.0, 0.0, 3.0, 50.0, 51.0, 70.0]).__next__
    pace = Pace(clock=clock)
    with pace.writing(1, within=True):
        pass
    assert not pace.is_due(2, within=True)  # 47 s later not, since it took 3 s
    assert pace.is_due(2)  # one without the rollout may be quicker
    assert pace.is_due(2, within=True)  # 67 s later it is
