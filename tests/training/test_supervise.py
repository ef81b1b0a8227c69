"""What the supervisor takes from its child: every phase and every event, and that somebody asked for the end."""

import os
import signal

import pytest

from legroom.model.outcome import MemorySample
from legroom.model.run import Run
from legroom.training.request import Training
from legroom.training.supervise import ChildRecord, _Listener, _Meter
from legroom.training.train import Starts, _status, failure_of


class Silent:
    def progress(self, progress):
        pass

    def memory(self, sample):
        pass

    def say(self, line):
        pass


def test_every_phase_is_sampled_when_it_begins_however_short_it_is():
    record = ChildRecord()
    listener = _Listener(record, Silent(), _Meter(os.getpid(), record, Silent(), None), lambda event: None)
    phases = ("collect", "update", "checkpoint", "collect", "update")
    listener.feed(b"".join(b'{"event": "phase", "phase": "%s", "step": 1}\n' % phase.encode() for phase in phases))
    assert [sample.phase for sample in record.samples] == ["collect", "update", "checkpoint"]
    assert record.host_peak_nbytes == max(sample.host_nbytes for sample in record.samples) > 0


def test_the_next_start_goes_on_where_the_last_one_ended():
    """A chart shows all starts one after the other, and the peak of the first still counts."""
    record = ChildRecord()
    record.add(MemorySample(60.0, 1 << 50, None, "collect"))
    record.end, record.interrupted, record.oom_kills, record.step = {"event": "failed"}, True, 1, 640
    record.start()
    assert (record.end, record.interrupted, record.oom_kills, record.step) == ({}, False, 0, 0)
    _Meter(os.getpid(), record, Silent(), None).sample()
    first, second = record.samples
    assert first.seconds == 60.0 <= second.seconds < 120 and record.seconds == second.seconds
    assert record.host_peak_nbytes == 1 << 50


def test_an_interrupt_between_two_events_loses_none():
    record = ChildRecord()

    class Stops(Silent):
        def memory(self, sample):
            raise KeyboardInterrupt

    listener = _Listener(record, Silent(), _Meter(os.getpid(), record, Stops(), None), lambda event: None)
    lines = b'{"event": "phase", "phase": "collect", "step": 1}\n{"event": "ended", "status": "stopped", "step": 7}\n'
    try:
        listener.feed(lines)
    except KeyboardInterrupt:
        listener.feed(b"")
    assert (record.end["status"], record.step) == ("stopped", 7)


@pytest.mark.parametrize(
    "end",
    [
        {"event": "failed", "cause": "worker-died", "message": "worker 0 died"},
        {"event": "failed", "cause": "memory", "message": "no more"},
        {"event": "failed", "cause": "hanging", "message": "an environment hangs", "restart": True},
        {"event": "retreated", "step": 10},
        {},
    ],
    ids=lambda end: end.get("cause") or end.get("event") or "killed",
)
def test_ctrl_c_while_something_fails_is_a_stop_and_not_another_start(end):
    failed = ChildRecord(end=end, exit_code=-9, step=10)
    assert failure_of(failed, None) is not None
    stopped = ChildRecord(end=end, exit_code=-9, step=10, interrupted=True)
    assert failure_of(stopped, None) is None
    assert _status(stopped) == "stopped"


@pytest.mark.parametrize(
    ("exit_code", "end", "repeats"),
    [
        (-signal.SIGSEGV, {}, True),
        (-signal.SIGKILL, {}, False),
        (4, {"event": "failed", "cause": "hanging", "message": "an environment hangs", "restart": True}, True),
        (4, {"event": "failed", "cause": "hanging", "message": "an environment hangs", "restart": False}, None),
        (4, {"event": "failed", "cause": "error", "message": "its own"}, None),
    ],
)
def test_what_ends_a_training_from_outside_does_not_end_it_twice(exit_code, end, repeats):
    failure = failure_of(ChildRecord(exit_code=exit_code, end=end), 20 << 30)
    assert (failure and failure.repeats) is repeats
    run = Run.model_validate({"algo": "PPO", "env": {"id": "CartPole-v1"}})
    if failure is not None:
        starts = Starts(Training(run, "unused", asked=run), None)
        starts.ended()
        assert starts.goes_on(failure, None)
        assert starts.goes_on(failure, None) is not repeats  # without a new checkpoint in between


@pytest.mark.parametrize(("in_use", "goes_on"), [(1 << 30, True), (19 << 30, False)])
def test_a_kill_that_another_process_may_have_caused_does_not_end_a_training_without_knobs(in_use, goes_on):
    """The kernel counts kills for memory per container; this training had 1 GiB of 20, and no knob to turn."""
    record = ChildRecord(exit_code=-signal.SIGKILL, oom_kills=1, host_peak_nbytes=in_use)
    failure = failure_of(record, 20 << 30)
    assert failure.place == "host" and failure.by_others == goes_on
    run = Run.model_validate({"algo": "PPO", "env": {"id": "CartPole-v1"}})
    starts = Starts(Training(run, "unused", asked=run), None)
    starts.record = record
    starts.ended()
    assert starts.goes_on(failure, None) == goes_on
    given_up = "given up: no allowed change is left that saves memory"
    assert starts.retreats[-1].what == ("resumed unchanged" if goes_on else given_up)
