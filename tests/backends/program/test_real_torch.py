"""Real programs with the real guest: in an environment without legroom, started in every way that people do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from legroom.backends.program.launching import reserving_library
from legroom.predicting.gpu import CONTEXT_BYTES, CONTEXT_ERROR

pytest.importorskip("torch")
MIB = 1 << 20
SHORT = str(CONTEXT_BYTES + CONTEXT_ERROR + 40_000_000)  # enough for the weights, not for the output

LOOP = """
import sys
import torch
from torch import nn

net = nn.Linear(1024, 4096).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
kept = []
for _ in range(int(sys.argv[1])):
    x = torch.ones(1024, 1024, device="cuda")
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if "--keep" in sys.argv:
        kept.append(loss)
print("done", torch.cuda.is_available(), flush=True)
"""


@pytest.fixture(scope="module")
def other_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs of an environment with this interpreter's packages, but without legroom."""
    folder = tmp_path_factory.mktemp("other")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    packages = site / "linked"
    packages.mkdir()
    import numpy
    import torch

    for entry in {entry for one in (numpy, torch) for entry in Path(one.__file__).parents[1].iterdir()}:
        if "legroom" not in entry.name.lower() and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    (site / "linked.pth").write_text(f"{packages}\n")
    return folder / "bin"


def predict(*arguments: str, cwd: Path, path: Path | None = None) -> tuple[int, dict[str, Any], str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "legroom.cli.main", "predict", "--json", "--seconds", "120", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False, timeout=300)
    assert done.stdout, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    return done.returncode, run, done.stderr


def test_an_environment_without_legroom(tmp_path: Path, other_environment: Path) -> None:
    (tmp_path / "loop.py").write_text("import importlib.util\nassert not importlib.util.find_spec('legroom')\n" + LOOP)
    code, run, errors = predict(
        "--gpu", "RTX 4070", "--ram", "64GiB", "--", "python", "loop.py", "4", cwd=tmp_path, path=other_environment
    )
    assert "done True" in errors
    assert (code, run["fits"], run["program"]["stopped"], run["program"]["updates"]) == (0, True, "finished", 4)
    # 16 MiB of weights and as much of gradients, 4 of x, 16 of the output and its square, and cuBLAS's 8.1 twice
    assert run["gpu"]["allocator"]["peak_allocated"] > 68 * MIB
    lines = {(Path(line["file"]).name, line["line"]) for line in run["program"]["lines"]}
    assert {("loop.py", 8), ("loop.py", 12), ("loop.py", 13)} <= lines


def test_out_of_memory_comes_at_its_line_behind_a_wrapper_too(tmp_path: Path, other_environment: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    code, run, errors = predict(
        "--vram", SHORT, "--", "env", "python", "loop.py", "4", cwd=tmp_path, path=other_environment
    )
    assert (code, run["fits"], run["program"]["stopped"]) == (1, False, "out-of-memory")
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate" in errors
    assert run["program"]["at"]["line"] in (10, 11)


def test_a_kept_loss_is_a_leak_at_the_line_that_keeps_it_in_a_module_too(
    tmp_path: Path, other_environment: Path
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    (tmp_path / "package/train.py").write_text(LOOP)
    module = ("python", "-m", "package.train")
    _, run, _ = predict("--vram", "8GiB", "--", *module, "12", "--keep", cwd=tmp_path, path=other_environment)
    (leak,) = run["program"]["leaks"]
    assert (Path(leak["file"]).name, leak["line"]) == ("train.py", 16)


def test_torchrun(tmp_path: Path, other_environment: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    torchrun = ("python", "-m", "torch.distributed.run", "--nproc-per-node", "1")
    code, run, errors = predict(
        "--vram", "8GiB", "--ram", "64GiB", "--", *torchrun, "loop.py", "3", cwd=tmp_path, path=other_environment
    )
    assert (code, run["fits"]) == (0, True), (run.get("unknown"), errors[-2000:])
    assert run["program"]["updates"] == 3


def test_one_that_repeats_is_stopped_as_a_console_script_too(tmp_path: Path, other_environment: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    script = tmp_path / "console-script"
    script.write_text(f"#!{other_environment}/python\nimport runpy\nrunpy.run_path('loop.py', run_name='__main__')\n")
    script.chmod(0o755)
    code, run, _ = predict(
        "--vram", "8GiB", "--ram", "64GiB", "--", "./console-script", "100000", cwd=tmp_path, path=other_environment
    )
    assert (code, run["fits"], run["program"]["stopped"]) == (0, True, "repeats")


HUGE = """
import numpy as np
import torch

obs = np.zeros((200_000, 128, 1024), dtype=np.uint8)
rollout = torch.zeros(105 << 30, dtype=torch.uint8)
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
at = 0
while True:
    for _ in range(16):
        obs[at] = 7
        at += 1
    net(torch.ones(64, 64, device="cuda")).mean().backward()
    optimizer.step()
"""


@pytest.mark.skipif(reserving_library() is None, reason="the C library was not built")
def test_large_arrays_need_no_memory_and_are_forecast_with_their_line(tmp_path: Path, other_environment: Path) -> None:
    (tmp_path / "huge.py").write_text(HUGE)
    _, run, _ = predict(
        "--vram", "8GiB", "--ram", "200GiB", "--", "python", "huge.py", cwd=tmp_path, path=other_environment
    )
    items = {item["name"]: item for item in run["items"]}
    assert {"host.huge.py:5", "host.huge.py:6"} <= set(items)
    assert items["host.huge.py:6"]["nbytes"] == pytest.approx(105 << 30, abs=MIB)
    assert items["host.huge.py:5"]["nbytes"] == pytest.approx(200_000 * 128 * 1024, abs=MIB)
    assert items["host.huge.py:6"]["why"] == "torch.zeros writes all of it where it is made"
    steps = float(items["host.huge.py:5"]["why"].split("after about ")[1].split()[0].replace(",", ""))
    assert steps == pytest.approx(200_000 / 16, rel=0.2)
    assert items["host.program"]["nbytes"] < 1.5 * (1 << 30)
    assert run["host"]["peak"] > 129 * (1 << 30)


@pytest.mark.skipif(reserving_library() is None, reason="the C library was not built")
def test_a_request_beyond_the_ram_raises_the_library_s_own_error_at_its_line(
    tmp_path: Path, other_environment: Path
) -> None:
    (tmp_path / "huge.py").write_text(HUGE)
    code, run, errors = predict(
        "--vram", "8GiB", "--ram", "16GiB", "--", "python", "huge.py", cwd=tmp_path, path=other_environment
    )
    assert (code, run["fits"], run["program"]["stopped"]) == (1, False, "out-of-memory")
    assert run["program"]["at"]["line"] == 5
    assert "Unable to allocate 24.4 GiB for an array with shape (200000, 128, 1024)" in errors


def test_cudnn_is_billed_beside_the_allocator_of_the_card_that_is_named(
    tmp_path: Path, other_environment: Path
) -> None:
    (tmp_path / "conv.py").write_text("""
import torch
from torch import nn

card = torch.cuda.get_device_properties(0)
print(card.name, card.multi_processor_count, flush=True)
net, rnn = nn.Conv2d(3, 64, 3).cuda(), nn.LSTM(32, 64, 2).cuda()
optimizer = torch.optim.SGD([*net.parameters(), *rnn.parameters()], lr=0.1)
image, words = torch.randn(16, 3, 64, 64, device="cuda"), torch.randn(10, 8, 32, device="cuda")
(net(image).mean() + rnn(words)[0].mean()).backward()
optimizer.step()
""")
    _, run, errors = predict("--gpu", "RTX 3060 12GB", "--", "python", "conv.py", cwd=tmp_path, path=other_environment)
    assert "RTX 3060 12GB 28" in errors  # its multiprocessors too: they shape the scratch of sums and sorts
    items = {item["name"]: item["nbytes"] for item in run["items"]}
    # 5 % of 16 x 3 x 64 x 64 inputs, 64 x 3 x 3 x 3 weights and 16 x 64 x 62 x 62 outputs, 4 bytes each
    assert items["gpu.cudnn workspace"] == int(0.05 * 4 * (16 * 3 * 64 * 64 + 64 * 27 + 16 * 64 * 62 * 62))
    assert items["gpu.rnn reserve"] == 10 * 8 * 64 * 4 * 2 * 5  # output x layers x (gates and cells)
    reserved = run["gpu"]["allocator"]["peak_reserved"]
    assert run["gpu"]["peak"] == reserved + 400_000_000 + items["gpu.cudnn workspace"] + items["gpu.rnn reserve"]


def test_the_workspace_of_a_convolution_gives_way_on_a_card_that_is_just_large_enough(
    tmp_path: Path, other_environment: Path
) -> None:
    """Where it cannot be had, PyTorch tries an algorithm that needs less: the program is slower, and fits."""
    (tmp_path / "conv.py").write_text("""
import torch
net = torch.nn.Conv2d(3, 64, 3).cuda()
optimizer = torch.optim.SGD(net.parameters())
image = torch.zeros(512, 3, 64, 64, device="cuda")
for _ in range(4):
    net(image).mean().backward()
    optimizer.step()
""")

    def predicted(vram: int) -> dict[str, Any]:
        options = ("--vram", f"{vram}B", "--ram", "64GiB")
        return predict(*options, "--", "python", "conv.py", cwd=tmp_path, path=other_environment)[1]

    plenty = predicted(64 << 30)
    workspace = next(item["nbytes"] for item in plenty["items"] if item["name"] == "gpu.cudnn workspace")
    assert workspace > 20 << 20
    need = plenty["gpu"]["allocator"]["peak_reserved"] + 500_000_000  # with the upper end of the context
    tight = predicted(need + (4 << 20))
    assert tight["fits"] is True
    assert tight["gpu"]["allocator"]["limit"] == need + (4 << 20) - 500_000_000
    assert tight["gpu"]["band"][1] <= need + (4 << 20)
    assert predicted(need - (16 << 20))["fits"] is False


def test_tensors_in_reference_cycles_leave_the_verdict_open(tmp_path: Path, other_environment: Path) -> None:
    """Python frees them when its collector runs, which is at other times in a rehearsal: a "fits" would be a guess."""
    (tmp_path / "cycles.py").write_text("""
import torch
net = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(net.parameters())
for _ in range(200):
    made = net(torch.zeros(2048, 1024, device="cuda"))
    held = [made]
    held.append(held)
    made.mean().backward()
    optimizer.step()
    others = [[] for _ in range(100)]
""")
    options = ("--vram", "24GiB", "--ram", "64GiB")
    _, run, _ = predict(*options, "--", "python", "cycles.py", cwd=tmp_path, path=other_environment)
    assert run["fits"] is None
    assert any("reference cycles" in reason for reason in run["unknown"])


def test_a_model_with_gradients_moves_to_the_host_and_back(tmp_path: Path, other_environment: Path) -> None:
    (tmp_path / "moves.py").write_text("""
import torch
net = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(net.parameters())
for _ in range(3):
    net.cuda()
    net(torch.zeros(8, 512, device="cuda")).mean().backward()
    optimizer.step()
    net.cpu()
    assert net.weight.grad.device.type == net.weight.device.type == "cpu"
    net(torch.zeros(8, 512))
""")
    options = ("--vram", "24GiB", "--ram", "64GiB")
    _, run, errors = predict(*options, "--", "python", "moves.py", cwd=tmp_path, path=other_environment)
    assert run["program"]["stopped"] == "finished", errors


SLOW_SIMULATORS = """
import time
import gymnasium as gym
import numpy as np
import torch

class Simulator(gym.Env):
    observation_space = gym.spaces.Box(0, 1, (64,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(64, np.float32), {}

    def step(self, action):
        time.sleep(2)
        return np.ones(64, np.float32), 1.0, False, False, {"burned": 3}

if __name__ == "__main__":
    envs = gym.vector.AsyncVectorEnv([Simulator, Simulator])
    net = torch.nn.Linear(64, 2).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    seen, _ = envs.reset()
    while True:
        rows = []
        for _ in range(500):
            seen, rewards, *_, infos = envs.step(np.zeros(2, np.int64))
            assert list(infos["burned"]) == [3, 3] and seen.shape == (2, 64)
            rows.append(torch.from_numpy(seen).cuda())
        loss = net(torch.cat(rows)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_steps_of_slow_simulators_in_workers_are_repeated(tmp_path: Path) -> None:
    """500 steps of 2 s before the first update: a program of the user's that nothing could be said of."""
    (tmp_path / "train.py").write_text(SLOW_SIMULATORS)
    how = ("--gpu", "RTX 4070", "--ram", "64GiB", "--seconds", "60")
    _, run, _ = predict(*how, "--", sys.executable, "train.py", cwd=tmp_path)
    assert run["program"]["stopped"] == "repeats" and run["program"]["updates"] >= 4
    (note,) = (note for note in run["notes"] if "environments" in note)
    assert re.fullmatch(
        r"not seen: what environments do after their first \d+ steps, which take long \(more time: --seconds\)", note
    )
