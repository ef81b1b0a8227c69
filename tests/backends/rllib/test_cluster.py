"""What a user would notice: a plan that does not fit on some node, splits a runner, or has other envs than asked."""

import json
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from legroom.backends.rllib.fit_cluster import fit_to_cluster
from legroom.backends.rllib.items import shadow_of
from legroom.backends.rllib.nodes import place
from legroom.backends.rllib.ray_base import RayFigures
from legroom.backends.rllib.translation import rllib_plan
from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.cli.main import main
from legroom.model.cluster import Cluster, Node
from legroom.model.evidence import Evidence
from legroom.model.footprint import Known
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.reading import read

MB, GIB = 1_000_000, 1 << 30
FIGURES = RayFigures(
    head=130 * MB, node=110 * MB, log_monitor=44 * MB, driver=390 * MB, runner=380 * MB, node_files=65 * MB,
    files=300 * MB, errors={"runner": 38 * MB}, known=Known.DEFAULT,
)  # fmt: skip
MACHINE = Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=32 * GIB)
PIXELS = {
    "observation": {"type": "box", "shape": [84, 84, 1], "dtype": "uint8", "low": 0, "high": 255},
    "action": {"type": "discrete", "n": 3},
}


def make_run(n_envs, *, nbytes=None, n_steps=128, **hyperparams):
    return Run.model_validate({
        "backend": "rllib", "algo": "PPO", "policy": {"name": "CnnPolicy"},
        "env": {"id": "X-v0", "n_envs": n_envs, "workers": "subproc", "spaces": PIXELS, "nbytes": nbytes},
        "hyperparams": {"n_steps": n_steps, "batch_size": 64} | hyperparams,
    })  # fmt: skip


def fitted(run, *sizes, cpus=16):
    nodes = tuple(Node(f"node {n}", ram, cpus) for n, ram in enumerate(sizes, 1))
    evidence = Evidence(MACHINE, "cpu", FIGURES, net=estimate_net(shadow_of(run), "cpu"))
    return fit_to_cluster(run, Cluster(nodes), evidence)


def test_as_many_runners_as_there_are_cpus():
    plan = fitted(make_run(256), *[64 * GIB] * 4)
    assert (plan.runners, plan.envs_per_runner) == (64, 4)
    assert plan.fits
    assert {turn.key: turn.price for turn in plan.turns} == {
        "hyperparams.num_env_runners": "slower",
        "hyperparams.num_envs_per_env_runner": "slower",
        "memory.runner_bytes": "free",
    }


def test_memory_bounds_the_runners_where_cpus_do_not():
    plan = fitted(make_run(64), *[4 * GIB] * 2, cpus=1000)
    assert plan.fits
    assert plan.runners * plan.envs_per_runner == 64
    # 4 GiB less 5 %, services and libraries leave no room for more than 8 runners of 380 MB
    assert all(bill.runners <= 8 for bill in plan.bills)


def test_a_runner_asks_for_at_least_what_it_is_predicted_to_hold():
    plan = fitted(make_run(64), *[64 * GIB] * 2)
    assert plan.requests.runner_nbytes >= 380 * MB
    assert plan.run.memory.runner_bytes == plan.requests.runner_nbytes == rllib_plan(plan.run).runner_nbytes


def test_fewer_environments_are_said_to_change_the_learning():
    plan = fitted(make_run(64, nbytes=500 * MB), *[8 * GIB] * 2)
    assert plan.fits
    assert plan.run.env.n_envs < 64
    assert plan.turns[0].price == "changes-learning"
    assert "64" in plan.turns[0].say


def test_too_little_for_one_runner_says_what_would_do():
    plan = fitted(make_run(8), GIB, GIB)
    assert not plan.fits
    enough = fitted(make_run(1), plan.needed["head"] + 10 * MB, plan.needed["node"] + 10 * MB)
    assert enough.fits


def test_smaller_nodes_get_fewer_runners():
    plan = fitted(make_run(60), *[64 * GIB] * 2, *[3 * GIB] * 2, cpus=32)
    runners = {name: bill.runners for bill in plan.bills for name in bill.names}
    assert plan.fits
    assert runners["node 3"] == runners["node 4"] < runners["node 2"]
    assert sum(runners.values()) == plan.runners


def test_what_ray_is_told_bounds_what_it_puts_on_a_node_of_a_running_cluster():
    # nodes that declared more memory than is left beside services and driver
    nodes = tuple(Node(f"node {n}", 4 * GIB, 64, memory=4 * GIB, object_store=GIB) for n in range(1, 4))
    run = make_run(12)
    evidence = Evidence(MACHINE, "cpu", FIGURES, net=estimate_net(shadow_of(run), "cpu"))
    plan = fit_to_cluster(run, Cluster(nodes, "live"), evidence)
    assert plan.fits
    most = int(4 * GIB // plan.requests.runner_nbytes)
    crowded = replace(rllib_plan(plan.run), runners=3 * most)
    assert max(place(plan.cluster, crowded, plan.requests.runner_nbytes)) * 380 * MB <= 4 * GIB


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 600),
    st.lists(st.integers(1, 48), min_size=1, max_size=6),
    st.integers(1, 32),
    st.sampled_from([None, 1 * MB, 40 * MB]),
)
def test_a_plan_fits_on_every_node_and_has_whole_runners(n_envs, sizes, cpus, nbytes):
    plan = fitted(make_run(n_envs, nbytes=nbytes), *[size * GIB for size in sizes], cpus=cpus)
    assume(plan.fits or not plan.turns)
    if not plan.fits:
        assert plan.needed
        return
    runners = {name: bill.runners for bill in plan.bills for name in bill.names}
    assert all(bill.fits for bill in plan.bills)
    assert sum(runners.values()) == plan.runners
    assert plan.runners * plan.envs_per_runner == plan.run.env.n_envs <= n_envs
    if plan.run.env.n_envs < n_envs:
        assert any(turn.price == "changes-learning" for turn in plan.turns)
    assert all(count <= cpus for count in runners.values())


RUN_FILE = """
algo: PPO
env: {id: CartPole-v1, n_envs: 16, workers: subproc}
hyperparams: {n_steps: 128, batch_size: 64}
total_timesteps: 100_000
"""


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["fit", *arguments, "--mode", "arithmetic"])
    return ended.value.code


def test_the_written_file_trains_so(tmp_path, capsys):
    path, written = tmp_path / "run.yaml", tmp_path / "fitted.yaml"
    path.write_text(RUN_FILE)
    options = ["--nodes", "8", "--node-ram", "64GiB", "--n-envs", "2048", "-o", str(written)]
    assert command(str(path), *options, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["fits"] is True
    assert told["n_envs"] == 2048 == told["runners"] * told["envs_per_runner"]
    again = rllib_plan(read(str(written)))
    assert (again.runners, again.envs_per_runner) == (told["runners"], told["envs_per_runner"])
    assert again.runner_nbytes == told["requests"]["runner_nbytes"]


def test_too_small_a_cluster_is_exit_1_with_what_would_be_needed(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text(RUN_FILE)
    assert command(str(path), "--nodes", "2", "--node-ram", "600MiB") == 1
    told = capsys.readouterr().out
    assert "one runner with one env needs" in told
    assert "GiB on the head" in told


def test_where_the_head_holds_no_more_the_rest_are_spread_and_the_reason_is_said():
    plan = fitted(make_run(100_000), *[16 * GIB] * 50)
    assert plan.fits
    assert plan.runners * plan.envs_per_runner < 100_000
    assert plan.runners > 100  # not one runner that steps them all, beside 48 idle nodes
    (envs,) = [turn for turn in plan.turns if turn.key == "env.n_envs"]
    assert "the head receives the" in envs.say
