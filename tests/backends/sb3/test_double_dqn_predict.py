"""If these fail, what is predicted for a DoubleDQN run is of another update than the one that is trained."""

import pytest

from legroom.backends.sb3 import trace as sb3_trace
from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill.buffers import replay_items
from legroom.backends.sb3.bill.net_arithmetic import count_parameters
from legroom.backends.sb3.evidence_child import build, update
from legroom.backends.sb3.stored import one_env
from legroom.hollow.replaying import replay
from legroom.model.evidence import Evidence
from legroom.model.footprint import Known
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.predicting.constraints import broken_rules

CELL, SET = {"type": "discrete", "n": 300}, {"type": "multidiscrete", "nvec": [300] * 5}

EVIDENCE = Evidence(
    Machine(ram=1, limit=None, available=1, swap=0, shm=0), "cpu", BaseFigures(0, 0, 0, {}, Known.DEFAULT)
)


def make(action=SET, micro_batch=None, algo="DoubleDQN", n_envs=2, **hyperparams):
    spaces = {"observation": {"type": "box", "shape": [500]}, "action": action}
    return Run.model_validate(
        {
            "algo": algo,
            "env": {"n_envs": n_envs, "spaces": spaces},
            "policy": {"name": "MlpPolicy"},
            "hyperparams": {"batch_size": 64, "buffer_size": 100_000, "learning_rate": "lin_1e-3"} | hyperparams,
            "memory": {"micro_batch": micro_batch},
            "total_timesteps": 1000,
        }
    )


def test_sets_have_the_networks_of_single_cells():
    traces = [sb3_trace.trace_run(run, "cuda") for run in (make(CELL, algo="DQN"), make(CELL), make(SET))]
    assert len({(t.parameters, t.weights, t.targets, t.gradients, t.optimizer) for t in traces}) == 1
    assert count_parameters(make(SET)) == traces[0].parameters == 2 * (500 * 64 + 64 + 64 * 64 + 64 + 64 * 300 + 300)


def test_the_second_pass_for_the_target_is_traced():
    plain, double = (sb3_trace.trace_run(make(double=on), "cuda") for on in (False, True))
    forward = 64 * (2 * 64 + 300) * 4  # two layers and the values of the online network for the next observations
    asked = [sum(event[2] for event in trace.events if len(event) == 3) for trace in (plain, double)]
    assert asked[1] - asked[0] >= forward
    assert (
        replay(double.events, rounds=double.rounds).peak_allocated
        >= replay(plain.events, rounds=plain.rounds).peak_allocated
    )


def test_micro_batches_that_are_copied_are_those_that_would_be_traced(monkeypatch):
    run = make(micro_batch=9)  # seven pieces and a smaller one
    few = sb3_trace.trace_run(run, "cuda")
    assert (
        replay(few.events, rounds=few.rounds).peak_allocated
        < replay(sb3_trace.trace_run(make(), "cuda").events).peak_allocated
    )
    monkeypatch.setattr(sb3_trace, "TRACED_PARTS", 10_000)
    all_of_them = sb3_trace.trace_run(run, "cuda")
    assert few.transient == all_of_them.transient
    assert (
        replay(few.events, rounds=few.rounds).peak_allocated
        == replay(all_of_them.events, rounds=all_of_them.rounds).peak_allocated
    )


@pytest.mark.parametrize("micro_batch", [None, 16])
def test_an_update_is_measured_for_real(micro_batch):
    run = one_env(make(micro_batch=micro_batch))
    model = build(run, 16)
    assert model.sets.chosen == 5
    peaks, kept = update(model, 16)
    assert max(peaks) >= kept > 0
    assert model.priorities.highest >= 1


@pytest.mark.parametrize(
    ("n_envs", "buffer_size", "nbytes"),
    [(16, 100_000, 16 * 131_072), (3, 1_000, 16 * 1_024), (1, 4_096, 16 * 4_096), (1, 4_097, 16 * 8_192)],
)
def test_the_tree_of_priorities_is_an_item(n_envs, buffer_size, nbytes):
    items = {item.name: item for item in replay_items(make(n_envs=n_envs, buffer_size=buffer_size), EVIDENCE)}
    assert items["replay.priorities"].nbytes == nbytes
    assert items["replay.actions"].nbytes == min(buffer_size // n_envs, -(-1000 // n_envs)) * n_envs * 5 * 8


def test_drawn_uniformly_there_is_no_tree():
    assert "replay.priorities" not in {item.name for item in replay_items(make(priority_alpha=0), EVIDENCE)}
    assert "replay.priorities" not in {item.name for item in replay_items(make(CELL, algo="DQN"), EVIDENCE)}


def test_actions_that_are_no_set_are_an_error():
    (wrong,) = broken_rules(make({"type": "multidiscrete", "nvec": [9, 9, 8]}))
    assert (wrong.code, wrong.severity) == ("LR003", "error")
    assert "a set of K of n cells; nvec is [9, 9, 8]" in wrong.message
    assert broken_rules(make({"type": "multidiscrete", "nvec": [9, 9, 9]})) == []
    assert [each.code for each in broken_rules(make({"type": "box", "shape": [2]}))] == ["LR003"]
