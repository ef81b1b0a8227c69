"""If this fails, a phase shorter than the pause between two samples is missing in the chart of a training."""

import os

from legroom.training.supervise import ChildRecord, _Listener, _Meter


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
