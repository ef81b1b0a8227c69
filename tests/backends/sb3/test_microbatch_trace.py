"""If these fail, a traced or measured prediction with memory.micro_batch is of another update than the one trained."""

import textwrap

import pytest

from legroom.backends.sb3 import trace as sb3_trace
from legroom.backends.sb3.evidence_child import build, update
from legroom.backends.sb3.stored import one_env
from legroom.errors import Untraceable
from legroom.hollow.replaying import replay
from legroom.model.footprint import Phase
from legroom.model.run import Run

IMAGE = {"type": "box", "shape": [84, 84, 4], "dtype": "uint8"}
VECTOR = {"type": "box", "shape": [2000]}


def make(micro_batch=None, algo="PPO", observation=IMAGE, policy=None, source=None, **hyperparams):
    sizes = {"batch_size": 64} if algo == "DQN" else {"n_steps": 128, "batch_size": 256, "n_epochs": 2}
    spaces = {"observation": observation, "action": {"type": "discrete", "n": 6}}
    return Run.model_validate(
        {
            "algo": algo,
            "env": {"n_envs": 2, "spaces": spaces},
            "policy": policy or {"name": "CnnPolicy" if observation is IMAGE else "MlpPolicy"},
            "hyperparams": sizes | hyperparams,
            "memory": {"micro_batch": micro_batch},
            "total_timesteps": 1000,
            "source": source,
        }
    )


@pytest.mark.parametrize("algo", ["PPO", "MaskablePPO", "DQN"])
def test_micro_batches_need_less_on_a_card(algo):
    whole, pieces = (sb3_trace.trace_run(make(size, algo), "cuda") for size in (None, 8))
    assert (pieces.weights, pieces.gradients, pieces.optimizer) == (whole.weights, whole.gradients, whole.optimizer)
    assert (
        replay(pieces.events, rounds=pieces.rounds).peak_reserved
        < replay(whole.events, rounds=whole.rounds).peak_reserved
    )
    assert pieces.convolution < whole.convolution


def test_activations_on_the_cpu_are_those_of_a_micro_batch():
    whole, pieces = (sb3_trace.trace_run(make(size), "cpu").transient[Phase.UPDATE] for size in (None, 64))
    assert whole["activations"] / 4 <= pieces["activations"] < 1.3 * whole["activations"] / 4
    assert pieces["batch"] < 0.3 * whole["batch"]


@pytest.mark.parametrize(
    ("algo", "hyperparams"),
    [("PPO", {}), ("PPO", {"n_steps": 250}), ("DQN", {"gradient_steps": 3})],
    ids=["ppo", "a short last minibatch", "dqn"],
)
def test_micro_batches_that_are_copied_are_those_that_would_be_traced(algo, hyperparams, monkeypatch):
    run = make(36 if algo == "PPO" else 9, algo, VECTOR, **hyperparams)  # seven pieces and a smaller one
    few = sb3_trace.trace_run(run, "cuda")
    monkeypatch.setattr(sb3_trace, "TRACED_PARTS", 10_000)
    all_of_them = sb3_trace.trace_run(run, "cuda")
    assert few.transient == all_of_them.transient
    assert (
        replay(few.events, rounds=few.rounds).peak_allocated
        == replay(all_of_them.events, rounds=all_of_them.rounds).peak_allocated
    )


@pytest.mark.parametrize("algo", ["PPO", "MaskablePPO", "DQN"])
def test_the_update_that_is_measured_is_one_of_two_micro_batches(algo, monkeypatch):
    monkeypatch.setattr("legroom.backends.sb3.evidence_child.TIME_S", 0)  # few rounds
    model = build(one_env(make(8, algo, VECTOR)), 8)
    sizes, features = [], model.policy.extract_features
    if algo == "DQN":
        features = model.policy.q_net.extract_features
        model.policy.q_net.extract_features = lambda obs, *rest: sizes.append(len(obs)) or features(obs, *rest)
    else:
        model.policy.extract_features = lambda obs, *rest: sizes.append(len(obs)) or features(obs, *rest)
    update(model, 8)
    sizes = [size for size in sizes if size > 1]
    assert sizes == [8, 8] * (len(sizes) // 2) and sizes  # rounds go on until the peak stands still


def test_a_layer_that_forbids_micro_batches_is_named(tmp_path):
    (tmp_path / "normed_nets.py").write_text(
        textwrap.dedent("""
        import torch
        from stable_baselines3.common.torch_layers import FlattenExtractor

        class Normed(FlattenExtractor):
            def __init__(self, space):
                super().__init__(space)
                self.norm = torch.nn.BatchNorm1d(2000)
            def forward(self, x):
                return self.norm(super().forward(x))
        """)
    )
    (tmp_path / "run.yaml").touch()
    policy = {"features_extractor": "normed_nets:Normed"}
    with pytest.raises(Untraceable, match=r"BatchNorm1d \(features_extractor\.norm\)"):
        sb3_trace.trace_run(make(8, "PPO", VECTOR, policy, str(tmp_path / "run.yaml")), "cpu")
