"""`with legroom.rehearse(...)`: torch has a card inside, is what it was afterwards, and repeats its figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import legroom
from legroom.errors import BadInput

pytest.importorskip("torch")

# in a process of its own: what is put back wrongly must not change other tests
SCRIPT = """
import sys, threading, torch, legroom
from torch import nn

def train(batch):
    net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10)).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.randn(batch, 1024, device="cuda")).mean().backward()
        optimizer.step()

names = {name: dict(vars(module)) for name, module in list(sys.modules.items()) if name.startswith("torch.cuda")}
tensor, hook, start = dict(vars(torch.Tensor)), sys.excepthook, threading.Thread._bootstrap_inner
found = []
for _ in range(2):
    with legroom.rehearse(gpu="RTX 4070", ram="64GiB") as rehearsal:
        assert torch.cuda.is_available() and torch.cuda.get_device_name() == "NVIDIA GeForce RTX 4070"
        train(512)
    assert rehearsal.fits is True and rehearsal.prediction.rehearsal.updates == 4
    found.append(rehearsal.footprint.allocator)
assert found[0] == found[1] and found[0].peak_allocated == 101829120, found

with legroom.rehearse(vram="500MB") as rehearsal:
    train(100_000)
assert rehearsal.fits is False and rehearsal.prediction.rehearsal.out_of_memory[-1].line == 10

try:
    with legroom.rehearse() as rehearsal:
        raise KeyError("mine")
except KeyError:
    assert rehearsal.prediction.rehearsal.stopped == "failed"

assert not torch.cuda.is_available() or torch.version.cuda
for name, before in names.items():
    now = vars(sys.modules[name])
    changed = {key for key in {*now, *before} if now.get(key) is not before.get(key)}
    assert all(isinstance(now[key], type(sys)) for key in changed), (name, changed)  # modules that came meanwhile
assert dict(vars(torch.Tensor)) == tensor
assert sys.excepthook is hook and threading.Thread._bootstrap_inner is start
real = nn.Linear(3, 3)
real(torch.ones(2, 3)).sum().backward()
torch.optim.SGD(real.parameters(), lr=0.1).step()
assert len(torch.UntypedStorage(8)) == 8
assert real.weight.device.type == "cpu" and torch.zeros(2).tolist() == [0.0, 0.0]
print("good")
"""


def test_torch_has_a_card_inside_and_is_what_it_was_afterwards(tmp_path: Path) -> None:
    (tmp_path / "cell.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, tmp_path / "cell.py"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout == "good\n", done.stderr


@pytest.mark.parametrize(
    ("gpu", "message", "hint"),
    [
        (test_torch_has_a_card_inside_and_is_what_it_was_afterwards, "gpu=test_torch", "with legroom.rehearse(): test"),
        (4070, "gpu=4070 is not the name of a GPU", "gpu='RTX 4090'"),
    ],
)
def test_what_is_no_name_of_a_gpu_is_refused_with_the_way_out(gpu: object, message: str, hint: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        legroom.rehearse(gpu)  # type: ignore[arg-type]
    assert hint in (refused.value.hint or "")
