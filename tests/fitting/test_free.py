"""If these fail, something that may be slower is called free, or a free saving is left lying."""

from dataclasses import replace

import pytest

from legroom.backends.base import backend_of
from legroom.backends.sb3.base_figures import BaseFigures
from legroom.model.evidence import ColumnGrowth, Evidence, LeanProbe
from legroom.model.footprint import Known
from legroom.model.machine import Machine
from legroom.model.run import Run

UNPROBED = Evidence(
    Machine(ram=1, limit=None, available=1, swap=0, shm=0), "cpu", BaseFigures(0, 0, 0, {}, Known.DEFAULT)
)


def probed(nbytes, step, reset=0):
    """Return what is known after a probe: bytes of an observation, and what a step and an episode of 100 add."""
    growth = ColumnGrowth(
        nbytes, 1, first=0, another=0, another_error=0, current=0, step=step, step_error=0, reset=reset, reset_error=0
    )
    lean = LeanProbe("rollout", {"": growth}, steps=400, episodes=4, episode_mean=100, time_limit=100)
    return replace(UNPROBED, lean=lean)


ALIKE = probed(16384, 8192)


def make(algo="PPO", backend="sb3", **memory):
    spaces = {"observation": {"type": "box", "shape": [84, 84, 1], "dtype": "uint8"},
              "action": {"type": "discrete", "n": 4}}  # fmt: skip
    env = {"spaces": spaces, "n_envs": 4, "workers": "subproc"}
    return Run.model_validate({"algo": algo, "backend": backend, "env": env, "memory": memory})


def with_free_savings(run, evidence):
    return backend_of(run).fitter.with_free_savings(run, evidence)


def lean_price(run, evidence):
    """Return what lean storage costs the run; None where it has it already, or cannot have it."""
    knob = next((knob for knob in backend_of(run).fitter.knobs if knob.asks_probe), None)
    turns = knob is not None and any(True for _ in knob.ladder(run, evidence))
    return knob.price_for(run, evidence) if turns else None


def with_lean_storage(run):
    knob = next(knob for knob in backend_of(run).fitter.knobs if knob.asks_probe)
    return next(knob.ladder(run, UNPROBED))


@pytest.mark.parametrize(
    ("evidence", "price"),
    [
        (UNPROBED, "slower"),
        (ALIKE, "free"),
        (probed(16384, 8193), "slower"),  # more than half of it is new at every step
        (probed(16383, 0), "slower"),  # so small that calls cost more than bytes
        (probed(16384, 8000, reset=20000), "slower"),  # 200 more per step
        (replace(UNPROBED, lean=LeanProbe("rollout", {}, steps=0, episodes=0)), "slower"),
    ],
)
def test_lean_storage_is_free_only_where_a_probe_found_large_observations_alike(evidence, price):
    assert lean_price(make(), evidence) == price
    free = with_free_savings(make(), evidence)
    assert free.memory.rollout == ("lean" if price == "free" else None)
    assert free.env.workers == "light"  # which it is in any case


def test_what_the_run_says_itself_stays():
    assert lean_price(make(rollout="plain"), ALIKE) is None
    assert with_free_savings(make(rollout="plain"), ALIKE).memory.rollout == "plain"
    assert lean_price(make(rollout="lean"), UNPROBED) is None
    assert with_free_savings(make(rollout="lean"), UNPROBED).memory.rollout == "lean"
    assert lean_price(make("DQN", rollout="plain"), UNPROBED) == "slower"  # a DQN has no rollout


def test_where_it_cannot_be_it_has_no_price():
    assert lean_price(make("RecurrentPPO"), ALIKE) is None
    assert lean_price(make("PPO", backend="brax"), UNPROBED) is None
    assert with_free_savings(make("PPO", backend="brax"), UNPROBED) == make("PPO", backend="brax")


def test_it_can_be_had_at_its_price():
    memory = with_lean_storage(make()).memory
    assert (memory.rollout, memory.replay) == ("lean", None)
    memory = with_lean_storage(make("DQN")).memory
    assert (memory.rollout, memory.replay) == (None, "lean")
