"""What a user would notice: a node's bill that does not add up, or a cluster that is said to hold what it cannot."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legroom.backends.rllib.items import role_items, shadow_of, step_nbytes
from legroom.backends.rllib.nodes import node_footprint, place, predict_nodes, spread
from legroom.backends.rllib.ray_base import RayFigures
from legroom.backends.rllib.translation import rllib_plan
from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.cli.main import main
from legroom.errors import BadInput
from legroom.fitting.predictor import Predictor
from legroom.model.cluster import Cluster, Node
from legroom.model.evidence import Evidence
from legroom.model.footprint import Known, Phase, Place
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.predicting.predict import gather

MB = 1_000_000
GIB = 1 << 30
FIGURES = RayFigures(
    head=130 * MB, node=110 * MB, log_monitor=44 * MB, driver=390 * MB, runner=380 * MB, node_files=65 * MB,
    files=300 * MB, errors={}, known=Known.DEFAULT,
)  # fmt: skip
MACHINE = Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=32 * GIB)
BASE = BaseFigures(1, 1, 1, {}, Known.DEFAULT)
PIXELS = {
    "observation": {"type": "box", "shape": [84, 84, 1], "dtype": "uint8", "low": 0, "high": 255},
    "action": {"type": "discrete", "n": 3},
}
CARTPOLE = {"observation": {"type": "box", "shape": [4]}, "action": {"type": "discrete", "n": 2}}


def make_run(*, algo="PPO", spaces=CARTPOLE, runners=4, each=2, policy="MlpPolicy", **hyperparams):
    hyperparams = {"num_env_runners": runners, "num_envs_per_env_runner": each, "batch_size": 64} | hyperparams
    if algo == "PPO":
        hyperparams = {"n_steps": 128} | hyperparams
    data = {
        "backend": "rllib", "algo": algo, "env": {"id": "X-v0", "n_envs": max(runners, 1) * each, "spaces": spaces},
        "policy": {"name": policy}, "hyperparams": hyperparams,
    }  # fmt: skip
    return Run.model_validate(data)


def evidence_of(run):
    return Evidence(MACHINE, "cpu", FIGURES, net=estimate_net(shadow_of(run), "cpu"))


def footprint_of(run, *, head, runners):
    evidence = evidence_of(run)
    roles = role_items(run, rllib_plan(run), evidence, FIGURES)
    return node_footprint(run, roles, evidence, head=head, runners=runners)


def nodes_of(count, ram=64 * GIB, cpus=None):
    return Cluster(tuple(Node(f"node {n}", ram, cpus) for n in range(1, count + 1)))


def test_a_step_has_observation_action_reward_and_what_the_policy_put_out():
    run = make_run()
    # 4 float32, an int64 action, a float64 reward, two logits and a log-probability in float32
    assert step_nbytes(run, rllib_plan(run)) == 16 + 8 + 8 + 4 * 3
    pixels = make_run(spaces=PIXELS, policy="CnnPolicy")
    assert step_nbytes(pixels, rllib_plan(pixels)) == 84 * 84 + 8 + 8 + 4 * 4


def test_an_empty_node_holds_ray_alone():
    # raylet and agents 110, log monitor 44, their libraries 65
    assert footprint_of(make_run(), head=False, runners=0).host.nbytes == (110 + 44 + 65) * MB


def test_the_base_of_a_node_with_runners_is_theirs_and_the_libraries_once():
    footprint = footprint_of(make_run(), head=False, runners=3)
    base = sum(item.total for item in footprint.items if item.name.startswith("ray.") or item.name == "runner.base")
    assert base == (110 + 44 + 300 + 3 * 380) * MB


def test_the_head_has_services_driver_and_learner():
    footprint = footprint_of(make_run(), head=True, runners=0)
    items = {item.name: item.total for item in footprint.items}
    assert items["ray.head services"] == 130 * MB
    assert items["driver.base"] == 390 * MB
    # SB3's MlpPolicy for 4 numbers and 2 actions: two towers 4-64-64, heads of 2 and 1
    parameters = 2 * (4 * 64 + 64 + 64 * 64 + 64) + 64 * 2 + 2 + 64 + 1
    assert items["learner.weights"] == items["learner.gradients"] == 4 * parameters
    assert items["learner.optimizer"] == pytest.approx(8 * parameters, rel=0.01)


def test_another_runner_adds_as_much_as_the_one_before():
    run = make_run(spaces=PIXELS, policy="CnnPolicy")
    one, two, three = (footprint_of(run, head=False, runners=n).host.nbytes for n in (1, 2, 3))
    assert three - two == two - one > 380 * MB


def test_samples_of_pictures_are_in_the_store_and_those_of_numbers_in_messages():
    pixels = footprint_of(make_run(spaces=PIXELS, policy="CnnPolicy"), head=False, runners=1)
    numbers = footprint_of(make_run(), head=False, runners=1)
    in_store = sum(item.total for item in pixels.items if item.place is Place.SHM)
    assert in_store >= 2 * 128 * 84 * 84
    assert not any(item.place is Place.SHM for item in numbers.items)


def test_a_run_without_runners_has_its_environments_in_the_driver():
    footprint = footprint_of(make_run(runners=0, each=4), head=True, runners=0)
    assert not any(item.place is Place.WORKER for item in footprint.items)
    assert any(item.name == "runner.sample" for item in footprint.items)


def test_replay_is_in_the_driver_and_as_large_as_its_capacity():
    run = make_run(algo="DQN", spaces=PIXELS, policy="CnnPolicy", buffer_size=50_000)
    head = {item.name: item.total for item in footprint_of(run, head=True, runners=0).items}
    other = {item.name for item in footprint_of(run, head=False, runners=4).items}
    assert head["replay.episodes"] == int(50_000 * (1.2 * (84 * 84 + 8 + 8) + 310))  # image, action, reward; measured
    assert "replay.episodes" not in other


def test_ray_fills_half_of_each_node_before_the_emptiest():
    plan = rllib_plan(make_run(runners=3, each=4))
    assert place(nodes_of(3, cpus=4), plan) == [2, 1, 0]
    assert place(nodes_of(3, cpus=4), replace(plan, runners=8)) == [3, 3, 2]
    assert place(nodes_of(3, cpus=4), replace(plan, runners=12)) == [4, 4, 4]


def test_runners_that_no_cpu_is_left_for_are_refused():
    with pytest.raises(BadInput, match=r"13 runners .* room for 12"):
        place(nodes_of(3, cpus=4), replace(rllib_plan(make_run()), runners=13))


def test_where_cpus_are_not_known_runners_are_spread_and_the_head_has_none_more():
    assert spread(8, 3) == [2, 3, 3]
    assert sum(place(nodes_of(7), replace(rllib_plan(make_run()), runners=100))) == 100


def test_equal_nodes_have_one_bill():
    run = make_run(runners=64)
    bills = predict_nodes(run, evidence_of(run), nodes_of(8))
    assert [len(bill.names) for bill in bills] == [1, 7]
    assert all(bill.fits for bill in bills)


def test_a_node_that_rays_memory_monitor_would_clear_does_not_fit():
    run = make_run(runners=1)
    high = footprint_of(run, head=True, runners=1).host.high
    fits = {ram: predict_nodes(run, evidence_of(run), nodes_of(1, ram))[0].fits for ram in (high, int(high / 0.94))}
    assert fits == {high: False, int(high / 0.94): True}


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 64), st.integers(0, 20), st.sampled_from(["PPO", "DQN"]))
def test_more_envs_never_need_less(each, more, algo):
    fewer = make_run(algo=algo, spaces=PIXELS, policy="CnnPolicy", each=each)
    larger = make_run(algo=algo, spaces=PIXELS, policy="CnnPolicy", each=each + more)
    for head in (True, False):
        small, large = (footprint_of(run, head=head, runners=2) for run in (fewer, larger))
        assert large.at(Phase.COLLECT) >= small.at(Phase.COLLECT)
        assert large.host.nbytes >= small.host.nbytes


RUN_FILE = """
algo: PPO
env: {id: CartPole-v1, n_envs: 16, workers: subproc, envs_per_worker: 2}
hyperparams: {n_steps: 128, batch_size: 64}
"""


def test_nodes_in_json(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text(RUN_FILE)
    arguments = ["predict", str(path), "--nodes", "4", "--node-ram", "8GiB", "--mode", "arithmetic", "--json"]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    nodes = json.loads(capsys.readouterr().out)["runs"][0]["nodes"]
    assert [node["name"] for node in nodes] == ["node 1", "node 2", "node 3", "node 4"]
    assert sum(node["runners"] for node in nodes) == 8
    for node in nodes:
        low, high = node["band"]
        assert low <= node["peak"] <= high
        assert node["fits"] is True


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--nodes", "3"], "--node-ram 64GiB"),
        (["--nodes", "3", "--node-ram", "64"], "'64' has no unit"),
        (["--nodes", "0", "--node-ram", "64GiB"], "--nodes 0"),
        (["--node-ram", "64GiB"], "--nodes 8 says how many"),
        (["--node", "2xlarge"], "not a size"),
        (["--node", "2x8GiB", "--nodes", "3"], "give one of them"),
        (["--nodes", "3", "--node-ram", "8GiB", "--node-cpus", "-1"], "--node-cpus -1"),
    ],
)
def test_bad_clusters_get_one_line(tmp_path, capsys, options, says):
    path = tmp_path / "run.yaml"
    path.write_text(RUN_FILE)
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(path), "--mode", "arithmetic", *options])
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert says in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("algo", ["PPO", "DQN"])
def test_fitting_sizes_the_networks_of_rllibs_own_words_as_predicting_does(algo):
    run = make_run(algo=algo).replace(hyperparams={"fcnet_hiddens": [32, 16], "num_env_runners": 2})
    _, predicted = gather(run, MACHINE, mode="arithmetic", device="cpu")
    fitted = Predictor(run, MACHINE, mode="arithmetic", device="cpu", probe_env=False).evidence(run)
    assert fitted.net == predicted.net
    body = (4 * 32 + 32) + (32 * 16 + 16)
    parameters = {"PPO": 2 * body + (16 * 2 + 2) + (16 + 1), "DQN": 2 * (body + 16 * 2 + 2)}  # DQN's with its target
    assert fitted.net.weights == 4 * parameters[algo]
