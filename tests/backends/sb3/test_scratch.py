"""If these fail, CPU training is predicted without what its operators need inside, or measuring it takes too much."""

import time
from types import SimpleNamespace

import pytest

from legroom.backends.sb3 import evidence_child
from legroom.backends.sb3.base_figures import base_figures
from legroom.backends.sb3.bill import tracing
from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.backends.sb3.bill.network import network_items
from legroom.backends.sb3.bill.scratch import (
    BUDGET,
    CHILD_BUDGET,
    HEAP,
    Answer,
    Measured,
    Request,
    beyond_tensors,
    plan_batches,
    plan_scratch,
    remember,
)
from legroom.backends.sb3.stored import in_flight_nbytes
from legroom.errors import MissingExtra
from legroom.installing import install_command
from legroom.machine import probe
from legroom.machine.cache import cache_folder
from legroom.model.evidence import Evidence
from legroom.model.run import Run

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


def test_the_peak_is_extrapolated_along_a_line():
    run = make(1000)
    net = estimate_net(run, "cpu")
    # 1 MB per sample and 50 MB besides: 1050 MB for 1000 samples, and the heap's share
    measured = [Measured(100, 150_000_000, 60_000_000, 9), Measured(200, 250_000_000, 60_000_000, 9)]
    scratch = beyond_tensors(run, net, measured)
    tensors = net.weights + net.gradients + net.optimizer + sum(net.transient["update"].values())
    assert scratch.nbytes == 1_050_000_000 + HEAP - tensors - in_flight_nbytes(run)
    assert "100 and 200 samples, extrapolated to 1,000" in scratch.why
    assert scratch.error >= 0.03 * 800_000_000


def test_one_round_lacks_the_optimizers_state():
    net = estimate_net(make(), "cpu")
    one, two = (beyond_tensors(make(), net, [Measured(64, 90_000_000, 0, rounds)]) for rounds in (1, 2))
    assert one.nbytes - two.nbytes == net.optimizer // 2  # or all of it, or nothing: its peak came before or with it
    assert one.error - two.error == net.optimizer // 2


def test_what_was_measured_is_remembered():
    run, measured = make(), [Measured(64, 90_000_000, 1_000_000, 9)]
    assert plan_scratch(run, 1_000) == ([64], [])
    remember(run, [64], measured)
    assert plan_scratch(run, 1_000) == ([64], measured)
    assert plan_scratch(make(128), 1_000) == ([128], [])


def test_what_was_measured_with_smaller_batches_since_the_whole_took_too_long_is_remembered_too():
    run, smaller = make(), [Measured(4, 20_000_000, 1_000_000, 9), Measured(8, 30_000_000, 1_000_000, 9)]
    remember(run, [64], smaller)
    assert plan_scratch(run, 1_000) == ([64], smaller)


def test_an_update_that_takes_too_long_is_measured_with_smaller_batches(monkeypatch):
    tried = []

    def update(model, batch, episode=None, *, trims=False):
        tried.append(batch)
        if batch == 64:
            raise TimeoutError
        return [400_000_000 + batch * 1_000_000] * 2, 400_000_000

    monkeypatch.setattr(evidence_child, "update", update)
    monkeypatch.setattr(evidence_child, "give_back_from", lambda nbytes: None)  # this process goes on
    found = evidence_child.measure_updates(make(), [64])
    assert tried == [64, 4, 8]
    assert [each.batch for each in found] == [4, 8]


def test_a_heap_that_still_rises_is_followed_to_the_runs_own_updates():
    # 1,024 steps of PPO with minibatches of 64 and 10 epochs: 160 updates. The heap rose by 30 MB from the 2nd to the
    # 16th, 10 MB per doubling, and rises on until the 160th: 3.32 doublings.
    run = make().replace(total_timesteps=1024, hyperparams={"n_steps": 1024, "batch_size": 64})
    net = estimate_net(run, "cpu")
    found = [beyond_tensors(run, net, [Measured(64, 200_000_000, 0, 16, risen)]) for risen in (0, 30_000_000)]
    assert found[1].nbytes - found[0].nbytes == pytest.approx(33_219_281, abs=1)
    assert found[1].error - found[0].error == pytest.approx(0.6 * 33_219_281, abs=1)
    once = run.replace(total_timesteps=None)  # its length is not known: as if it made a thousand
    more = beyond_tensors(once, net, [Measured(64, 200_000_000, 0, 16, 30_000_000)])
    assert more.nbytes - found[0].nbytes == pytest.approx(59_657_843, abs=1)


def test_what_comes_with_the_actors_first_update_is_no_rise():
    """CrossQ updates its actor every third time, TD3 every second: the heap has not risen when that is first seen."""
    assert evidence_child.warm_rounds(SimpleNamespace(policy_delay=3)) == 6
    assert evidence_child.warm_rounds(SimpleNamespace()) == 2
    run = make().replace(total_timesteps=1024, hyperparams={"n_steps": 1024, "batch_size": 64})  # 160 updates
    net = estimate_net(run, "cpu")
    flat = beyond_tensors(run, net, [Measured(64, 200_000_000, 0, 24, 0, warm=6)]).nbytes
    rise = [
        beyond_tensors(run, net, [Measured(64, 200_000_000, 0, rounds, 30_000_000, warm=6)]).nbytes - flat
        for rounds in (5, 6, 24)
    ]
    # 15 MB per doubling from the 6th to the 24th, and 2.74 doublings until the 160th
    assert rise == [0, 0, pytest.approx(41_054_484, abs=1)]


def test_patience_is_of_the_processor():
    with evidence_child.at_most(0.3, 30):
        time.sleep(0.8)  # a busy machine
    with pytest.raises(TimeoutError), evidence_child.at_most(0.3, 30):
        while True:
            pass


def closely(runs, devices, measure, strict):
    asked = zip(runs, devices, measure, strict=True)
    return tracing.look_closely(
        [tracing.plan(Request(run, on), measure=each) for run, on, each in asked], strict=strict
    )


def test_an_update_that_could_not_be_measured_widens_the_band_and_says_so(monkeypatch):
    run = make(kwargs={"net_arch": [3000, 3000]})
    net = estimate_net(run, "cpu")
    monkeypatch.setattr(tracing, "trace_in_child", lambda requests: [Answer(net, not_measured="it takes too long")])
    (look,) = closely([run], ["cpu"], [True], strict=True)
    assert look.scratch is None
    assert look.unmeasured
    assert look.notes == ("operators' scratch memory was not measured, the band is wider: it takes too long",)
    tensors = net.weights + net.gradients + net.optimizer + sum(net.transient["update"].values())
    assert tensors > 280_000_000  # two networks of 9 million weights, with gradients and Adam's two
    errors = []
    for unmeasured in (False, True):
        evidence = Evidence(probe(), "cpu", base_figures(), net, unmeasured=unmeasured)
        items = {item.name: item for item in network_items(run, evidence)}
        errors.append(items["runtime.kept by malloc"].error)
    assert errors == [12_000_000, 12_000_000 + int(0.4 * tensors)]


def test_a_real_update_is_measured_once(monkeypatch):
    run = make()
    (look,) = closely([run], ["cpu"], [True], strict=True)
    assert look.notes == ()
    assert look.net.traced
    assert 0 <= look.scratch.nbytes < 60_000_000  # a tiny network: only what malloc and first use take

    asked = []
    trace_in_child = tracing.trace_in_child
    monkeypatch.setattr(tracing, "trace_in_child", lambda requests: asked.extend(requests) or trace_in_child(requests))
    (again,) = closely([run], ["cpu"], [True], strict=True)
    assert asked == []
    assert again == look


def test_a_trace_is_kept_for_networks_of_the_libraries_alone(monkeypatch):
    asked = []
    trace_in_child = tracing.trace_in_child
    monkeypatch.setattr(tracing, "trace_in_child", lambda requests: asked.extend(requests) or trace_in_child(requests))

    def traced(**changes):
        asked.clear()
        (look,) = closely([make(**changes)], ["cpu"], [False], strict=True)
        return look.net, len(asked)

    first, children = traced()
    assert children == 1
    assert traced() == (first, 0)
    other, children = traced(kwargs={"net_arch": [96, 96]})
    assert (children, other.parameters > first.parameters) == (1, True)
    for _ in range(2):  # a class of the user's may change without its name
        assert traced(features_extractor="user_nets:Net")[1] == 1
    for kept in cache_folder().glob("trace-*.json"):
        kept.write_text('{"parameters": "many"}')
    assert traced() == (first, 1)


@pytest.mark.slow
def test_several_runs_share_one_child_and_keep_their_order():
    runs = [make(), make(features_extractor="no.such.module:Net"), make(32)]
    good, bad, other = closely(runs, ["cuda", "cuda", "cpu"], [False] * 3, strict=True)
    assert (good.net.device, other.net.device) == ("cuda", "cpu")
    assert not bad.net.traced  # estimated instead
    assert "no.such.module" in bad.notes[0]
    assert good.net.events


def test_an_update_is_only_measured_where_it_may_decide_the_peak(monkeypatch):
    machine = probe()
    images = {
        "observation": {"type": "box", "shape": [4, 84, 84], "dtype": "uint8"},
        "action": {"type": "discrete", "n": 6},
    }

    def worth(n_steps, batch_size, n_envs):
        hyperparams = {"n_steps": n_steps, "batch_size": batch_size}
        env = {"spaces": images, "n_envs": n_envs}
        run = Run.model_validate(
            {"algo": "PPO", "env": env, "policy": {"name": "CnnPolicy"}, "hyperparams": hyperparams}
        )
        return tracing._worth_measuring(run, machine, "cpu")

    assert worth(128, 256, 2)  # a small rollout: the update is the peak
    wide = make(kwargs={"net_arch": [4096, 4096]})  # no convolution, but 540 MB of weights, gradients and state
    assert tracing._worth_measuring(wide, machine, "cpu")
    assert not worth(100_000, 256, 8)  # 45 GB of rollout flattened: it is not


def test_without_the_libraries_auto_estimates_and_trace_says_what_to_install(monkeypatch):
    monkeypatch.setattr(tracing, "is_installed", lambda package: package != "torch")
    (look,) = closely([make()], ["cuda"], [False], strict=False)
    assert not look.net.traced
    assert install_command("sb3", "torch") in look.notes[0]
    with pytest.raises(MissingExtra, match=r"\[sb3\]") as missing:
        closely([make()], ["cuda"], [False], strict=True)
    assert missing.value.exit_code == 3
