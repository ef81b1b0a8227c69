"""`predict train.py` names the command that runs the script, wherever reading fails or knows only a part."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def predict(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "legroom.cli.main", "predict", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, timeout=120)


def test_a_script_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    done = predict("train.py", "--gpu", "RTX 4070", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith("or run it on a simulated GPU: legroom predict --gpu 'RTX 4070' -- python train.py)")


def test_a_script_whose_environment_is_not_known(tmp_path: Path) -> None:
    text = "from stable_baselines3 import PPO\nfrom my_envs import Env\nmodel = PPO('MlpPolicy', Env(), n_steps=64)\n"
    (tmp_path / "train.py").write_text(text)
    done = predict("train.py", "--set", "env.n_envs=1", cwd=tmp_path)
    assert done.returncode == 2 and "-- python train.py)" in done.stderr


def test_a_script_of_which_only_a_part_is_known(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("""
import torch
from stable_baselines3 import PPO
class Net(torch.nn.Module): ...
model = PPO("MlpPolicy", "CartPole-v1", policy_kwargs=dict(features_extractor_class=Net))
""")
    done = predict("train.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "legroom: if you trust it: legroom predict train.py --trust; to know the rest, run it on a simulated GPU: "
        "legroom predict -- python train.py"
    )


def test_a_run_file_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("algo: PPO\n")
    assert "-- python" not in predict("run.yaml", cwd=tmp_path).stderr


def test_memory_of_a_module_beside_the_script_is_named_where_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text("import numpy as np\n\n\ndef make():\n    return np.ones(3_000_000_000)\n")
    (tmp_path / "train.py").write_text(
        "from stable_baselines3 import DQN\nfrom world import make\nkept = make()\n"
        'DQN("MlpPolicy", "CartPole-v1", buffer_size=1000).learn(1000)\n'
    )
    done = predict("train.py", "--ram", "8GiB", cwd=tmp_path)
    assert done.returncode == 1
    assert "train.py: world.py:5: np.ones(3000000000) takes memory beside what is trained" in done.stderr
    assert done.stderr.rstrip().endswith("legroom predict --ram 8GiB -- python train.py")


@pytest.mark.parametrize("text", ["", "def f(:\n"])
def test_what_python_would_not_start_is_not_offered_to_be_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    done = predict("train.py", cwd=tmp_path)
    assert done.returncode == 2 and "-- python" not in done.stderr
