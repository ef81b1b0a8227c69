"""If these fail, CPU training is predicted without what its operators need inside, or measuring it takes too much."""

import pytest

from legroom.backends import sb3_scratch
from legroom.backends.sb3_scratch import BUDGET, CHILD_BUDGET, HEAP, Measured, measure_scratch, plan_batches
from legroom.errors import Untraceable
from legroom.model.run import Run
from legroom.model.stored import in_flight_nbytes
from legroom.predicting.net_arithmetic import estimate_net

VECTOR = {"observation": {"type": "box", "shape": [8]}, "action": {"type": "discrete", "n": 2}}


def make(batch_size=64, **policy):
    return Run.model_validate(
        {"algo": "PPO", "env": {"spaces": VECTOR}, "hyperparams": {"batch_size": batch_size}, "policy": policy}
    )


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_small_batch_is_measured_as_it_is_and_a_large_one_by_two_smaller():
    assert plan_batches(64, BUDGET) == [64]
    assert plan_batches(2048, 8 * BUDGET) == [128, 256]
    assert plan_batches(64, 1000 * BUDGET) == [1, 2]  # never less than it takes to draw a line
    assert plan_batches(2, 1000 * BUDGET) == [2]
    assert plan_batches(64, BUDGET, parameters=CHILD_BUDGET - BUDGET // 2) == [16, 32]


def test_the_peak_is_extrapolated_along_a_line(monkeypatch):
    run = make(1000)
    net = estimate_net(run, "cpu")
    monkeypatch.setattr(sb3_scratch, "plan_batches", lambda *_: [100, 200])
    monkeypatch.setattr(sb3_scratch, "_start_child", lambda run, batch, mapped: batch)
    # 1 MB per sample and 50 MB besides: 1050 MB for 1000 samples, and the heap's share
    peaks = {100: 150_000_000, 200: 250_000_000}
    monkeypatch.setattr(sb3_scratch, "_finish", lambda batches: [Measured(b, peaks[b], 60_000_000, 9) for b in batches])
    scratch = measure_scratch(run, net)
    tensors = net.weights + net.gradients + net.optimizer + sum(net.transient["update"].values())
    assert scratch.nbytes == 1_050_000_000 + HEAP - tensors - in_flight_nbytes(run)
    assert "100 and 200 samples, extrapolated to 1,000" in scratch.why
    assert scratch.error >= 0.03 * 800_000_000


def test_one_round_lacks_the_optimizers_state(monkeypatch):
    net = estimate_net(make(), "cpu")
    monkeypatch.setattr(sb3_scratch, "_start_child", lambda run, batch, mapped: batch)

    def scratch(rounds):
        monkeypatch.setattr(sb3_scratch, "read_json", lambda path: None)
        monkeypatch.setattr(
            sb3_scratch, "_finish", lambda batches: [Measured(b, 90_000_000, 0, rounds) for b in batches]
        )
        return measure_scratch(make(), net).nbytes

    assert scratch(1) - scratch(2) == net.optimizer


@pytest.mark.slow
def test_a_real_update_is_measured_and_cached(tmp_path, monkeypatch):
    run = make()
    scratch = measure_scratch(run, estimate_net(run, "cpu"))
    assert 0 <= scratch.nbytes < 60_000_000  # a tiny network: only what malloc and first use take
    monkeypatch.setattr(sb3_scratch, "_start_child", lambda *_, **__: pytest.fail("measured again"))
    assert measure_scratch(run, estimate_net(run, "cpu")) == scratch


@pytest.mark.slow
def test_a_policy_that_cannot_be_built_says_why():
    run = make(features_extractor="no.such.module:Net")
    with pytest.raises(Untraceable, match=r"no\.such\.module"):
        measure_scratch(run, estimate_net(run, "cpu"))


def test_a_class_of_this_process_cannot_be_measured_elsewhere():
    run = make(features_extractor="live:0")
    with pytest.raises(Untraceable, match="this process"):
        measure_scratch(run, estimate_net(run, "cpu"))
