"""If these fail, every prediction stands on a wrong base, or a prediction by arithmetic starts measuring."""

import json
import os
import subprocess
import sys
import time

import pytest
from bench.peak_sampler import PeakSampler

from legroom.backends.sb3 import base_figures as base
from legroom.machine.tree import descendants, process_memory, tree_memory
from legroom.model.footprint import Known


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "legroom"


FIGURES = {
    "trainer": 300_000_000, "worker": 150_000_000, "light_worker": 20_000_000, "fork_worker": 3_000_000,
    "fork_shared": 60_000_000, "helpers": 12_000_000, "light_forked": 5_000_000,
    "without_compiler": 230_000_000, "without_updates": 210_000_000, "libraries": 100_000_000,
}  # fmt: skip


def pretend(stage):
    return {name: FIGURES[name] for name in base.STAGES[stage]}


def test_arithmetic_never_measures(cache, monkeypatch):
    monkeypatch.setattr(base, "_measure", lambda stage: pytest.fail("measured"))
    figures = base.base_figures()
    assert figures.known is Known.DEFAULT
    assert figures.errors["trainer"] > base.MEASURED_ERRORS["trainer"]
    assert not cache.exists()


def test_only_what_the_run_needs_is_measured_and_only_once(cache, monkeypatch):
    stages = []
    monkeypatch.setattr(base, "_measure", lambda stage: stages.append(stage) or pretend(stage))
    in_process, in_workers = base.figures_for({"dummy"}, None), base.figures_for({"subproc"}, None)
    assert base.base_figures(needed=in_process).trainer == 300_000_000
    assert stages == ["trainer"]
    assert base.base_figures(needed=in_workers).worker == 150_000_000
    assert stages == ["trainer", "forkserver", "light"]
    figures = base.base_figures(needed=in_workers)
    assert figures.known is Known.MEASURED
    assert figures.errors["worker"] == base.MEASURED_ERRORS["worker"]
    assert figures.errors["fork_worker"] == base.DEFAULT_ERRORS["fork_worker"]  # nobody needed it
    assert base.base_figures().worker == 150_000_000  # arithmetic takes what is there
    assert base.base_figures(needed=base.figures_for({"subproc"}, "fork")).fork_worker == 3_000_000
    assert stages == ["trainer", "forkserver", "light", "fork"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"figures": {"trainer": -1}}', '{"figures": 3}'])
def test_a_damaged_cache_is_measured_again(cache, monkeypatch, damage):
    monkeypatch.setattr(base, "_measure", pretend)
    base.base_figures(needed={"trainer"})
    (file,) = cache.iterdir()
    file.write_text(damage)
    assert base.base_figures().known is Known.DEFAULT
    assert base.base_figures(needed={"trainer"}).known is Known.MEASURED
    assert json.loads(file.read_text())["figures"] == {
        "trainer": 300_000_000,
        "without_compiler": 230_000_000,
        "without_updates": 210_000_000,
        "libraries": 100_000_000,
    }


def test_a_cache_that_cannot_be_written_is_no_error(cache, monkeypatch):
    monkeypatch.setattr(base, "_measure", pretend)
    cache.write_text("a file where the folder should be")
    assert base.base_figures(needed={"trainer"}).trainer == 300_000_000


def test_a_child_that_cannot_run_leaves_the_shipped_figures(cache, monkeypatch):
    monkeypatch.setattr(base, "_measure", lambda stage: None)
    assert base.base_figures(needed={"trainer"}).known is Known.DEFAULT


def test_reading_imports_nothing_heavy():
    code = (
        "import sys; from legroom.backends.sb3.base_figures import base_figures; base_figures(); "
        "print(sorted({'torch', 'numpy', 'gymnasium', 'stable_baselines3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_real_child_gives_figures_of_the_right_size():
    report = base._measure("light")
    assert report is not None
    assert 5_000_000 < report["light_worker"] < 80_000_000  # numpy and gymnasium, no torch
    assert 1_000_000 < report["light_forked"] < report["light_worker"] / 2


def test_a_tree_counts_what_its_children_write():
    child_code = "b = bytearray(60_000_000); import time; time.sleep(30)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child_code!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        with PeakSampler(parent.pid) as sampler:
            deadline = time.monotonic() + 10

            def most_private() -> int:
                return max((p.uss for p in sampler.peak.processes.values()), default=0)

            # The child itself, not the sum: at 64 MB together the child may still be writing.
            while most_private() < 60_000_000 and time.monotonic() < deadline:
                time.sleep(0.02)
        children = [pid for pid in descendants(parent.pid) if pid != parent.pid]
        assert len(children) == 1
        assert 60_000_000 < tree_memory(parent.pid).pss < 120_000_000
        assert sampler.peak.processes[children[0]].uss > 60_000_000
        os.kill(children[0], 9)
    finally:
        parent.kill()
        parent.wait()
    assert process_memory(parent.pid) is None  # gone, not an error
    assert tree_memory(parent.pid).pss == 0


def test_process_memory_of_this_process():
    memory = process_memory("self")
    assert memory is not None and memory.pid == os.getpid()
    assert 0 < memory.uss <= memory.rss
