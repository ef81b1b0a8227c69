"""Growing containers become a forecast, or a reason why there is none."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from legroom.backends.program.host_growth import Containers
from legroom.backends.program.host_watch import HostWatch, Mapping, _once
from legroom.model.trace import Sample

MIB = 1 << 20


def look(containers: Containers, seconds: float, count: int, *, before: int, resident: int = 0, **about: Any) -> None:
    one = {
        "id": 7, "type": "deque", "count": count, "before": before, "each": 10_000.0, "held": "Agent.memory",
        "file": "dqn.py", "line": 12, "most": 50_000, **about,
    }  # fmt: skip
    containers.take(1, seconds, {"step": count // 10, "resident": resident, "containers": [one]})


def test_a_bounded_one_is_full_at_its_bound() -> None:
    seen = Containers()
    look(seen, 1.0, 1_000, before=500)
    look(seen, 2.0, 2_000, before=1_000)
    (full,) = seen.fillings(alone=False)
    assert (full.nbytes, full.touched, full.per_s, full.per_step) == (500_000_000, 20_000_000, 1e7, 1e5)
    assert (full.file, full.line, full.what) == ("dqn.py", 12, "deque Agent.memory, at most 50,000")
    assert full.seconds == 48 and full.when == "after about 4,800 more optimizer steps, in about 48 s"
    assert seen.touched_at(1.5, alone=False) == 15_000_000
    assert not list(seen.endless())


def test_the_process_tells_what_an_element_takes_where_nothing_else_grows() -> None:
    seen = Containers()
    for seconds in range(1, 6):  # 10,400 bytes each, by the process
        look(seen, seconds, 5_000 * seconds, before=5_000 * (seconds - 1), resident=52_000_000 * seconds)
    (full,) = seen.fillings(alone=True)
    assert full.nbytes == 520_000_000
    (full,) = seen.fillings(alone=False)
    assert full.nbytes == 500_000_000


def test_lean_storage_says_itself_what_it_takes_and_may_take_later() -> None:
    seen = Containers()
    for seconds in (1, 2):
        look(seen, seconds, 1_000 * seconds, before=1_000 * (seconds - 1), resident=10**9 * seconds, high=15_000.0)
    (full,) = seen.fillings(alone=True)
    assert (full.nbytes, full.error) == (500_000_000, 250_000_000)


def test_holes_between_blocks_widen_the_forecast() -> None:
    seen = Containers()
    for seconds in range(1, 6):
        look(seen, seconds, 5_000 * seconds, before=5_000 * (seconds - 1), resident=150_000_000 * seconds)
    (full,) = seen.fillings(alone=True)
    assert (full.nbytes, full.error) == (1_000_000_000, 500_000_000)


def test_one_without_a_bound_is_endless_after_three_looks() -> None:
    seen = Containers()
    look(seen, 1.0, 1_000, before=500, most=None)
    look(seen, 2.0, 2_000, before=1_000, most=None)
    assert not list(seen.endless())
    look(seen, 3.0, 3_000, before=2_000, most=None)
    (grows,) = seen.endless()
    assert (grows.what, grows.file, grows.line, grows.per_s) == ("deque Agent.memory", "dqn.py", 12, 1e7)
    seen.take(1, 4.0, {"step": 400, "resident": 0, "containers": []})  # it does not grow any longer
    assert not list(seen.endless()) and seen.per_s == 0


def test_a_buffer_that_forked_children_see_counts_once() -> None:
    parent, child = Mapping(1, 4096, 4096 + 64 * MIB, 30 * MIB), Mapping(2, 4096, 4096 + 64 * MIB, 0)
    other = Mapping(2, 1 << 40, (1 << 40) + 64 * MIB, 0)
    assert _once([child, parent, other]) == [parent, other]


def test_a_buffer_that_fills_faster_and_faster_is_no_other_growth(tmp_path: Path) -> None:
    """Steps of slow simulators are repeated after a while: a replay of 1 GB was told as growth without an end."""
    me = SimpleNamespace(pid=os.getpid(), launcher=SimpleNamespace(pid=os.getpid()))
    watch = HostWatch(me, tmp_path)  # type: ignore[arg-type]
    watch._steady_from = 0.0
    for seconds in range(1, 41):
        count = 50 * seconds**2
        look(watch.containers, seconds, count, before=50 * (seconds - 1) ** 2, most=1_000_000)
        watch.samples.append(Sample(float(seconds), 10**9 + 10_000 * count, None, {}))
    assert watch._growth() == 0
    watch.samples = [replace(one, host=one.host + int(2e6 * one.t)) for one in watch.samples]
    assert 1.9e6 < watch._growth() < 2.1e6
