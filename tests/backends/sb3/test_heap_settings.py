"""If these fail, settings of the C library's heap are offered where they do nothing, or do not reach the training."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from legroom.backends.base import backend_of
from legroom.backends.sb3 import constraints, ladders
from legroom.backends.sb3.bill import tracing
from legroom.backends.sb3.bill.scratch import Answer, Request
from legroom.errors import BadInput
from legroom.model.evidence import EnvMemory, Evidence, Scratch
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.task import TrainTask
from legroom.sharing.heap import find_jemalloc, heap_environment

VECTOR = {"observation": {"type": "box", "shape": [8]}, "action": {"type": "discrete", "n": 2}}
MACHINE = Machine(ram=1, limit=None, available=1, swap=0, shm=0)
NOTHING = Evidence(MACHINE, "cpu", base=None)


def make(**memory: object) -> Run:
    return Run.model_validate({"algo": "PPO", "env": {"spaces": VECTOR}, "memory": memory, "total_timesteps": 64})


def test_they_reach_the_process_that_trains() -> None:
    run = make(malloc_arenas=2)
    task = TrainTask(run=run, out="x", device="cpu", total_timesteps=64, events_fd=-1)
    assert backend_of(run).child_environment(task)["MALLOC_ARENA_MAX"] == "2"
    plain = TrainTask(run=make(), out="x", device="cpu", total_timesteps=64, events_fd=-1)
    assert not {"MALLOC_ARENA_MAX", "LD_PRELOAD"} & set(backend_of(run).child_environment(plain))


@pytest.mark.skipif(find_jemalloc() is None, reason="no jemalloc is installed")
def test_a_process_runs_with_the_jemalloc_that_was_found() -> None:
    code = "print('jemalloc' in open('/proc/self/maps').read())"
    environment = {**os.environ, **heap_environment(None, jemalloc=True)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


def test_without_a_jemalloc_the_run_is_refused_with_the_way_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints, "find_jemalloc", lambda: None)
    with pytest.raises(BadInput, match=r"no libjemalloc\.so found"):
        constraints.refuse_untrainable(make(jemalloc=True))
    constraints.refuse_untrainable(make(malloc_trim=True))


def test_they_are_offered_where_the_heap_has_holes_or_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladders, "find_jemalloc", lambda: "/usr/lib/libjemalloc.so.2")
    holes = replace(NOTHING, scratch=Scratch(80_000_000, 0, "", heap=20_000_000))
    calm = replace(NOTHING, scratch=Scratch(80_000_000, 0, "", heap=10_000_000))
    threads = replace(NOTHING, env=EnvMemory(imports=0, first=0, more=0, mapped=0, threads=8))
    offered = (ladders.jemalloc, ladders.trimmed_heap, ladders.fewer_arenas)

    def found(run: Run, evidence: Evidence) -> list[dict[str, object]]:
        variants = [each for ladder in offered for each in ladder(run, evidence)]
        return [each.memory.model_dump(exclude_defaults=True) for each in variants]

    assert found(make(), holes) == [{"jemalloc": True}, {"malloc_trim": True}]
    assert found(make(), threads) == [{"malloc_arenas": 1}]
    assert found(make(), calm) == found(make(), NOTHING) == []
    assert found(make(jemalloc=False, malloc_trim=True), holes) == []


def test_updates_are_measured_with_the_heap_that_each_run_will_have(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[int | None], dict[str, str]]] = []

    def answer(requests: list[Request], heap: dict[str, str]) -> list[Answer]:
        asked.append(([each.run.memory.malloc_arenas for each in requests], heap))
        return [Answer(None, f"arenas {each.run.memory.malloc_arenas}") for each in requests]

    monkeypatch.setattr(tracing, "trace_in_child", answer)
    answers = tracing._by_heap([Request(make(malloc_arenas=n), "cpu") for n in (1, None, 1)])
    assert asked == [([1, 1], {"MALLOC_ARENA_MAX": "1"}), ([None], {})]
    assert [each.not_traced for each in answers] == ["arenas 1", "arenas None", "arenas 1"]
