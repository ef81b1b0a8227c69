"""If these fail, a training's first lines name other networks than it trains."""

from __future__ import annotations

import re
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from stable_baselines3 import DQN

import legroom
from legroom.backends.sb3.judging import architecture, cleaned_line, measured_items, opening_lines
from legroom.reading import read, run_from_dict

FIRE = {
    "original": "FireNet (residual, multi_scale and attention)",
    "medium": "FireNet (residual only)",
    "low": "FireNet (without residual, multi_scale, attention)",
}


@pytest.mark.parametrize(("name", "said"), FIRE.items())
def test_switches_tell_variants_of_a_network_apart(name, said):
    assert architecture(read(f"fire:{name}")) == said


def test_other_arguments_are_named_and_a_policy_stands_for_itself():
    assert architecture(read("mine:small")).startswith("Cnn3d (size=")
    assert architecture(run_from_dict({"algo": "DQN", "env": {"id": "CartPole-v1"}})) == "MlpPolicy"


def test_on_the_cpu_parameters_and_host_memory_are_said():
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=10, device="cpu")
    (line,) = opening_lines(run_from_dict({"algo": "DQN", "env": {"id": "CartPole-v1"}}), model)
    # 4·64 + 64 + 64·64 + 64 + 64·2 + 2; the target network is not trained
    assert line.startswith("networks: MlpPolicy, 4,610 parameters; host memory ")
    assert cleaned_line(model) is None


WATCHED = """
from stable_baselines3 import DQN
from legroom.backends.sb3.judging import cleaned_line, opening_lines
from legroom.reading import run_from_dict

run = run_from_dict({"algo": "DQN", "env": {"id": "CartPole-v1"}})
options = {"learning_starts": 32, "buffer_size": 1000, "policy_kwargs": {"net_arch": [512, 512]}}
model = DQN("MlpPolicy", "CartPole-v1", device="cuda", **options)
print(*opening_lines(run, model), sep="\\n", flush=True)
model.learn(100)
print(cleaned_line(model), flush=True)
"""


def test_on_a_gpu_its_memory_is_said_at_the_start_with_the_networks_and_after_cleanup(tmp_path):
    """The wildfire document's three lines, on the simulated GPU of its size; every one asks torch.cuda."""
    (tmp_path / "watched.py").write_text(WATCHED)
    command = [sys.executable, "-m", "legroom.cli.main", "predict", "--all", "--vram", "3.68GiB", "--", sys.executable]
    done = subprocess.run([*command, "watched.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "GPU memory" in line][:3]
    assert re.match(r"GPU memory at the start: 3\.7 GiB on a .+, 3\.\d GiB free$", said[0]), done.stderr[-2000:]
    # 4·512 + 512 + 512·512 + 512 + 512·2 + 2 parameters, twice with the target network: 2.03 MiB of float32
    networks = r"networks: MlpPolicy, 266,242 parameters; GPU memory 2\.0 MiB allocated, 4\.0 MiB reserved$"
    assert re.match(networks, said[1])
    sizes = r"GPU memory after cleanup: ([\d.]+) MiB allocated, ([\d.]+) MiB reserved, ([\d.]+) MiB before$"
    allocated, reserved, before = map(float, re.match(sizes, said[2]).groups())
    assert 4 * 266_242 * 4 / 2**20 < allocated <= reserved < before  # weights, target and Adam's two stay


class Pictures(gymnasium.Env):
    """Of 7,056 bytes; they never change."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((84, 84), np.uint8), {}

    def step(self, action):
        return np.zeros((84, 84), np.uint8), 0.0, False, False, {}


def test_a_decoded_copy_is_measured_by_the_name_it_has_in_the_bill():
    """In with the stored observations it made them look five times as large as predicted."""
    model = legroom.lean("PPO", "MlpPolicy", Pictures(), n_steps=64, batch_size=32, n_epochs=2, max_bytes=1 << 30)
    model.learn(128)
    items = measured_items(model, model.get_env())
    assert items["rollout.decoded copy"] == 64 * 84 * 84
    assert items["rollout.observations"] < 64 * 84 * 84 // 2
