"""Where the C core could not be built: buffers are plain and say so, nothing lean is proposed, the rest refuses."""

import re
import subprocess
import sys

import pytest

WITHOUT_CORE = "import sys; sys.modules['legroom.storing._core'] = None\n"
BUFFERS = """
import warnings
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
import legroom
from legroom.errors import BadInput

picture, actions = spaces.Box(0, 255, (20, 20), np.uint8), spaces.Discrete(2)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    kinds = (ReplayBuffer, legroom.LeanReplayBuffer)
    plain, lean = (kind(50, picture, actions, device="cpu", n_envs=2) for kind in kinds)
    rollout = legroom.LeanRolloutBuffer(8, picture, actions, device="cpu", n_envs=2)
assert len(said) == 1 and "stored plainly" in str(said[0].message) and "pip install" in str(said[0].message)

rng = np.random.default_rng(0)
for _ in range(40):
    seen = rng.integers(0, 255, (2, 20, 20), np.uint8)
    for buffer in (plain, lean):
        buffer.add(seen, seen + 1, np.zeros((2, 1)), np.zeros(2), np.zeros(2), [{}, {}])
batches = []
for buffer in (plain, lean):
    np.random.seed(1)
    batches.append(buffer.sample(30))
assert all(bool((one == other).all()) for one, other in zip(batches[0][:5], batches[1][:5]))
assert lean.nbytes >= 2 * 25 * 2 * 400  # 25 rows of 2 environments, and what followed

for refused in (lambda: legroom.LeanArray((4,), "u1"), lambda: legroom.LeanArray.open("frames.bin")):
    try:
        refused()
    except BadInput as error:
        assert "C core" in str(error) and "install a C compiler" in str(error) and "\\n" not in str(error)
    else:
        raise SystemExit("not refused")

legroom.attach("lean")
attached = ReplayBuffer(50, picture, actions, device="cpu", n_envs=2)
assert type(attached) is ReplayBuffer
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_CORE + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_buffers_are_plain_and_say_so():
    ended = python(BUFFERS)
    assert not ended.returncode, ended.stderr
    assert "the C core of lean storage cannot be loaded" in ended.stderr  # attach says it, too


def legroom(*arguments: str, settings: tuple[str, ...]) -> str:
    options = [part for each in settings for part in ("--set", each)]
    command = "import sys; from legroom.cli.main import main; sys.exit(main())"
    ended = python(command, *arguments, "--mode", "arithmetic", *options)
    return " ".join((ended.stdout + ended.stderr).split())


@pytest.mark.parametrize("settings", [(), ("memory.rollout=lean", "memory.max_bytes=1GiB")])
def test_nothing_lean_is_proposed_or_counted(settings):
    text = legroom("fit", "mine:full", "--ram", "8GiB", settings=settings)
    before = re.search(r"as it is: host ([\d.]+) GiB", text)
    # 2,048 steps of 4 environments, 13 MiB each, and the copy of them that is flattened
    assert before and float(before[1]) > 2 * 2048 * 4 * 13 / 1024, text
    assert "hyperparams.n_steps 2,048" in text, text
    proposed = text.partition("train it, or save it")[0]  # the command after it repeats what was given
    assert "memory.rollout" not in proposed and "memory.max_bytes" not in proposed, text


def test_what_asks_for_it_is_said_to_have_no_effect():
    settings = ("memory.rollout=lean", "memory.max_bytes=1GiB")
    text = legroom("predict", "mine:small", "--ram", "16GiB", settings=settings)
    assert "memory.rollout: the C core of lean storage cannot be loaded" in text
    assert "observations are stored plainly (install a C compiler" in text
    assert "memory.max_bytes has no effect on plain storage" in text
