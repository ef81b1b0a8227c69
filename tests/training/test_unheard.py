"""If this fails, a training whose supervisor was killed stays for ever where its environment swallows the signal."""

import os
import signal
import subprocess
import sys
import time

import pytest

CHILD = """
import os, signal, sys, time
from legroom import orphan
orphan.UNHEARD_S = 0.5
signal.signal(signal.SIGTERM, signal.SIG_IGN)
began = time.monotonic()
orphan.end_unheard(int(sys.argv[1]), lambda: time.monotonic() - began < float(sys.argv[2]))
print("ready", flush=True)
while True:
    try:
        time.sleep(60)
    except BaseException:
        continue
"""


@pytest.mark.parametrize("saves_s", [0.0, 3.0])
def test_a_child_that_nobody_hears_is_killed_after_a_while_but_not_while_it_saves(saves_s):
    reading, writing = os.pipe()
    command = [sys.executable, "-c", CHILD, str(writing), str(saves_s)]
    child = subprocess.Popen(command, pass_fds=[writing], stdout=subprocess.PIPE)
    began = time.monotonic()
    try:
        os.close(writing)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        time.sleep(1.0)
        assert child.poll() is None  # somebody listens
        os.close(reading)
        assert child.wait(30) == -signal.SIGKILL
        assert time.monotonic() - began >= saves_s
    finally:
        child.kill()
        child.wait()
