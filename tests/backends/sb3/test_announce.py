"""If these fail, a training's first lines name other networks than it trains."""

from __future__ import annotations

import pytest
from stable_baselines3 import DQN

from legroom.backends.sb3.measured_items import architecture, cleaned_line, opening_lines
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
