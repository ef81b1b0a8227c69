"""Temporary folders: gone afterwards, and those of killed processes gone with the next start."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from legroom.machine import temporary_folder as module
from legroom.machine.temporary_folder import temporary_folder

HOLDER = """
import sys, time
from legroom.machine.temporary_folder import temporary_folder
with temporary_folder("test") as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_of_a_killed_process_goes_with_the_next_start_and_that_of_a_living_one_stays(place):
    environment = {**os.environ, "TMPDIR": str(place)}
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLDER], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    killed, living = (Path(holder.stdout.readline().strip()) for holder in holders)
    (killed / "task.json").write_text("{}")
    (place / "legroom-other-1").mkdir()
    holders[0].send_signal(signal.SIGKILL)
    holders[0].wait()
    try:
        with temporary_folder("test") as mine:
            assert mine.is_dir() and living.is_dir() and not killed.exists()
        assert not mine.exists() and (place / "legroom-other-1").is_dir()
    finally:
        holders[1].kill()
        holders[1].wait()


def test_one_that_has_no_name_yet_stays_while_it_is_young(place, monkeypatch):
    (unnamed := place / "legroom-new-1").mkdir()
    monkeypatch.setattr(module, "YOUNG_S", 60.0)
    with temporary_folder("test"):
        assert unnamed.is_dir() and time.time() - unnamed.stat().st_ctime < 60
    monkeypatch.setattr(module, "YOUNG_S", -1.0)
    with temporary_folder("test"):
        assert not unnamed.exists()


def test_a_start_of_one_kind_removes_what_a_killed_process_of_another_kind_left(place):
    (left := place / "legroom-compile-1").mkdir()
    with temporary_folder("test"):
        assert not left.exists()
