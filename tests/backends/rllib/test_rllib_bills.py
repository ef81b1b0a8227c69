"""What a user would notice: a bill that does not add up, or an RLlib run that fit turns."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legroom.backends.rllib import items
from legroom.backends.rllib.items import on_one_machine, runner_request, shadow_of, step_nbytes
from legroom.backends.rllib.translation import rllib_plan
from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.cli.main import main
from legroom.model.evidence import Evidence
from legroom.model.footprint import Known, Phase, Place
from legroom.model.machine import Machine
from legroom.model.run import Run

MB = 1_000_000
GIB = 1 << 30
FIGURES = {
    "head": 130 * MB, "node": 110 * MB, "log_monitor": 44 * MB, "driver": 390 * MB, "runner": 380 * MB,
    "files": 300 * MB,
}  # fmt: skip
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


def footprint_of(run):
    return on_one_machine(run, evidence_of(run))


def runner_items(run):
    return tuple(items.runner_items(run, rllib_plan(run), evidence_of(run)))


def test_a_step_has_observation_action_reward_and_what_the_policy_put_out():
    run = make_run()
    # 4 float32, an int64 action, a float64 reward, two logits and a log-probability in float32
    assert step_nbytes(run, rllib_plan(run)) == 16 + 8 + 8 + 4 * 3
    pixels = make_run(spaces=PIXELS, policy="CnnPolicy")
    assert step_nbytes(pixels, rllib_plan(pixels)) == 84 * 84 + 8 + 8 + 4 * 4


def test_the_base_is_rays_services_the_runners_and_the_libraries_once():
    items = footprint_of(make_run(runners=3)).items
    base = sum(item.total for item in items if item.name.startswith("ray.") or item.name == "runner.base")
    # control store 130, raylet and agents 110, log monitor 44, libraries 300
    assert base == (130 + 110 + 44 + 300 + 3 * 380) * MB


def test_services_driver_and_learner():
    footprint = footprint_of(make_run())
    items = {item.name: item.total for item in footprint.items}
    assert items["ray.head services"] == 130 * MB
    assert items["driver.base"] == 390 * MB
    # SB3's MlpPolicy for 4 numbers and 2 actions: two towers 4-64-64, heads of 2 and 1
    parameters = 2 * (4 * 64 + 64 + 64 * 64 + 64) + 64 * 2 + 2 + 64 + 1
    assert items["learner.weights"] == items["learner.gradients"] == 4 * parameters
    assert items["learner.optimizer"] == pytest.approx(8 * parameters, rel=0.01)


def test_another_runner_adds_its_process():
    # and its samples, and its part of a larger train batch in the driver
    few, more = (footprint_of(make_run(spaces=PIXELS, policy="CnnPolicy", runners=n)).host.nbytes for n in (2, 3))
    assert more - few > 380 * MB


def test_samples_of_pictures_are_in_the_store_and_those_of_numbers_in_messages():
    pixels = runner_items(make_run(spaces=PIXELS, policy="CnnPolicy"))
    in_store = sum(item.total for item in pixels if item.place is Place.SHM)
    assert in_store >= 2 * 128 * 84 * 84
    assert not any(item.place is Place.SHM for item in runner_items(make_run()))


def test_a_run_without_runners_has_its_environments_in_the_driver():
    footprint = footprint_of(make_run(runners=0, each=4))
    assert not any(item.place is Place.WORKER for item in footprint.items)
    assert any(item.name == "runner.sample" for item in footprint.items)


def test_replay_is_in_the_driver_and_as_large_as_its_capacity():
    run = make_run(algo="DQN", spaces=PIXELS, policy="CnnPolicy", buffer_size=50_000)
    items = {item.name: item.total for item in footprint_of(run).items}
    assert items["replay.episodes"] == int(50_000 * (1.2 * (84 * 84 + 8 + 8) + 310))  # image, action, reward; measured
    assert not any(item.name == "replay.episodes" for item in runner_items(run))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 64), st.integers(0, 20), st.sampled_from(["PPO", "DQN"]))
def test_more_envs_never_need_less(each, more, algo):
    fewer = make_run(algo=algo, spaces=PIXELS, policy="CnnPolicy", each=each)
    larger = make_run(algo=algo, spaces=PIXELS, policy="CnnPolicy", each=each + more)
    small, large = footprint_of(fewer), footprint_of(larger)
    assert large.at(Phase.COLLECT) >= small.at(Phase.COLLECT)
    assert large.host.nbytes >= small.host.nbytes
    assert runner_request(larger, evidence_of(larger)) >= runner_request(fewer, evidence_of(fewer)) > 380 * MB


@pytest.mark.parametrize("target", ["ninja:parallel", "ninja"])
def test_fit_says_in_a_line_that_it_does_not_turn_rllibs_settings(target, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["fit", target, "--backend", "rllib", "--ram", "8GiB", "--mode", "arithmetic"])
    told = capsys.readouterr()
    assert (ended.value.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert "fit cannot change RLlib's settings" in told.err and "legroom predict" in told.err


def test_a_cluster_is_no_option_of_predict(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["predict", "ninja:parallel", "--nodes", "8"])
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
