"""If these fail, traces are made twice, lost, or mixed up between runs."""

import pytest

from legroom.backends.sb3.bill import tracing
from legroom.errors import MissingExtra
from legroom.installing import install_command
from legroom.machine import probe
from legroom.machine.cache import cache_folder
from legroom.model.run import Run

VECTOR = {"observation": {"type": "box", "shape": [8]}, "action": {"type": "discrete", "n": 2}}


def make(batch_size=64, **policy):
    return Run.model_validate(
        {"algo": "PPO", "env": {"spaces": VECTOR}, "hyperparams": {"batch_size": batch_size}, "policy": policy}
    )


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def closely(runs, devices, mode="trace"):
    return tracing.look(runs, devices, probe(), mode)


def test_a_trace_is_kept_for_networks_of_the_libraries_alone(monkeypatch):
    asked = []
    trace_in_child = tracing.trace_in_child
    monkeypatch.setattr(tracing, "trace_in_child", lambda requests: asked.extend(requests) or trace_in_child(requests))

    def traced(**changes):
        asked.clear()
        (look,) = closely([make(**changes)], ["cpu"])
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
    good, bad, other = closely(runs, ["cuda", "cuda", "cpu"])
    assert (good.net.device, other.net.device) == ("cuda", "cpu")
    assert not bad.net.traced  # estimated instead
    assert "no.such.module" in bad.notes[0]
    assert good.net.events


def test_without_the_libraries_auto_estimates_and_trace_says_what_to_install(monkeypatch):
    monkeypatch.setattr(tracing, "is_installed", lambda package: package != "torch")
    (look,) = closely([make()], ["cuda"], "auto")
    assert not look.net.traced
    assert install_command("sb3", "torch") in look.notes[0]
    with pytest.raises(MissingExtra, match=r"\[sb3\]") as missing:
        closely([make()], ["cuda"])
    assert missing.value.exit_code == 3
