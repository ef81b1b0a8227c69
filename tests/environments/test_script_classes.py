"""A class of a training script is had without training: its definitions run, nothing else of it does."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from legroom.environments.objects import resolve_object
from legroom.environments.script_classes import lift, named_by_file
from legroom.errors import BadInput
from legroom.model.run import Run

SCRIPT = """
    import os
    import not_installed_at_all
    try:
        import tomllib
    except ImportError:
        tomllib = None
    from pathlib import Path

    WIDTH, DEPTH = 2 * 8, 3
    SHAPE = (WIDTH, DEPTH)
    UNUSED = 10 ** 3
    MADE = Path("left").write_text("x")
    Path("trace.txt").write_text("ran")
    os.environ["RAN"] = "1"

    class Net:
        shape = SHAPE
        def made(self):
            return MADE

    class Child(Net):
        pass

    class Broken(not_installed_at_all.Base):
        pass

    def factory():
        return Child()

    if __name__ == "__main__":
        class Hidden:
            pass
    for _ in range(3):
        Path("loop.txt").write_text("ran")
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(SCRIPT))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAN", raising=False)
    return path


def test_definitions_are_executed_and_nothing_else(script: Path) -> None:
    net = resolve_object(f"{script}:Child")
    assert net.shape == (16, 3)
    assert resolve_object(f"{script}:factory")().__class__ is net
    module = lift(str(script))
    assert not {"MADE", "Hidden", "_"} & set(vars(module))
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]


@pytest.mark.parametrize(("name", "why"), [("Broken", "line 25 raised NameError"), ("Hidden", "only imports, classes")])
def test_what_cannot_be_had_says_why(script: Path, name: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        resolve_object(f"{script}:{name}")


def test_classes_of_the_script_are_named_by_its_file(script: Path) -> None:
    spaces = {"observation": {"type": "box", "shape": [4]}, "action": {"type": "discrete", "n": 2}}
    policy = {"kwargs": {"features_extractor_class": "__main__:Net"}}
    run = Run.model_validate({"algo": "PPO", "env": {"id": "__main__:World", "spaces": spaces}, "policy": policy})
    named = named_by_file(run, script)
    assert named.env.id == f"{script}:World"
    assert named.policy.kwargs == {"features_extractor_class": f"{script}:Net"}
    assert named.env.spaces == run.env.spaces
    assert named_by_file(run, Path("run.yaml")) == run


TRAINING = """
    import gymnasium as gym
    import numpy as np
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    SIZE = 6

    class World(gym.Env):
        def __init__(self):
            self.observation_space = gym.spaces.Box(-1, 1, shape=(len("x" * SIZE),), dtype=np.float32)
            self.action_space = gym.spaces.Discrete(2)
        def reset(self, *, seed=None, options=None):
            return self.observation_space.sample(), {}
        def step(self, action):
            return self.observation_space.sample(), 0.0, False, False, {}

    class Net(BaseFeaturesExtractor):
        def __init__(self, space):
            super().__init__(space, 100)
            self.net = torch.nn.Linear(SIZE, 100)
        def forward(self, x):
            return self.net(x / 2 if x.max() > 1 else x)

    class Mine(PPO):
        pass

    open("ran", "w").close()
    model = Mine("MlpPolicy", World(), n_steps=32, batch_size=32, device="cuda",
                 policy_kwargs=dict(features_extractor_class=Net))
    model.learn(1000)
"""


def predict(folder: Path, *options: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "legroom.cli.main", "predict", "train.py", "--json", "--vram", "8GiB", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)["runs"][0]


def test_a_script_with_classes_of_its_own_is_predicted_where_it_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAINING))
    code, unseen = predict(tmp_path)
    assert (code, unseen["fits"]) == (1, None)
    assert "--trust" in unseen["notes"][0]
    code, refused = predict(tmp_path, "--trust")
    assert (code, refused["fits"]) == (1, None)
    assert "train.py:24 reads a tensor's value" in refused["unknown"][0]
    assert "--values assume" in refused["unknown"][0]
    code, assumed = predict(tmp_path, "--trust", "--values", "assume")
    assert (code, assumed["fits"]) == (0, True)
    (told,) = assumed["assumed"]
    assert (told["file"], told["line"], told["what"]) == (str(tmp_path / "train.py"), 24, "gt read as False")
    assert told["count"] > 1
    assert not (tmp_path / "ran").exists()
