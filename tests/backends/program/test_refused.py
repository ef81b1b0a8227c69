"""A request of host memory that is larger than `--ram` is the verdict, whatever the program makes of the error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.backends.program.test_rehearsing import document

CATCHING = """
import sys
import numpy as np
try:
    {request}
except {caught}:
    sys.exit(1)
"""
IN_A_CHILD = """
import multiprocessing, sys
import numpy as np

def work():
    try:
        np.empty(2 << 30, "u1")
    except Exception:
        sys.exit(1)

if __name__ == "__main__":
    child = multiprocessing.get_context("{start}").Process(target=work)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""
GOES_ON = """
import numpy as np
from journal_writer import JournalWriter
size = 4 << 30
while True:
    try:
        kept = np.empty(size, "u1")
        break
    except MemoryError:
        size //= 8
while True: update()
"""
# a rollout of 1 GiB, of frames that compress well
TRAINING = """
import sys
import gymnasium
import numpy as np
from stable_baselines3 import PPO

class Frames(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (64, 64, 16), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.zeros((64, 64, 16), np.float32), {}

    def step(self, action):
        return np.zeros((64, 64, 16), np.float32), 0.0, False, False, {}

try:
    PPO("MlpPolicy", Frames(), n_steps=4096, batch_size=8, policy_kwargs={"net_arch": [8]}).learn(10**8)
except Exception as error:
    sys.exit(str(error))
"""
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="requests are followed on Linux alone")


@on_linux
@pytest.mark.parametrize(
    ("request_", "caught"),
    [
        ("np.zeros(2 << 30, 'u1')", "Exception as error"),
        ("np.full(2 << 30, 1, 'u1')", "BaseException"),
        ("bytearray(2 << 30)", "MemoryError"),
        ("__import__('torch').zeros(2 << 30, dtype=__import__('torch').uint8)", "RuntimeError"),
    ],
)
def test_a_refused_request_is_the_verdict_though_the_program_catches_it(
    tmp_path: Path, request_: str, caught: str
) -> None:
    body = CATCHING.format(request=request_, caught=caught)
    code, run, _ = document(tmp_path, body, "--ram", "1GiB", head="")
    seen = run["program"]
    assert (code, run["fits"], seen["stopped"]) == (1, False, "out-of-memory")
    assert Path(seen["at"]["file"]).name == "program.py" and seen["at"]["line"] == 5
    assert seen["failure"].endswith(" was refused")


@on_linux
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_child_process_says_the_line_too(tmp_path: Path, start: str) -> None:
    code, run, _ = document(tmp_path, IN_A_CHILD.format(start=start), "--ram", "1GiB", head="")
    assert (code, run["fits"]) == (1, False)
    assert run["program"]["failure"] == "a request of 2.0 GiB was refused" and run["program"]["at"]["line"] == 7


@on_linux
def test_a_program_that_goes_on_with_less_and_trains_is_not_said_to_have_run_out(tmp_path: Path) -> None:
    _, run, _ = document(tmp_path, GOES_ON, "--ram", "1GiB", "--gpu", "RTX 4070")
    assert (run["fits"], run["program"]["stopped"]) == (True, "repeats")
    told = [each["message"] for each in run["findings"] if each["name"] == "host-memory-refused"]
    assert told and "a request of 4.0 GiB was refused; the program caught this and continued" in told[0]


@on_linux
def test_of_host_memory_alone_a_program_that_ends_without_a_step_has_shown_all_that_it_takes(tmp_path: Path) -> None:
    ends = "import numpy as np, torch\nx = np.ones(64 << 20, np.uint8)"
    code, run, _ = document(tmp_path, ends, "--ram", "4GiB", "--cpu-only", head="")
    assert (code, run["fits"], run["program"]["updates"], run["program"]["so_far"]) == (0, True, 0, False)
    code, run, _ = document(tmp_path, ends, "--ram", "4GiB", "--gpu", "RTX 4070", head="")
    assert (code, run["fits"]) == (1, None)


@on_linux
@pytest.mark.slow
def test_the_saving_that_replaces_the_refused_array_is_tried_and_named(tmp_path: Path) -> None:
    code, run, _ = document(tmp_path, TRAINING, "--ram", "900MiB", "--cpu-only", "--seconds", "40", head="")
    (way,) = run["program"]["ways"]
    assert (code, run["fits"]) == (1, False)
    assert way.startswith(f"legroom train --with lean -- {sys.executable} ") and "(rehearsed: " in way
    assert "of 900.0 MiB" in way or "optimizer step" in way  # that it fits so far, or how far it came
    # less than what it has without any array: tried, and said not to help
    _, run, _ = document(tmp_path, TRAINING, "--ram", "150MiB", "--cpu-only", "--seconds", "40", head="")
    assert not any("--with lean" in way for way in run["program"]["ways"])
    assert any("rehearsed again with --with lean, which does not help" in note for note in run["notes"])


IGNORED = (
    "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'bytearray(4 << 30)'], stderr=subprocess.DEVNULL)",
    "import numpy as np\ntry:\n    np.zeros(4 << 30, np.uint8)\nexcept MemoryError:\n    print('too large')",
)
TRAINS = """
import torch
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), 0.1)
{ignored}
for i in range(200):
    opt.zero_grad(); net(torch.ones(2, 4)).sum().backward(); opt.step()
"""


@on_linux
@pytest.mark.parametrize("ignored", IGNORED)
def test_a_refusal_that_is_ignored_is_the_verdict_however_long_the_program_trains_on(
    tmp_path: Path, ignored: str
) -> None:
    body = TRAINS.format(ignored=ignored)
    code, run, _ = document(tmp_path, body, "--ram", "2GiB", "--cpu-only", head="")
    assert (code, run["fits"]) == (1, False)
