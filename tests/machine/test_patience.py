"""A prediction says the same on a busy machine: waiting for a processor uses up no time limit."""

import subprocess
import sys
import threading
import time

import pytest

from legroom.machine import child_process
from legroom.machine.child_process import call_after, patiently, queued_s


def test_a_process_that_sleeps_is_given_up_in_time() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        began = time.monotonic()
        with pytest.raises(subprocess.TimeoutExpired):
            patiently(child, 0.2, child.wait)
        assert time.monotonic() - began < 30
        child.kill()


def test_time_in_the_queue_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "queued_s", lambda pid="self": 10.0)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"]) as child:
        assert patiently(child, 4.0, child.wait) == 0
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        with pytest.raises(subprocess.TimeoutExpired):  # but there is an end to patience
            patiently(child, 0.1, child.wait)
        child.kill()


def test_what_was_asked_for_later_is_called_unless_it_is_cancelled() -> None:
    called, late = threading.Event(), threading.Event()
    call_after(0.05, called.set)
    call_after(30, late.set)()
    assert called.wait(20)
    assert not late.is_set()


def test_the_queue_is_known_or_taken_for_empty() -> None:
    assert queued_s() >= 0
    assert queued_s(2**22 + 1) == 0
