"""`--values real`: what a network reads of its values is computed on the CPU, and the card's bill follows it."""

from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3")

from legroom.backends.sb3.trace import trace_run
from legroom.errors import Untraceable
from legroom.hollow.replaying import replay
from legroom.model.run import Run

NET = """
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor


class Net(BaseFeaturesExtractor):
    def __init__(self, space):
        super().__init__(space, 64)
        self.layer = torch.nn.Linear(4, 64)

    def forward(self, x):
        if self.layer.weight.abs().max().item() < 1e-3:
            raise ValueError("no weights")
        bright = x[x.sum(1) > 0]
        return self.layer(torch.cat([x, bright]))[: len(x)]
"""


def make(folder: Path) -> Run:
    (folder / "reading_net.py").write_text(NET)
    spaces = {"observation": {"type": "box", "shape": [4]}, "action": {"type": "discrete", "n": 2}}
    return Run.model_validate({
        "name": "x", "algo": "PPO", "env": {"spaces": spaces}, "policy": {"features_extractor": "reading_net:Net"},
        "hyperparams": {"n_steps": 2048, "batch_size": 2048, "n_epochs": 1}, "total_timesteps": 4096,
    })  # fmt: skip


def test_values_are_refused_assumed_or_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    run = make(tmp_path)
    with pytest.raises(Untraceable, match="reads a tensor's value"):
        trace_run(run, "cuda")
    real = trace_run(run, "cuda", values="real")
    assumed = trace_run(run, "cuda", values="assume")
    # observations are zeros, so nothing is bright; assuming takes every row for bright: 2048 more rows of 64 floats
    peaks = [replay(net.events, rounds=net.rounds).peak_allocated for net in (real, assumed)]
    assert peaks[0] < peaks[1]
    assert {each.what for each in real.assumed} == {
        "a value computed from observations of zeros", "a mask computed from observations of zeros",
    }  # fmt: skip
