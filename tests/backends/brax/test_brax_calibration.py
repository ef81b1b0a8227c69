"""What the compiler said once is kept, and answers for other settings in milliseconds, without jax."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from legroom.backends.brax import asking
from legroom.backends.brax.asking import ask_for_plan, calibrate
from legroom.backends.brax.calibration import (
    Calibration,
    calibration_file,
    calibration_places,
    find_calibration,
    plan_file,
    read_plan,
    save_calibration,
)
from legroom.backends.brax.plans import Asked, Plan, Sizes, Step, moments_of, sizes_of
from legroom.errors import BadInput, MissingExtra
from legroom.installing import install_command
from legroom.machine.cache import write_json
from legroom.model.footprint import Footprint, Phase, Place
from legroom.model.machine import Machine
from legroom.model.run import PolicySpec, Run
from legroom.predicting.predict import predict
from legroom.reading import read
from legroom.units import GIB

MACHINE = Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=32 * GIB, cores=8)
# 500 B per sample of a minibatch while it learns; 1,000 B per environment and 60 B per stored step while it collects
STEP = Step(({"BU": 500.0, "BMU": 120.0, "1": 4096.0}, {"N": 1000.0, "S": 60.0}))


def make_run(envs: int = 8, batch: int = 4, minibatches: int = 4, unroll: int = 5, **changes: Any) -> Run:
    data: dict[str, Any] = {
        "algo": "PPO",
        "backend": "brax",
        "env": {"id": "fast", "n_envs": envs, "spaces": {
            "observation": {"type": "box", "shape": [2], "dtype": "float32"},
            "action": {"type": "box", "shape": [1], "dtype": "float32"},
        }},
        "hyperparams": {"batch_size": batch, "num_minibatches": minibatches, "unroll_length": unroll},
        "policy": {"kwargs": {"policy_hidden_layer_sizes": [16], "value_hidden_layer_sizes": [16]}},
        "eval": {"n_envs": 3},
    }  # fmt: skip
    return Run.model_validate({**data, **changes})


def make_calibration() -> Calibration:
    return Calibration(
        versions={},
        weights_nbytes=700, targets_nbytes=0, optimizer_nbytes=1400, other_nbytes=44, env_state_nbytes=164,
        env_fixed_nbytes=0, eval_state_nbytes=180, transition_nbytes=60, observation=[2], action_size=1,
        imported_nbytes=300_000_000, traced_nbytes=400_000_000, compiled_nbytes=600_000_000,
        all_compiled_nbytes=700_000_000, retained_nbytes=650_000_000, host_spread_nbytes=50_000_000, compile_s=60.0,
    )  # fmt: skip


def make_plan(step: Step = STEP, card: str = "", **exact: list[Asked]) -> Plan:
    """Return what is kept where XLA plans as the step does, and some sizes otherwise."""
    asked = [Asked(sizes, step.nbytes(sizes)) for moment in moments_of(replay=False) for sizes in moment.asked]
    return Plan({}, card, 900.0, {card: asked, **exact})


def keep(run: Run, plan: Plan | None = None) -> None:
    file = save_calibration(run, make_calibration())
    plan = plan or make_plan()
    write_json(plan_file(file, plan.card), plan.model_dump())


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def bill_of(footprint: Footprint) -> dict[str, int]:
    return {item.name: item.total for item in footprint.items}


def test_the_bill_is_made_of_the_fullest_moment() -> None:
    keep(make_run())
    # learning: 4 × 5 × 500 + 80 × 120 + 4096 = 23,696; collecting: 8 × 1000 + 80 × 60 = 12,800
    bill = bill_of(predict(make_run(), MACHINE, mode="arithmetic", device="cpu"))
    assert bill["network.activations"] == 10_000
    assert (bill["rollout"], bill["rollout.copies"], bill["xla.other temporaries"]) == (4800, 4800, 4096)
    assert bill["envs.states"] == 8 * 164
    assert bill["envs.evaluation states"] == 3 * 180
    assert bill["envs.evaluation temporaries"] == 3 * 900
    # other sizes of the same environment and networks: 1000 × 100 + 60 × 500 while it collects
    other = bill_of(predict(make_run(100, 25, 4, 5), MACHINE, mode="arithmetic", device="cpu"))
    assert (other["envs.temporaries"], other["rollout"]) == (100_000, 30_000)
    assert "network.activations" not in other


def test_everything_is_on_the_gpu_where_there_is_one_and_its_band_is_wide() -> None:
    keep(make_run())
    footprint = predict(make_run(), MACHINE, mode="arithmetic", device="cuda")
    items = {item.name: item for item in footprint.items}
    assert items["envs.states"].place is Place.GPU
    assert items["network.activations"].error == 5000
    assert "GPU's compiler plans differently" in items["network.activations"].why
    assert footprint.at(Phase.START) == 700_000_000  # tracing and compiling take the host's memory all the same


def test_a_calibration_is_of_one_environment_networks_and_knobs() -> None:
    run = make_run()
    same = make_run(1000, 500, 4, 20)
    assert calibration_file(run) == calibration_file(same)
    assert calibration_file(run) == calibration_file(make_run(hyperparams={**run.hyperparams, "learning_rate": 1e-3}))
    for other in (
        make_run(policy={"kwargs": {}}),
        make_run(memory={"activation_checkpointing": True}),
        make_run(hyperparams={**run.hyperparams, "normalize_observations": True}),
        make_run(env={"id": "ant", "n_envs": 8}),
    ):
        assert calibration_file(run) != calibration_file(other)


def test_wider_networks_are_scaled_from_what_was_compiled_with_a_wider_band() -> None:
    keep(make_run())
    twice = {"kwargs": {"policy_hidden_layer_sizes": [32], "value_hidden_layer_sizes": [32]}}
    items = {i.name: i for i in predict(make_run(policy=twice), MACHINE, mode="arithmetic", device="cpu").items}
    # 60 of the 500 B per sample are the minibatch's own data, whatever the networks: 60 + 2 × 440
    assert items["network.activations"].total == 20 * 940
    assert items["network.activations"].error == 4700
    assert items["envs.states"].total == 8 * 164


def test_a_run_that_xla_planned_as_it_is_is_met() -> None:
    keep(make_run())
    plan = make_plan()
    asked = [*plan.asked[""], Asked(Sizes(8, 4, 4, 5), 2 * 23_696)]
    keep(make_run(), plan.model_copy(update={"asked": {"": asked}}))
    bill = bill_of(predict(make_run(), MACHINE, mode="arithmetic", device="cpu"))
    assert (bill["network.activations"], bill["rollout"]) == (20_000, 4800)


def test_a_damaged_file_is_as_good_as_none() -> None:
    keep(make_run())
    assert find_calibration(make_run()) == make_calibration()
    file = calibration_file(make_run())
    assert read_plan(file) == make_plan()
    plan_file(file, "").write_text('{"asked": {"": 3}}')
    assert read_plan(file) is None
    file.write_text('{"weights_nbytes": 3}')
    assert find_calibration(make_run()) is None


def test_every_answer_is_kept_at_once_and_nothing_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sizes] = []

    def answer(what: str, run: Run, **more: Any) -> dict[str, Any]:
        if len(asked) == 3:
            raise BadInput("interrupted")
        asked.append(sizes_of(run))
        return {"temporaries": STEP.nbytes(asked[-1])}

    monkeypatch.setattr(asking, "ask_compiler", answer)
    save_calibration(make_run(), make_calibration())
    seen: set[Sizes] = set()
    for _ in range(3):
        with pytest.raises(BadInput):
            ask_for_plan(make_run())
        assert not seen & {*asked}
        seen |= {*asked}
        asked.clear()
    plan = ask_for_plan(make_run())
    assert plan.step is not None and plan.exact("", Sizes(8, 4, 4, 5)) == 23_696
    assert asked == [Sizes(8, 4, 4, 5)]  # the evaluation; all else was kept


def test_an_unseen_setting_takes_no_jax_and_less_than_a_second() -> None:
    keep(make_run())
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from test_brax_calibration import MACHINE, make_run, predict\n"
        "began = time.process_time()\n"
        "found = predict(make_run(64, 32, 4, 7), MACHINE, mode='auto', device='cpu')\n"
        "took = time.process_time() - began\n"
        "heavy = {'jax', 'brax', 'torch', 'mujoco', 'gymnasium'} & set(sys.modules)\n"
        "assert any(item.name == 'envs.shared state' or item.name == 'envs.states' for item in found.items)\n"
        "assert not heavy, heavy\n"
        "assert took < 1, took\n"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent)], check=True)
    assert time.monotonic() - began < 30


def test_without_jax_the_compiler_cannot_be_asked_and_the_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "is_installed", lambda package: package != "jax")
    with pytest.raises(
        MissingExtra, match=re.escape(f"jax, which is not installed ({install_command('jax', 'jax')})")
    ) as raised:
        calibrate(make_run())
    assert raised.value.exit_code == 3


@pytest.mark.parametrize("name", ["robot:quick", "robot:default", "robot:production", "robot:gpu_12gb"])
def test_the_robot_ships_what_the_compiler_said(name: str) -> None:
    """A first `legroom predict robot:default` answers at once, without minutes of compiling."""
    found = find_calibration(read(name))
    plans = [read_plan(file) for file in calibration_places(read(name))]
    assert found is not None and plans[-1] is not None, "make bench-robot-calibrations"
    assert plans[-1].step is not None and plans[-1].evaluation_nbytes


def test_spaces_that_a_run_leaves_out_are_those_that_were_compiled() -> None:
    run = read("robot:default")
    silent = run.replace(env=run.env.model_copy(update={"spaces": None}), policy=PolicySpec())
    footprint = predict(silent, MACHINE, mode="arithmetic", device="cpu")
    assert (
        bill_of(footprint)["envs.states"]
        == bill_of(predict(run, MACHINE, mode="arithmetic", device="cpu"))["envs.states"]
    )


def test_other_versions_of_the_libraries_widen_the_band_and_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run = read("robot:default")
    before = predict(run, MACHINE, mode="arithmetic", device="cpu")
    monkeypatch.setattr("legroom.backends.brax.calibration.library_versions", lambda: (("jax", "0.1"),))
    after = predict(run, MACHINE, mode="arithmetic", device="cpu")
    assert after.host.nbytes == before.host.nbytes
    assert after.host.high > before.host.high
    assert "compiled with jax 0.9" in " ".join(after.notes)
