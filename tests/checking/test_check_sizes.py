"""Sizes that a source states itself, against the machine: arrays, and deques of observations."""

import pytest

from legroom.checking.check import check
from legroom.model.machine import Machine
from legroom.model.verdict import Budget
from legroom.units import GIB

MACHINE = Machine(32 * GIB, None, 32 * GIB, 0, GIB, cores=8, versions={})
BUDGET = Budget(32 * GIB, 8 * GIB, ram_origin="given")

ARRAY = "import numpy as np\nimport torch\nN = 1_000_000\nobs = np.zeros((N, 4, 84, 84), dtype=np.{0})\n"
WORLD = """\
import gymnasium as gym
from collections import deque
class World(gym.Env):
    def __init__(self):
        self.observation_space = gym.spaces.Box(0, 255, shape=(200, 200, 3), dtype="uint8")
    def act(self): ...
memory = deque(maxlen={0})
while True:
    memory.append((state, action, reward, next_state))
"""


def said(folder, text, name):
    file = folder / "train.py"
    file.write_text(text)
    (checked,) = check([str(file)], machine=MACHINE, budget=BUDGET)
    return [f for f in checked.findings if f.name == name]


def test_an_array_that_is_larger_than_the_machine_is_found_with_its_size(tmp_path):
    (found,) = said(tmp_path, ARRAY.format("float32"), "array-exceeds-memory")
    # 1,000,000 x 4 x 84 x 84 x 4 B = 112,896,000,000 B = 105.1 GiB
    assert found.line == 4 and "105.1 GiB" in found.message and "32.0 GiB of RAM (given)" in found.message


@pytest.mark.parametrize(
    "text",
    [
        ARRAY.format("uint8"),  # 26.3 GiB
        "import numpy as np\nimport torch\nobs = np.zeros((n(), 84, 84), dtype=np.float32)\n",
        "import torch\nobs = torch.zeros(10_000, 4, 84, 84, device=device)\n",
    ],
)
def test_an_array_that_fits_or_is_not_known_is_passed_over(tmp_path, text):
    assert said(tmp_path, text, "array-exceeds-memory") == []


def test_an_array_on_the_card_is_held_against_its_memory(tmp_path):
    text = "import torch\nbuffer = torch.zeros((100_000, 4, 84, 84), device='cuda')\n"
    (found,) = said(tmp_path, text, "array-exceeds-memory")  # 10.5 GiB of 8
    assert "10.5 GiB" in found.message and "more than 8.0 GiB" in found.message


def test_a_deque_of_observations_is_multiplied_out(tmp_path):
    text = WORLD.format("150_000").replace('dtype="uint8"', "dtype=np.uint8")
    (found,) = said(tmp_path, text, "replay-exceeds-memory")
    # 150,000 x 2 x 120,000 B = 36,000,000,000 B = 33.5 GiB
    assert "33.5 GiB when it is full" in found.message and found.line == 7


def test_a_deque_that_fits_is_passed_over(tmp_path):
    assert (
        said(tmp_path, WORLD.format("10_000").replace('dtype="uint8"', "dtype=np.uint8"), "replay-exceeds-memory") == []
    )
