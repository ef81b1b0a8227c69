"""If this fails, a training that is told to stop in the very moment in which it says something never ends."""

import json
import os
import signal
from typing import Any

import pytest

from legroom.training.events import EventPipe


def test_a_handler_may_say_something_while_something_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    events, write = EventPipe(writing), os.write

    def interrupted_write(descriptor: int, data: Any) -> int:
        monkeypatch.setattr(os, "write", write)
        written = write(descriptor, data)
        signal.raise_signal(signal.SIGUSR2)  # in the midst of it, as a scheduler's signal may come
        return written

    def too_late(*_: object) -> None:
        raise TimeoutError("it waits for itself")

    monkeypatch.setattr(os, "write", interrupted_write)
    before = signal.signal(signal.SIGUSR2, lambda *_: events.send("stopping"))
    alarm = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(5)
    try:
        events.send("checkpoint", step=7)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGUSR2, before)
        os.close(writing)
    with os.fdopen(reading) as lines:
        assert [json.loads(line)["event"] for line in lines] == ["checkpoint", "stopping"]
