"""Host memory that grows with the steps: extrapolated over the run, or a reason why nothing is known."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from legroom.backends.program.host_growth import LoaderWorkers
from legroom.backends.program.host_watch import HostWatch
from legroom.backends.program.program_bill import predicted
from legroom.model.rehearsal import BatchesSeen, Endless, HostSeen, Rehearsal, WorkerPages
from legroom.model.verdict import Budget

MIB, GIB = 1 << 20, 1 << 30
PROGRAM = SimpleNamespace(pid=os.getpid(), launcher=SimpleNamespace(pid=os.getpid()), writes="discarded", layer=1)


def watched(heap: Any, steps: int = 600, **growing: Any) -> tuple[Endless, ...]:
    """Return what grows, by the heap's blocks and bytes after each step, and by what is said of containers."""
    watch = HostWatch(PROGRAM, Path())  # type: ignore[arg-type]
    watch.begin_steady()
    chance = random.Random(1)
    for step in range(2, steps):
        blocks, malloc = heap(step)
        watch.steps = step
        watch.take(1, {"kind": "heap", "step": step, "blocks": blocks + chance.randrange(40),
                       "malloc": malloc + chance.randrange(4096)})  # fmt: skip
        if growing and step % 100 == 0:
            watch.take(1, {"kind": "growing", "step": step, "resident": 0, **growing})
    return watch.seen(ended=False).endless


def test_a_linked_list_of_a_kilobyte_per_step_is_seen() -> None:
    (found,) = watched(lambda step: (10**6 + 5 * step, 10**8 + 1000 * step))
    assert found.what == "the heap" and found.per_step == pytest.approx(1000 + 5 * 96, rel=0.05)
    assert found.steps_left is None and found.error < 350
    (found,) = watched(lambda step: (10**6, 10**8 + 1000 * step), total_steps=5_000, containers=[])
    assert found.steps_left == 5_000 - 599


@pytest.mark.parametrize(
    "heap",
    [
        lambda step: (10**6, 10**8),
        lambda step: (10**6 + 40 * min(step, 150), 10**8),  # a cache that is full after 150 steps
        lambda step: (10**6, 10**8 + 400_000 * (step % 50)),  # a rollout of 50 steps, dropped again
        lambda step: (10**6 + step // 3, 10**8),  # what the simulation itself leaves behind
        lambda step: (10**6, 10**8 + (4 * MIB if step > 300 else 0)),  # something was loaded
    ],
)
def test_what_settles_or_comes_back_does_not_grow(heap: Any) -> None:
    assert watched(heap) == ()


def container(count: int, most: int | None) -> dict[str, Any]:
    return {"id": 7, "type": "dict", "held": "seen", "file": "train.py", "line": 40, "each": 1000.0, "most": most,
            "count": count, "before": count - 100}  # fmt: skip


def test_what_a_container_takes_is_named_once() -> None:
    watch = HostWatch(PROGRAM, Path())  # type: ignore[arg-type]
    watch.begin_steady()
    for step in range(2, 600):
        watch.steps = step
        watch.take(1, {"kind": "heap", "step": step, "blocks": 10**6, "malloc": 10**8 + 1100 * step})
        if step % 100 == 0:
            about = {"kind": "growing", "step": step, "resident": 0, "total_steps": 10_000}
            watch.take(1, {**about, "containers": [container(step, None)]})
    (found,) = watch.seen(ended=False).endless
    assert (found.what, found.line, round(found.per_step)) == ("dict seen", 40, 1000)
    assert watch.seen(ended=True).endless == ()


def verdict(endless: Endless | None = None, ram: int = 4 * GIB, **more: Any) -> Any:
    host = HostSeen(500 * MIB, 500 * MIB, 0, 1, endless=(endless,) if endless else (), **more)
    rehearsal = Rehearsal(("train.py",), None, "repeats", 100, 50, 10.0, host, torch="2.13.0")
    return predicted(rehearsal, Budget(ram, None, 0.0, "given", "given"))


def test_growth_over_a_known_length_is_in_the_bill() -> None:
    grows = Endless("dict seen", "train.py", 40, 1e5, per_step=1000.0, error=100.0, steps_left=1e6)
    found = verdict(grows)
    (item,) = [item for item in found.footprint.items if item.name == "host.growth at train.py:40"]
    assert (item.nbytes, item.error) == (10**9, 10**8) and found.fits is True
    assert verdict(replace(grows, steps_left=1e7)).fits is False
    losses = verdict(replace(grows, per_step=32.0, steps_left=1_000.0))  # 32 kB
    assert losses.fits is True and not any("growth" in item.name for item in losses.footprint.items)


def test_growth_over_an_unknown_length_is_unknown_unless_it_takes_ages() -> None:
    grows = Endless("dict seen", "train.py", 40, 1e5, per_step=1000.0, error=100.0)
    found = verdict(grows)
    assert found.fits is None
    said = "host memory grows by 1000 B per optimizer step (train.py:40, dict seen); the length of the run is not known"
    assert said in found.footprint.unknown
    slow = verdict(replace(grows, per_step=30.0, per_s=3e3))  # 4 GiB take 10^8 steps
    assert slow.fits is True and any("10,000,000 steps" in note for note in slow.footprint.notes)


def test_batches_that_were_not_seen() -> None:
    def of(*batches: BatchesSeen) -> Any:
        rehearsal = replace(verdict().rehearsal, batches=batches)
        return predicted(rehearsal, Budget(4 * GIB, None, 0.0, "given", "given"))

    assert of(BatchesSeen("train.py", 9, 100, 100, alike=False)).fits is True
    found = of(BatchesSeen("train.py", 9, 1_200, 80_000, alike=False))
    assert found.fits is None
    assert any("batches looked at, train.py:9: 1,200 of 80,000 (1.5%)" in why for why in found.footprint.unknown)
    stacked = of(BatchesSeen("train.py", 9, 40, 80_000, stacked=True))
    assert stacked.fits is True and not any("looked at" in note for note in stacked.footprint.notes)
    assert any("looked at" in note for note in of(BatchesSeen("train.py", 9, 40, None)).footprint.notes)


def pages(*looks: tuple[int, int, int], total: int = 1_000, again: bool = False, at_peak: int = GIB) -> WorkerPages:
    """Return the forecast from (batches, own MiB, all MiB) of each of two workers."""
    workers = LoaderWorkers()
    for done, own, every in looks:
        both = [[own * MIB, every * MIB]] * 2
        workers.take({"done": done, "total": total, "again": again, "pages": both})
    found = workers.pages(at_peak, ended=False)
    assert found is not None
    return found


def test_pages_that_workers_copy_go_on_to_the_end_of_the_epoch_or_until_all_are_copied() -> None:
    assert pages((10, 20, 500), (110, 40, 500)).later == 2 * 178 * MIB  # 0.2 MiB per batch, 890 batches
    assert pages((10, 20, 500), (110, 220, 500)).later == 2 * 280 * MIB  # all that is still shared
    assert pages((10, 20, 500), (1_000, 220, 500)).later == 0  # the epoch is over
    assert pages((10, 20, 500), (1_000, 220, 500)).copied == 400 * MIB
    assert pages((10, 20, 500), (1_000, 119, 500), again=True).later == 2 * 100 * MIB  # workers that stay see all


def test_workers_that_only_read_arrays_copy_nothing() -> None:
    found = pages((10, 20, 500), (110, 20, 500))
    assert (found.copied, found.later, found.missed) == (0, 0, 0)
    assert not any("copied" in item.name for item in verdict(worker_pages=found).footprint.items)


def test_a_cache_of_the_workers_own_is_not_bounded_by_what_they_share() -> None:
    assert pages((0, 20, 30), (100, 120, 130)).later == 2 * 900 * MIB


def test_copied_pages_are_in_the_bill_and_the_way_out_is_named() -> None:
    found = verdict(worker_pages=WorkerPages(2, 300 * MIB, 3 * GIB, 0, missed=100 * MIB))
    (item,) = [item for item in found.footprint.items if item.name == "host.worker pages copied"]
    assert item.nbytes == 3 * GIB + 100 * MIB
    (finding,) = [each for each in found.footprint.findings if each.name == "worker-copies"]
    assert "3.3 GiB" in finding.message and "NumPy array" in (finding.hint or "")


COPYING = """
import sys, torch, numpy
from torch.utils.data import DataLoader, Dataset
class Items(Dataset):
    def __init__(self):
        lists = "list" in sys.argv
        self.data = [(str(i) * 9, i + 1000) for i in range(400_000)] if lists else numpy.arange(9e6)
    def __len__(self): return 400_000
    def __getitem__(self, i): return torch.tensor(float(self.data[i][1] if "list" in sys.argv else self.data[i]))
loader = DataLoader(Items(), batch_size=512, num_workers=2)
net = torch.nn.Linear(1, 8).cuda()
optimizer = torch.optim.SGD(net.parameters())
for epoch in range(9):
    for x in loader:
        net(x[:, None].cuda()).sum().backward(); optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "copies"), [("list", True), ("array", False)])
def test_workers_that_touch_a_list_of_objects_copy_it(tmp_path: Any, kind: str, copies: bool) -> None:
    import json

    (tmp_path / "program.py").write_text(COPYING)
    command = [sys.executable, "-m", "legroom", "predict", "--json", "--vram", "4GiB", "--ram", "16GiB", "--",
               sys.executable, "program.py", kind]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    (run,) = json.loads(done.stdout)["runs"]
    assert any(finding["name"] == "worker-copies" for finding in run["findings"]) is copies
