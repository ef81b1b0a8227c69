"""A loop over a DataLoader is shortened once its batches repeat, and what comes after it is seen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20
PROGRAM = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.zeros(40_001, 64))
train, test = DataLoader(data, batch_size=2, shuffle=True), DataLoader(data, batch_size=100)
net = torch.nn.Linear(64, 4).cuda()
optimizer = torch.optim.SGD(net.parameters())
sizes = set()

def step(batch):
    sizes.add(len(batch[0]))
    net(batch[0].cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

"""
LOOPS = """
for epoch in range(1000):
    for batch in train:
        step(batch)
    with torch.no_grad():
        kept = [net(batch[0].cuda()).repeat(1, 64) for batch in test]
        print("validated", len(kept), sizes, flush=True)
        for batch in test:
            larger = net(batch[0].cuda()).repeat(1, 5000)
"""
HANDLED = """
def batches():
    while True:
        found = iter(train)
        while True:
            try:
                batch = next(found)
            except StopIteration:
                break
            yield batch
        print("ended", flush=True)
endless = batches()
while True:
    step(next(endless))
"""
NEXT = """
batches = iter(train)
for _ in range(19_000):
    step(next(batches))
"""


def rehearsed(folder: Path, loops: str) -> tuple[dict[str, Any], str]:
    (folder / "program.py").write_text(PROGRAM + loops)
    command = [sys.executable, "-m", "legroom", "predict", "--json", "--vram", "4GiB", "--ram", "16GiB", "--"]
    done = subprocess.run(
        [*command, sys.executable, "program.py"], capture_output=True, text=True, check=False, cwd=folder
    )
    (run,) = json.loads(done.stdout)["runs"]
    return run, done.stderr


def test_the_validation_after_an_epoch_is_seen_and_one_that_keeps_its_results_in_full(tmp_path: Path) -> None:
    run, said = rehearsed(tmp_path, LOOPS)
    assert run["program"]["stopped"] == "repeats"
    assert "validated 401 {1, 2}" in said or "validated 401 {2, 1}" in said  # all of it; the last batch is a row less
    assert run["gpu"]["allocator"]["peak_allocated"] > 401 * 100 * 4 * 64 * 4
    assert any("batches at program.py:" in note and "skipped" in note for note in run["notes"])
    assert sum("skipped" in note for note in run["notes"]) == 2  # training, and the loop that keeps nothing


@pytest.mark.slow
def test_a_generator_that_looks_for_the_end_is_shortened_too(tmp_path: Path) -> None:
    run, said = rehearsed(tmp_path, HANDLED)
    assert run["program"]["stopped"] == "repeats"
    assert "ended" in said


@pytest.mark.slow
def test_a_program_that_calls_next_itself_is_not_ended(tmp_path: Path) -> None:
    run, said = rehearsed(tmp_path, NEXT)
    assert "StopIteration" not in said
    assert run["program"]["stopped"] in ("repeats", "finished")
    assert not any("skipped" in note for note in run["notes"])
