"""PyTorch's allocator has a band of its own, without the CUDA context; what is not modelled widens it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from legroom.backends.sb3.trace import trace_run
from legroom.fitting.predictor import priced
from legroom.hollow.cuda_allocator import ROUND_SEGMENT_BYTES
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.predicting.gpu import CONTEXT_BYTES, CONTEXT_ERROR, gpu_items
from legroom.predicting.predict import gather
from legroom.rendering.prediction_text import prediction_json
from legroom.units import GIB

MACHINE = Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=0)


def make_run(**changes: Any) -> Run:
    spaces = {"observation": {"type": "box", "shape": [4]}, "action": {"type": "discrete", "n": 2}}
    data = {"algo": "PPO", "env": {"spaces": spaces}, "hyperparams": {"n_steps": 32, "batch_size": 32}}
    return Run.model_validate(data | changes)


def told(run: Run, budget: Budget) -> Any:
    known, evidence = gather(run, MACHINE, mode="arithmetic", device="cuda")
    return json.loads(prediction_json([priced(known, evidence, budget)]))["runs"][0]["gpu"]


def test_the_allocator_has_a_band_and_a_limit_without_the_context() -> None:
    gpu = told(make_run(), Budget(ram=8 * GIB, vram=8 * GIB, reserve=0.5))
    allocator = gpu["allocator"]
    # the upper end of the context, which the verdict counts too
    assert allocator["limit"] == 4 * GIB - CONTEXT_BYTES - CONTEXT_ERROR
    low, high = allocator["band"]
    assert low < allocator["peak_reserved"] < high
    assert high - low < 2 * CONTEXT_ERROR < gpu["band"][1] - gpu["band"][0]


def test_without_a_card_there_is_no_limit() -> None:
    assert told(make_run(), Budget(ram=8 * GIB))["allocator"]["limit"] is None


OPERATOR = """
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

@torch.library.custom_op("somebodys::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)

class Net(BaseFeaturesExtractor):
    def __init__(self, space, twice=True):
        super().__init__(space, 4)
        self.twice = twice
    def forward(self, x):
        return twice(x) if self.twice else x * 2
"""


def test_an_operator_of_an_extension_widens_the_band(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "somebodys_nets.py").write_text(OPERATOR)
    monkeypatch.syspath_prepend(str(tmp_path))
    errors = []
    for known in (True, False):
        policy = {"features_extractor": "somebodys_nets:Net", "features_extractor_kwargs": {"twice": not known}}
        net = trace_run(make_run(policy=policy), "cuda")
        assert bool(net.unmodelled) is not known
        errors.append(gpu_items(make_run(policy=policy), net, MACHINE)[1].error)
    assert errors[0] == ROUND_SEGMENT_BYTES
    assert errors[1] > errors[0]
