"""Whatever keeps a run's networks from being traced, nobody is told that it fits.

Each test is a way in which `gather` falls back to arithmetic; the budget would hold what arithmetic says many times.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from legroom.backends.sb3.bill import scratch, tracing
from legroom.errors import MissingExtra, Unknown
from legroom.fitting.predictor import Predictor, priced
from legroom.fitting.search import fit
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits, gpu_fits
from legroom.predicting.predict import add_up, gather
from legroom.rendering.prediction_text import verdict_text
from legroom.units import GIB

MACHINE = Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=0)
ROOMY = Budget(ram=64 * GIB, vram=80 * GIB)
NETS = """
    import os, torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class NatureCNN(BaseFeaturesExtractor):
        def __init__(self, space):
            super().__init__(space, 8)
            self.net = torch.nn.Linear(4, 8)
        def forward(self, x):
            return self.net(x)

    class Reads(NatureCNN):
        def forward(self, x):
            return self.net(x / 255 if x.max() > 1 else x)

    class Counts(NatureCNN):
        def forward(self, x):
            return self.net(x[x.sum(dim=1).nonzero().squeeze(1)])

    class Raises(NatureCNN):
        def forward(self, x):
            raise ValueError("no rows today")

    class Dies(NatureCNN):
        def forward(self, x):
            os._exit(3)

    class Policy(ActorCriticPolicy):
        pass

    class Own(PPO):
        pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_nets.py").write_text(textwrap.dedent(NETS))
    (tmp_path / "run.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_with(folder: Path, algo: str = "PPO", **changes: Any) -> Run:
    spaces = {"observation": {"type": "box", "shape": [4]}, "action": {"type": "discrete", "n": 2}}
    data = {"algo": algo, "env": {"spaces": spaces}, "hyperparams": {"n_steps": 32, "batch_size": 32}}
    return Run.model_validate(data | {"source": str(folder / "run.yaml")} | changes)


OWN = {
    "an extractor": {"policy": {"features_extractor": "own_nets:Reads"}},
    "an extractor among the arguments": {"policy": {"kwargs": {"features_extractor_class": "own_nets:Reads"}}},
    "one that is called like the library's": {"policy": {"features_extractor": "own_nets:NatureCNN"}},
    "a class of the script": {"policy": {"features_extractor": "__main__:Net"}},
    "a policy": {"policy": {"name": "own_nets:Policy"}},
    "a policy that nobody knows": {"policy": {"name": "MyCnnPolicy"}},
    "an algorithm": {"algo_class": "own_nets:Own"},
    "an activation": {"policy": {"kwargs": {"activation_fn": "own_nets:Reads"}}},
    "an optimizer": {"policy": {"kwargs": {"optimizer_class": "own_nets:Opt"}}},
    "an optimizer with a history": {"policy": {"kwargs": {"optimizer_class": "torch.optim.LBFGS"}}},
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("what", OWN)
def test_arithmetic_does_not_bill_a_network_of_ones_own(folder: Path, what: str, device: Any) -> None:
    run, evidence = gather(run_with(folder, **OWN[what]), MACHINE, mode="arithmetic", device=device)
    footprint = add_up(run, evidence)
    assert fits(footprint, ROOMY) is None
    assert "arithmetic does not know" in footprint.unknown[0]
    assert fits(footprint, Budget(ram=1, vram=1)) is False  # what is known may be too much already


def test_what_sb3_refuses_is_said_without_what_came_of_trying_it(folder: Path) -> None:
    spaces = {"observation": {"type": "box", "shape": []}, "action": {"type": "discrete", "n": 2}}
    run, evidence = gather(run_with(folder, env={"spaces": spaces}), MACHINE, device="cpu")
    footprint = add_up(run, evidence)
    assert fits(footprint, ROOMY) is False and footprint.unknown == ("it could not be traced: SB3 refuses this run",)
    assert [found.message for found in footprint.findings if found.severity == "error"] == [
        "SB3's policies cannot flatten an observation of shape (), a single number without a dimension"
    ]
    assert not any("IndexError" in note for note in footprint.notes), footprint.notes


@pytest.mark.parametrize("what", OWN)
def test_without_trust_a_network_of_ones_own_is_unseen(folder: Path, what: str, monkeypatch: Any) -> None:
    refused = scratch.Answer(None, "it is refused")
    monkeypatch.setattr(tracing, "trace_in_child", lambda requests: [refused for _ in requests])
    run, evidence = gather(run_with(folder, **OWN[what]), MACHINE, device="cuda")
    footprint = add_up(run, evidence)
    assert fits(footprint, ROOMY) is None
    assert footprint.unseen or footprint.unknown


def test_what_the_library_has_is_known_by_arithmetic(folder: Path) -> None:
    known: list[dict[str, Any]] = [
        {},
        {"policy": {"features_extractor": "stable_baselines3.common.torch_layers:FlattenExtractor"}},
        {"policy": {"kwargs": {"activation_fn": "nn.ReLU", "optimizer_class": "torch.optim.AdamW"}}},
    ]
    for changes in known:
        run, evidence = gather(run_with(folder, **changes), MACHINE, mode="arithmetic", device="cuda")
        assert fits(add_up(run, evidence), ROOMY) is True


def no_torch(_: Any) -> Any:
    raise MissingExtra("sb3", "torch", what="tracing a run")


def test_without_torch_only_known_networks_have_a_verdict(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "trace_in_child", no_torch)
    run, evidence = gather(run_with(folder, **OWN["an extractor"]), MACHINE, device="cuda", trust=True)
    assert fits(add_up(run, evidence), ROOMY) is None
    run, evidence = gather(run_with(folder), MACHINE, device="cuda")
    assert fits(add_up(run, evidence), ROOMY) is True


@pytest.mark.parametrize("why", ["tracing took more than 240 s", "the tracing process died: Segmentation fault"])
@pytest.mark.parametrize("changes", [{}, OWN["an extractor"]], ids=["the library's", "one's own"])
def test_what_ended_while_it_was_traced_is_unknown(folder: Path, changes: Any, why: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(tracing, "trace_in_child", lambda requests: [scratch.Answer(None, why) for _ in requests])
    run, evidence = gather(run_with(folder, **changes), MACHINE, device="cuda", trust=True)
    footprint = add_up(run, evidence)
    assert fits(footprint, ROOMY) is None
    assert why in footprint.unknown[0]


def test_every_place_that_judges_says_the_same(folder: Path) -> None:
    run, evidence = gather(run_with(folder, **OWN["a policy"]), MACHINE, mode="arithmetic", device="cuda")
    prediction = priced(run, evidence, ROOMY)
    assert prediction.bad
    assert verdict_text(prediction).startswith("unknown whether it fits: arithmetic does not know the networks of")
    assert gpu_fits(prediction.footprint, ROOMY) is None
    with pytest.raises(Unknown, match="arithmetic does not know"):
        fit(run, ROOMY, Predictor(run, MACHINE, mode="arithmetic", device="cuda"))


REASONS = {
    "own_nets:Reads": r"own_nets\.py:16 reads a tensor's value",
    "own_nets:Counts": r"own_nets\.py:20",
    "own_nets:Raises": r"own_nets\.py:24, in forward: ValueError: no rows today",
    "own_nets:Dies": r"ended with exit code 3",
    "own_nets:Missing": r"own_nets has no 'Missing'",
}


def test_what_a_trace_meets_is_a_reason_and_never_fits(folder: Path) -> None:
    runs = [run_with(folder, policy={"features_extractor": name}) for name in REASONS]
    looks = tracing.look(runs, ["cuda"] * len(runs), MACHINE, "auto")
    for look, reason in zip(looks, REASONS.values(), strict=True):
        assert look.net is not None
        assert not look.net.traced
        assert re.search(reason, look.unknown), look.unknown
