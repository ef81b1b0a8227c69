"""`legroom machine`: what is here, found fast, without importing what it reports on."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from legroom.machine import probe
from legroom.machine import probing as machine_module
from legroom.units import GIB, MIB

MEMINFO = (
    "MemTotal: 16777216 kB\nMemFree: 1048576 kB\nMemAvailable: 8388608 kB\nSwapTotal: 2097152 kB\nHugePages_Total: 0\n"
)


def write_machine(root: Path, meminfo: str = MEMINFO, limit: str = "max", current: int = 0) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(meminfo)
    (root / "proc/self/cgroup").write_text("0::/\n")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cgroup.controllers").write_text("memory")
    (root / "sys/fs/cgroup/memory.max").write_text(limit)
    (root / "sys/fs/cgroup/memory.current").write_text(str(current))
    return root


def test_a_machine_without_container(tmp_path):
    found = probe(write_machine(tmp_path))
    assert (found.ram, found.limit, found.available, found.swap) == (16 * GIB, None, 8 * GIB, 2 * GIB)
    assert (found.shm, found.gpus) == (0, ())
    assert found.cores >= 1


def test_a_container_has_its_own_limit_and_what_is_left_of_it(tmp_path):
    found = probe(write_machine(tmp_path, limit=str(4 * GIB), current=GIB))
    assert (found.ram, found.limit, found.available) == (16 * GIB, 4 * GIB, 3 * GIB)


def test_a_full_host_leaves_less_than_the_container_may_have(tmp_path):
    found = probe(write_machine(tmp_path, limit=str(12 * GIB)))
    assert (found.limit, found.available) == (12 * GIB, 8 * GIB)


def test_a_limit_above_the_ram_is_none(tmp_path):
    assert probe(write_machine(tmp_path, limit=str(64 * GIB))).limit is None


def test_an_old_kernel_without_MemAvailable(tmp_path):
    meminfo = "MemTotal: 1024 kB\nMemFree: 100 kB\nBuffers: 10 kB\nCached: 50 kB\nShmem: 20 kB\n"
    assert probe(write_machine(tmp_path, meminfo)).available == (100 + 10 + 50 - 20) * 1024


@pytest.mark.parametrize("meminfo", ["", "MemTotal:\n", "MemTotal: lots kB\n\xff:", "MemTotal: 0 kB"])
def test_without_a_usable_meminfo_psutil_tells(tmp_path, meminfo):
    found = probe(write_machine(tmp_path, meminfo))
    assert found.ram > 100 * MIB
    assert 0 < found.available <= found.ram


def test_elsewhere_than_linux(tmp_path, monkeypatch):
    # macOS and Windows have neither /proc nor affinities nor, the latter, statvfs
    monkeypatch.setattr(machine_module, "sys", SimpleNamespace(platform="win32"))
    monkeypatch.delattr(os, "statvfs")
    found = probe(tmp_path)
    assert (found.limit, found.shm, found.cores) == (None, 0, os.cpu_count())


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="Linux only")
def test_this_machine():
    found = probe()
    kernel = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    assert found.ram == int(kernel["MemTotal"].split()[0]) * 1024
    assert found.limit is None or found.limit < found.ram
    assert 0 < found.available <= found.ram
    assert found.cores == len(os.sched_getaffinity(0))
    assert found.versions["python"] == sys.version.split()[0]


def test_probing_is_fast_and_imports_nothing_heavy():
    code = (
        "import json, sys, time; from legroom.machine import probe; from pathlib import Path\n"
        "def timed():\n start = time.perf_counter(); probe(); return time.perf_counter() - start\n"
        "seconds = min(timed() for _ in range(5))\n"
        "heavy = [n for n in ('torch', 'numpy', 'gymnasium', 'jax', 'psutil', 'pydantic') if n in sys.modules]\n"
        "print(json.dumps([seconds, heavy]))"
    )
    seconds, heavy = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert heavy == []
    assert seconds < 0.020
