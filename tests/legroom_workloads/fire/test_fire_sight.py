"""What a cell sees along its row and column, and the random lines that exploration draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.backends.sb3.trace import trace_run
from legroom.model.footprint import Phase
from legroom.reading import read
from legroom_workloads.fire.algorithms.set_policy import choosing_sets
from legroom_workloads.fire.env import FireEnv
from legroom_workloads.fire.exploring import line_cells
from legroom_workloads.fire.line_policy import LinePolicy
from legroom_workloads.fire.sight import SightNet, look


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def make(**arguments):
    return FireEnv(**dict(grid=(20, 20), rasters=4, sims=6, budget=30, breaks_per_step=10) | arguments)


def row(text):
    return torch.tensor([[[letter == "#" for letter in text]]])


def test_distances_go_to_the_next_stop_or_the_edge_and_runs_are_those_that_end_there():
    distance, run = look(row("..##..."), row("..##..."))
    assert distance[0, 0, [0, 1, 4, 5, 6]].tolist() == [1, 2, 1, 2, 3]
    assert run[0, 0, [0, 1, 4, 5, 6]].tolist() == [0, 0, 2, 2, 2]  # the edge is no run


def test_arithmetic_knows_the_network_that_a_trace_finds():
    run = read("fire:learn")
    counted, traced = estimate_net(run, "cpu"), trace_run(run, "cpu")
    assert counted.guessed == ""
    assert (counted.parameters, counted.gradients) == (traced.parameters, traced.gradients)
    for phase, name in ((Phase.UPDATE, "activations"), (Phase.UPDATE, "temporaries"), (Phase.COLLECT, "temporaries")):
        assert counted.transient[phase][name] == pytest.approx(traced.transient[phase][name], rel=0.15)


def test_lines_are_allowed_cells_in_a_row_that_go_on_where_the_last_one_ended():
    rng = np.random.default_rng(0)
    free = np.ones((30, 30), np.bool_)
    first = line_cells(free, 10, rng)
    assert len(set(first.tolist())) == 10
    assert len(set(np.diff(first).tolist())) == 1  # one straight line, from the edge inwards
    free.ravel()[first] = False
    goes_on = [line_cells(free, 10, rng)[0] == first[-1] + first[1] - first[0] for _ in range(200)]
    assert 0.2 < np.mean(goes_on) < 1.0  # mostly, and not always


@pytest.mark.parametrize("count", [1, 10])
def test_a_policy_draws_lines_only_where_it_may_explore(count):
    env = make(breaks_per_step=count)
    policy = choosing_sets(LinePolicy)(
        env.observation_space,
        env.action_space,
        lambda _: 1e-3,
        features_extractor_class=SightNet,
        normalize_images=False,
        lines=1.0,
    )
    seen, _ = env.reset(seed=0)
    best = [policy.predict(seen, deterministic=True)[0] for _ in range(5)]
    tried = [policy.predict(seen, deterministic=False)[0] for _ in range(5)]
    assert all(np.array_equal(best[0], each) for each in best)
    assert not all(np.array_equal(tried[0], each) for each in tried)
    for action in (*best, *tried):
        assert env.action_space.contains(np.asarray(action, np.int64)[()]) and env.action_masks()[action].all()


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_a_run_that_draws_lines_by_chance_is_traced_whatever_chance_says(share):
    run = read("fire:learn", overrides=[("policy.kwargs.lines", str(share))])
    for device in ("cpu", "cuda"):
        net, again = (trace_run(run, device) for _ in range(2))
        assert (net.parameters, net.weights) == (2 * 3362, 2 * 3362 * 4)  # with the targets
        assert net.events == again.events  # the same question, the same answer
