"""A script that puts more on the card than its run is never said to fit; one that does not is."""

from pathlib import Path

import pytest

from legroom.backends.sb3.script_tensors import beside_the_run
from legroom.model.run import Run

HEAD = """import torch
from torch import nn
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""


def said(folder: Path, text: str) -> str:
    script = folder / "train.py"
    script.write_text(HEAD + text)
    spaces = {"observation": {"type": "box", "shape": [4]}, "action": {"type": "discrete", "n": 2}}
    run = Run.model_validate({"name": "x", "algo": "PPO", "env": {"spaces": spaces}, "source": str(script)})
    return beside_the_run(run)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("teacher = nn.Linear(4, 90000).to('cuda')", 6),
        ("teacher = nn.Linear(4, 90000).to(device)", 6),
        ("teacher = nn.Linear(4, 90000).cuda()", 6),
        ("x = torch.zeros(9, 9, device='cuda:0')", 6),
        ("x = torch.zeros(9, 9, device='cuda' if device else 'cpu')", 6),
        ("x = torch.load('x.pt', map_location=torch.device('cuda'))", 6),
        ("torch.set_default_device('cuda')", 6),
        ("class Hoard(BaseCallback):\n    def _on_step(self):\n        self.x = torch.zeros(9, device='cuda')", 8),
        ("def make():\n    return nn.Linear(1, 2).to(device)", 7),
        ("model = PPO('MlpPolicy', 'CartPole-v1')\nmodel.policy.mlp_extractor.policy_net = nn.Linear(4, 64)", 7),
    ],
)  # fmt: skip
def test_what_a_script_puts_on_the_card_beside_its_run_is_named(tmp_path: Path, text: str, line: int) -> None:
    assert f"train.py:{line} " in said(tmp_path, text)


def test_what_a_module_beside_it_puts_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "helping.py").write_text("import torch\nx = torch.zeros(3, device='cuda')\n")
    assert "helping.py:2 " in said(tmp_path, "from helping import x")


@pytest.mark.parametrize(
    "text",
    [
        "model = PPO('MlpPolicy', 'CartPole-v1', device='cuda')\nmodel.learn(10)",
        "model = PPO('MlpPolicy', 'CartPole-v1', device=device)",
        "model = PPO.load('x.zip', device='cuda')",
        "print(torch.cuda.is_available(), torch.cuda.get_device_name(0))",
        "x = torch.zeros(3).to('cpu')\ny = torch.zeros(3, device='cpu').to(torch.float16)",
        "class Net(nn.Module):\n    def forward(self, x):\n        return x + torch.zeros(3, device=x.device)",
        "class Mine(PPO):\n    def train(self):\n        self.x = torch.zeros(3, device='cuda')\nMine(device='cuda')",
        "class Log(BaseCallback):\n    def _on_step(self):\n        self.logger.record('a', 1)\n        return True",
        "PPO('MlpPolicy', 'CartPole-v1').policy.eval()",
    ],
)
def test_a_run_and_its_own_classes_are_not(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, text) == ""
