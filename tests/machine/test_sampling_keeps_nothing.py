"""What is read several times a second for days must leave nothing behind in whoever reads it."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import pytest

from legroom.machine.cgroup import oom_kills, read_cgroup, read_pressure
from legroom.machine.tree import tree_memory
from legroom.watching.sampling import Allowance, TreeSampler


def test_no_name_of_a_file_is_interned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one takes a place in a table that is never given back, and a megabyte at once when it is full."""
    sampler = TreeSampler(os.getpid(), Allowance(), lambda pids: None)

    def interned(text: str) -> NoReturn:
        raise AssertionError(f"{text!r} is interned")

    monkeypatch.setattr(sys, "intern", interned)
    assert tree_memory(os.getpid()).pss > 0
    assert sampler.sample() is not None
    read_cgroup(pid=os.getpid()), read_pressure(), oom_kills()
