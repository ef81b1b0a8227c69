"""Memory that no process has mapped, and pages that forks have copied."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from legroom.backends.program.mapped_files import _of_memfd
from legroom.backends.program.rehearsing import RehearsalPlan, rehearse
from legroom.units import MIB


def test_a_file_of_memfd_takes_memory_while_it_is_open() -> None:
    before = _of_memfd([os.getpid()])
    handle = os.memfd_create("episodes")
    os.write(handle, bytes(8 * MIB))
    assert _of_memfd([os.getpid()]) - before == 8 * MIB
    os.close(handle)
    assert _of_memfd([os.getpid()]) == before


@pytest.mark.slow
def test_forks_that_read_a_list_of_objects_copy_its_pages(tmp_path: Path) -> None:
    """Four workers of a pool were counted with what they shared at first: 3 GiB were predicted to be 560 MiB."""
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
        import multiprocessing, torch
        items = [(f"position {i}", i) for i in range(400_000)]
        def score(start):
            return sum(len(text) for text, _ in items[start::2])
        net = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with multiprocessing.get_context("fork").Pool(4) as pool:
            for step in range(1000):
                total = sum(pool.map(score, [0, 1, 0, 1], chunksize=1))
                net(torch.ones(4, 8)).sum().backward(); optimizer.step()
    """)
    )
    found = rehearse([sys.executable, str(tmp_path / "train.py")], RehearsalPlan(None), output="kept")
    assert found.host.workers > 4 * 30 * MIB
