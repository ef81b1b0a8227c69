"""If these fail, every prediction stands on a wrong base, or a prediction by arithmetic starts measuring."""

import json
import os
import subprocess
import sys
import time

import pytest

from legroom.model.footprint import Known
from legroom.probing import base, base_measure
from legroom.probing.tree import PeakSampler, descendants, process_memory, tree_memory


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "legroom"


FIGURES = {
    "trainer": 300_000_000, "worker": 150_000_000, "light_worker": 20_000_000, "fork_worker": 3_000_000,
    "fork_shared": 60_000_000, "helpers": 12_000_000,
}  # fmt: skip


def test_arithmetic_never_measures(cache, monkeypatch):
    monkeypatch.setattr(base, "_measure", lambda: pytest.fail("measured"))
    figures = base.base_figures(measure=False)
    assert figures.known is Known.DEFAULT
    assert figures.errors["trainer"] > base.MEASURED_ERRORS["trainer"]
    assert not cache.exists()


def test_measured_once_then_cached(cache, monkeypatch):
    calls = []
    monkeypatch.setattr(base, "_measure", lambda: calls.append(1) or FIGURES)
    assert base.base_figures(measure=True).trainer == 300_000_000
    assert base.base_figures(measure=True).known is Known.MEASURED
    assert base.base_figures(measure=False).worker == 150_000_000  # arithmetic takes what is there
    assert len(calls) == 1


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"figures": {"trainer": -1}}', '{"figures": 3}'])
def test_a_damaged_cache_is_measured_again(cache, monkeypatch, damage):
    monkeypatch.setattr(base, "_measure", lambda: FIGURES)
    base.base_figures(measure=True)
    (file,) = cache.iterdir()
    file.write_text(damage)
    assert base.base_figures(measure=False).known is Known.DEFAULT
    assert base.base_figures(measure=True).known is Known.MEASURED
    assert json.loads(file.read_text())["figures"] == FIGURES


def test_a_cache_that_cannot_be_written_is_no_error(cache, monkeypatch):
    monkeypatch.setattr(base, "_measure", lambda: FIGURES)
    cache.write_text("a file where the folder should be")
    assert base.base_figures(measure=True).trainer == 300_000_000


def test_reading_imports_nothing_heavy():
    code = (
        "import sys; from legroom.probing.base import base_figures; base_figures(measure=False); "
        "print(sorted({'torch', 'numpy', 'gymnasium', 'stable_baselines3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_real_child_gives_figures_of_the_right_size():
    report = base_measure._read_child(base_measure._start_child(base.CHILD, "light"))
    assert report is not None
    assert 5_000_000 < report["light_worker"] < 80_000_000  # numpy and gymnasium, no torch


def test_a_tree_counts_what_its_children_write():
    child_code = "b = bytearray(60_000_000); import time; time.sleep(30)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child_code!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        with PeakSampler(parent.pid) as sampler:
            deadline = time.monotonic() + 10
            while sampler.peak.pss < 64_000_000 and time.monotonic() < deadline:
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
