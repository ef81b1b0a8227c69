"""What XLA said once is kept, and answers for other settings in milliseconds, without jax; the reader is told for what.

The sizes of arrays are few, so that the temporaries of a training step are the largest of a few sums.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.backends.brax import asking, items
from legroom.backends.brax.asking import ask_for_plan, calibrate
from legroom.backends.brax.calibration import (
    Calibration,
    calibration_file,
    find_calibration,
    known_of,
    save_calibration,
)
from legroom.backends.brax.items import CARD_ERROR, FAR_ERROR, OTHER_CARD_ERROR, ROUGH_ERROR, UNEVEN_ERROR
from legroom.backends.brax.plans import Sizes, XlaPlan, asked_key, asked_sizes, sizes_of, solved
from legroom.errors import BadInput, MissingExtra
from legroom.fitting.changes import with_settings
from legroom.fitting.predictor import Predictor, predict_all
from legroom.fitting.search import fit
from legroom.fitting.tiers import tier
from legroom.installing import install_command
from legroom.machine.gpu_table import GPUS, find_gpu
from legroom.model.footprint import Footprint, Item, Phase, Place
from legroom.model.machine import Machine
from legroom.model.run import PolicySpec, Run
from legroom.model.verdict import Budget
from legroom.predicting.predict import predict
from legroom.reading import read
from legroom.reading.reading_notes import collected_notes
from legroom.rendering.prediction_text import comparison_table
from legroom.units import GIB
from legroom.xla.target import plugin_missing, target_text

CARD = find_gpu("RTX 4090")
Moments = list[dict[str, float]]
# 500 B per sample of a minibatch while it learns; 1,000 B per environment and 60 B per stored step while it collects
STEP = [{"BU": 500.0, "BMU": 120.0, "1": 4096.0}, {"N": 1000.0, "S": 60.0}]
CARD_STEP = [{"BU": 250.0, "BMU": 120.0, "1": 4096.0}]
EVEN: dict[str, Any] = {"envs": 128, "batch": 64}  # a GPU's compiler plans multiples of 64 alike


def machine(card: str | None = None) -> Machine:
    gpus = () if card is None else (find_gpu(card).as_gpu(),)
    return Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=32 * GIB, cores=8, gpus=gpus)


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


def make_calibration(*plans: XlaPlan) -> Calibration:
    return Calibration(
        versions={}, policy=make_run().policy.kwargs, remat=False, plans={plan.card: plan for plan in plans},
        weights_nbytes=700, targets_nbytes=0, optimizer_nbytes=1400, other_nbytes=44, env_state_nbytes=164,
        env_fixed_nbytes=0, eval_state_nbytes=180, transition_nbytes=60, observation=[2], action_size=1,
        imported_nbytes=300_000_000, all_compiled_nbytes=700_000_000, retained_nbytes=650_000_000,
        host_spread_nbytes=50_000_000, compile_s=60.0,
    )  # fmt: skip


def make_plan(moments: Moments = STEP, card: str = "", **asked: int) -> XlaPlan:
    return XlaPlan({}, card, 900.0, moments, asked)


def keep(run: Run, *plans: XlaPlan) -> None:
    """Keep what XLA said: of the CPU as `STEP`, and these plans."""
    save_calibration(run, make_calibration(make_plan(), *plans))


def predicted(run: Run, card: str | None = None, mode: Any = "arithmetic") -> Footprint:
    return predict(run, machine(card), mode=mode, device="cpu" if card is None else "cuda")


def bill_of(run: Run, card: str | None = None) -> dict[str, Item]:
    return {item.name: item for item in predicted(run, card).items}


def temporaries(footprint: Footprint) -> int:
    names = {"network.activations", "rollout", "rollout.copies", "envs.temporaries", "xla.other temporaries"}
    return sum(item.total for item in footprint.items if item.name in names)


@pytest.fixture(autouse=True)
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep(make_run())


# -- a step as a function of its sizes --------------------------------------------------------------------------------

COLLECTING, UPDATING = {"1": 800.0, "N": 9000.0, "S": 612.0}, {"1": 28_000.0, "BU": 7500.0, "W": 300.0, "BMU": 1224.0}
UPDATING_SAC, COLLECTING_SAC = {"B": 3000.0, "BU": 32.0, "M": 32.0}, {"N": 5000.0, "M": 32.0}
PPO, SAC = make_plan([UPDATING, COLLECTING]), make_plan([UPDATING_SAC, COLLECTING_SAC])


@pytest.mark.parametrize(
    ("real", "sizes", "nbytes"),
    [
        (PPO, Sizes(1024, 256, 4, 10), 28_000 + 2560 * 7500 + 2560 * 300 + 10_240 * 1224),
        (PPO, Sizes(16_384, 2048, 8, 20), 28_000 + 40_960 * 7500 + 4096 * 300 + 327_680 * 1224),
        (PPO, Sizes(4096, 128, 32, 1), 800 + 4096 * 9000 + 4096 * 612),  # the physics of 4,096 environments
        (make_plan([UPDATING, COLLECTING, {"1": 6_000_000.0}]), Sizes(8, 8, 1, 2), 6_000_000),
        (SAC, Sizes(128, 256, 10**6, 8, replay=True), 256 * 3000 + 2048 * 32 + 32 * 10**6),
    ],
)
def test_a_step_is_as_full_as_its_fullest_moment(real: XlaPlan, sizes: Sizes, nbytes: int) -> None:
    assert real.nbytes(sizes) == nbytes


@pytest.mark.parametrize(
    ("real", "sizes", "step"),
    [
        (PPO, (Sizes(1024, 256, 4, 10), Sizes(16_384, 2048, 8, 20), Sizes(4096, 128, 32, 1)), 680),
        (SAC, (Sizes(128, 256, 10**6, 8, replay=True), Sizes(4096, 16, 10**5, 2, replay=True)), 32),
    ],
)
def test_two_sizes_tell_what_all_others_need(real: XlaPlan, sizes: tuple[Sizes, ...], step: int) -> None:
    replay = sizes[0].replay
    collecting, updating = map(real.nbytes, asked_sizes(replay=replay))
    found = make_plan(solved(collecting, updating, step, replay=replay))
    assert found.is_rough and not PPO.is_rough
    for each in sizes:
        assert found.nbytes(each) == pytest.approx(real.nbytes(each), rel=0.08)


def test_the_sizes_that_are_asked_are_what_brax_accepts() -> None:
    assert all(sizes.batch * sizes.minibatches % sizes.envs == 0 for sizes in asked_sizes(replay=False))


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 16), st.integers(1, 32))
def test_more_of_anything_never_needs_less(k: int, batch: int, minibatches: int, unroll: int) -> None:
    envs = batch * minibatches
    small = PPO.nbytes(Sizes(envs, batch * k, minibatches, unroll))
    assert PPO.nbytes(Sizes(envs, batch * k, minibatches, unroll + 1)) >= small
    assert PPO.nbytes(Sizes(envs, 2 * batch * k, minibatches, unroll)) >= small


# -- the bill ---------------------------------------------------------------------------------------------------------


def test_the_bill_is_made_of_the_fullest_moment() -> None:
    # learning: 4 × 5 × 500 + 80 × 120 + 4096 = 23,696; collecting: 8 × 1000 + 80 × 60 = 12,800
    bill = {name: item.total for name, item in bill_of(make_run()).items()}
    assert bill["network.activations"] == 10_000
    assert (bill["rollout"], bill["rollout.copies"], bill["xla.other temporaries"]) == (4800, 4800, 4096)
    assert bill["envs.states"] == 8 * 164
    assert bill["envs.evaluation states"] == 3 * 180
    assert bill["envs.evaluation temporaries"] == 3 * 900
    # other sizes of the same environment and networks: 1000 × 100 + 60 × 500 while it collects
    other = bill_of(make_run(100, 25, 4, 5))
    assert (other["envs.temporaries"].total, other["rollout"].total) == (100_000, 30_000)
    assert "network.activations" not in other


def test_on_a_card_everything_but_compiling_is_there_and_as_xla_plans_it_for_that_card() -> None:
    footprint = predicted(make_run(), "RTX 4090")
    assert next(item for item in footprint.items if item.name == "envs.states").place is Place.GPU
    assert footprint.at(Phase.START) == 700_000_000  # tracing and compiling take the host's memory all the same
    keep(make_run(), make_plan(CARD_STEP, CARD.name))
    # 64 × 5 samples × 250 + 1,280 steps × 120 + 4096
    assert temporaries(predicted(make_run(**EVEN), "RTX 4090")) == 80_000 + 153_600 + 4096
    assert "XLA for GeForce RTX 4090" in bill_of(make_run(**EVEN), "RTX 4090")["network.activations"].why
    assert temporaries(predicted(make_run())) == 23_696  # on the CPU nothing changes


@pytest.mark.parametrize(("card", "on"), [("", None), (CARD.name, "RTX 4090")])
def test_a_run_that_xla_planned_as_it_is_is_met(card: str, on: str | None) -> None:
    key = asked_key(CARD if card else None, Sizes(8, 4, 4, 5))
    keep(make_run(), make_plan(STEP, card, **{key: 2 * 23_696}))
    bill = bill_of(make_run(), on)
    assert (bill["network.activations"].total, bill["rollout"].total) == (20_000, 4800)
    if on:
        assert bill["network.activations"].error == 20_000 * CARD_ERROR  # although no multiple of 64


@pytest.mark.parametrize(
    ("sizes", "card", "share"),
    [
        (EVEN, "RTX 4090", CARD_ERROR),
        (EVEN, "RTX 4060", CARD_ERROR),  # the same capability
        (EVEN, "T4", OTHER_CARD_ERROR),
        ({}, "RTX 4090", UNEVEN_ERROR),
        ({"envs": 16_384, "batch": 16_384}, "RTX 4090", FAR_ERROR),  # than any that XLA was asked about
    ],
)
def test_the_band_is_as_wide_as_what_was_asked_is_far(sizes: dict[str, Any], card: str, share: float) -> None:
    keep(make_run(), make_plan(CARD_STEP, CARD.name))
    item = bill_of(make_run(**sizes), card)["network.activations"]
    assert item.error == round(share * item.nbytes)
    keep(make_run(), make_plan([{"BU": 250.0, "BMU": 120.0}], CARD.name))  # as two sizes tell it
    item = bill_of(make_run(**sizes), card)["network.activations"]
    assert item.error == round(max(share, ROUGH_ERROR) * item.nbytes)


def test_the_reader_is_told_for_which_card_and_how_to_ask_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "plugin_missing", lambda: "jax-cuda12-plugin is not installed")
    notes = predicted(make_run(), "RTX 4090").notes
    assert any("±50% of the temporaries" in note and "[xla-gpu]" in note for note in notes)
    keep(make_run(), make_plan(CARD_STEP, CARD.name))
    notes = predicted(make_run(**EVEN), "T4").notes
    assert any("for a GeForce RTX 4090" in note and "±25% of the temporaries" in note for note in notes)
    assert any("nvidia-smi will show about 11.2 GiB" in note for note in notes)  # three quarters of 15,360 MiB
    off = make_run(memory={"xla_preallocate": False})
    assert not any("nvidia-smi" in note for note in predicted(off, "RTX 4090").notes)


def test_a_card_needs_a_third_more_than_the_arrays_since_xla_takes_three_quarters_of_it() -> None:
    keep(make_run(), make_plan([{"1": 6.0 * GIB}], CARD.name))
    gpu = predicted(make_run(), "RTX 4090").gpu
    assert gpu is not None
    assert 8 * GIB < gpu.nbytes < 8.1 * GIB  # 6 GiB and 32 MiB of workspaces are three quarters of it


def test_wider_networks_are_scaled_from_what_was_compiled_with_a_wider_band() -> None:
    twice = {"kwargs": {"policy_hidden_layer_sizes": [32], "value_hidden_layer_sizes": [32]}}
    bill = bill_of(make_run(policy=twice))
    # 60 of the 500 B per sample are the minibatch's own data, whatever the networks: 60 + 2 × 440
    assert (bill["network.activations"].total, bill["network.activations"].error) == (20 * 940, 4700)
    assert bill["envs.states"].total == 8 * 164


def test_other_versions_of_the_libraries_widen_the_band_and_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run = read("robot:default")
    before = predicted(run)
    monkeypatch.setattr("legroom.backends.brax.calibration.library_versions", lambda: (("jax", "0.1"),))
    after = predicted(run)
    assert after.host.nbytes == before.host.nbytes
    assert after.host.high > before.host.high
    assert "compiled with jax 0.9" in " ".join(after.notes)


def test_spaces_that_a_run_leaves_out_are_those_that_were_compiled() -> None:
    run = read("robot:default")
    silent = run.replace(env=run.env.model_copy(update={"spaces": None}), policy=PolicySpec())
    assert bill_of(silent)["envs.states"].total == bill_of(run)["envs.states"].total


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_a_calibration_is_of_one_environment_networks_and_knobs() -> None:
    run = make_run()
    for same in (make_run(1000, 500, 4, 20), make_run(hyperparams={**run.hyperparams, "learning_rate": 1e-3})):
        assert calibration_file(run) == calibration_file(same)
    for other in (
        make_run(policy={"kwargs": {}}),
        make_run(memory={"activation_checkpointing": True}),
        make_run(hyperparams={**run.hyperparams, "normalize_observations": True}),
        make_run(env={"id": "ant", "n_envs": 8}),
    ):
        assert calibration_file(run) != calibration_file(other)


def test_a_damaged_file_is_as_good_as_none() -> None:
    file, whole = calibration_file(make_run()), make_calibration(make_plan())
    assert find_calibration(make_run()) == whole
    for incomplete in (XlaPlan({}, "", None, STEP, {}), XlaPlan({}, "", 900.0, [], {})):
        save_calibration(make_run(), make_calibration(incomplete))
        assert known_of(make_run()) is None  # nothing is said where not all was asked that tells
    for damaged in ('{"weights_nbytes": 3}', "[]", json.dumps(whole.model_dump() | {"plans": {"": 3}})):
        file.write_text(damaged)
        assert find_calibration(make_run()) is None


@pytest.mark.parametrize("name", ["robot:quick", "robot:default", "robot:production", "robot:gpu_12gb"])
def test_the_robot_ships_what_the_compiler_said(name: str) -> None:
    """A first `legroom predict robot:default` answers at once, without minutes of compiling."""
    assert known_of(read(name)) is not None, "make bench-robot-calibrations"


@pytest.mark.parametrize(
    ("run", "card"),
    [
        *(("robot:default", card) for card in ("T4", "A100", "RTX 3090", "RTX 4090", "H100", "RTX 5090")),
        ("robot:quick", "RTX 4090"),
    ],
)
def test_the_robot_ships_plans_for_cards(run: str, card: str) -> None:
    known = known_of(read(run), "cuda", find_gpu(card).as_gpu())
    assert known is not None and known.plan.card and known.same_card and not known.scaled
    assert known.planned is not None
    # the run as it is; what the sizes that were asked say is nearly the same
    assert known.plan.nbytes(sizes_of(read(run))) == pytest.approx(known.planned, rel=CARD_ERROR)


def test_an_unseen_setting_takes_no_jax_and_less_than_a_second() -> None:
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from test_brax_plans import make_run, predicted\n"
        "began = time.process_time()\n"
        "found = predicted(make_run(64, 32, 4, 7), mode='auto')\n"
        "took = time.process_time() - began\n"
        "heavy = {'jax', 'brax', 'torch', 'mujoco', 'gymnasium'} & set(sys.modules)\n"
        "assert any(item.name == 'envs.states' for item in found.items)\n"
        "assert not heavy, heavy\n"
        "assert took < 1, took\n"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent)], check=True)
    assert time.monotonic() - began < 30


# -- XLA asked --------------------------------------------------------------------------------------------------------


def test_every_answer_is_kept_at_once_and_nothing_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sizes] = []

    def answer(what: str, run: Run, **more: Any) -> dict[str, Any]:
        if len(asked) == 2:
            raise BadInput("interrupted")
        asked.append(sizes_of(run))
        return {"temporaries": make_plan().nbytes(asked[-1])}

    monkeypatch.setattr(asking, "ask_compiler", answer)
    run = make_run(policy={"kwargs": {}})
    save_calibration(run, make_calibration())
    with pytest.raises(BadInput):
        ask_for_plan(run)
    assert asked == [*asked_sizes(replay=False)]
    asked.clear()
    plan = ask_for_plan(run)
    assert asked == [Sizes(8, 4, 4, 5), Sizes(8, 4, 4, 5)]  # the run as it is, and its evaluation
    assert plan.is_complete and plan.asked[asked_key(None, Sizes(8, 4, 4, 5))] == 23_696


def test_xla_is_asked_once_for_all_sizes_and_again_for_the_very_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    told: list[str] = []

    def answer(what: str, run: Run, *, progress: Any, **more: Any) -> dict[str, Any]:
        asked.append(more["card"])
        progress("XLA plans")
        assert "cuda_compute_capability { major: 8 minor: 9 }" in more["target"]
        return {"temporaries": make_plan(CARD_STEP).nbytes(sizes_of(run))}

    monkeypatch.setattr(asking, "ask_compiler", answer)
    plan = ask_for_plan(make_run(), CARD, progress=told.append)
    assert asked == 4 * [CARD.name]  # two sizes, itself, and the evaluation
    assert told[0] == "XLA plans; 4 to go, about 2 min"  # half a minute each: it compiled within a minute
    assert plan.asked[asked_key(CARD, Sizes(8, 4, 4, 5))] == 18_696
    ask_for_plan(make_run(), CARD)
    assert len(asked) == 4  # all of it is known
    ask_for_plan(make_run(), find_gpu("RTX 4060"))  # of the same generation: only the very run is asked about
    assert asked[4:] == ["GeForce RTX 4060"]


def test_what_is_fitted_is_asked_about_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA plans three times what two sizes tell: what seemed to fit does not, and a smaller run is found."""
    asked: list[Sizes] = []

    def answer(what: str, run: Run, **more: Any) -> dict[str, Any]:
        asked.append(sizes_of(run))
        return {"temporaries": 3 * make_plan(CARD_STEP).nbytes(asked[-1])}

    monkeypatch.setattr(asking, "plugin_missing", lambda: "")
    monkeypatch.setattr(asking, "ask_compiler", answer)
    keep(make_run(), make_plan(CARD_STEP, CARD.name))
    run = make_run(1024, 1024, 4, 512, eval={"n_envs": 1}, memory={"activation_checkpointing": False})
    predictor = Predictor(run, machine("RTX 4090"), device="cuda")
    plan = fit(predictor.run, Budget(64 * GIB, GIB), predictor)
    assert plan.fits and sizes_of(plan.run) == asked[-1] and len(asked) > 1
    known = known_of(plan.run, "cuda", CARD.as_gpu())
    assert known is not None and known.planned == 3 * make_plan(CARD_STEP).nbytes(asked[-1])


def test_a_batch_of_another_kind_is_asked_about_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "plugin_missing", lambda: "")
    monkeypatch.setattr(asking, "ask_compiler", lambda what, run, **more: {"temporaries": 25_600})
    keep(make_run(), make_plan(CARD_STEP, CARD.name))
    assert temporaries(predicted(make_run(), "RTX 4090", "auto")) == 25_600  # a batch of 4


def test_a_compilation_that_fails_is_told_and_the_cpus_plan_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **more: Any) -> Any:
        raise BadInput("no kernel for sm_60")

    monkeypatch.setattr(asking, "plugin_missing", lambda: "")
    monkeypatch.setattr(asking, "ask_compiler", fail)
    footprint = predicted(make_run(), "P100", "auto")
    assert temporaries(footprint) == 23_696
    assert any("no kernel for sm_60" in note and "wide band" in note for note in footprint.notes)


def test_what_cannot_be_asked_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"jax-cuda12-plugin": "0.9.1", "jax-cuda12-pjrt": "0.9.2", "nvidia-cuda-nvcc-cu12": "12.9.86"}
    monkeypatch.setattr("legroom.xla.target.read_versions", lambda _: {**versions, "jaxlib": "0.9.2"})
    assert plugin_missing() == "jax-cuda12-plugin 0.9.1 does not match jaxlib 0.9.2"
    monkeypatch.setattr(asking, "is_installed", lambda package: package != "jax")
    words = f"jax, which is not installed ({install_command('jax', 'jax')})"
    with pytest.raises(MissingExtra, match=re.escape(words)) as raised:
        calibrate(make_run(policy={"kwargs": {}}))
    assert raised.value.exit_code == 3


def test_every_card_of_the_table_can_be_described_to_xla() -> None:
    for card in GPUS:
        text = target_text(card)
        assert f"core_count: {card.multiprocessors}" in text and text.count("{") == text.count("}") == 4
    assert "memory_bandwidth: 1008000000000 l2_cache_size: 75497472 clock_rate_ghz: 2.52" in target_text(CARD)


# -- what is made of it -----------------------------------------------------------------------------------------------


def test_whose_environment_is_billed_is_said_where_the_file_names_none(tmp_path: Path) -> None:
    file = tmp_path / "quick.yaml"
    file.write_text("ppo: {num_envs: 512, batch_size: 128, num_minibatches: 4, unroll_length: 10}\n")
    with collected_notes() as notes:
        read(str(file), like="robot:default")
    assert any(note.startswith("WARNING: predicted with the environment of robot:default") for note in notes)


def test_a_run_that_brax_refuses_is_never_shown_as_one_that_fits() -> None:
    runs = [with_settings(read("robot:default"), hyperparams={"batch_size": 100}), read("robot:quick")]
    budget = Budget(64 * GIB, CARD.total)
    predictions = predict_all(runs, machine("RTX 4090"), budget, mode="arithmetic", device="cuda")
    refused, good = comparison_table(predictions).rows
    assert str(getattr(refused[-1], "text", refused[-1])) == "no: invalid"
    assert str(getattr(good[-1], "text", good[-1])).startswith("yes")


def test_tiers_of_cards_by_name_say_how_many_environments_memory_alone_would_allow() -> None:
    tiers = []
    for card in map(find_gpu, ("RTX 4060", "RTX 4090")):
        predictor = Predictor(read("robot:default"), machine(card.name), mode="arithmetic", device="cuda")
        tiers.append(tier(card.total, Budget(64 * GIB), predictor, card=card.name))
    small, large = tiers
    assert small.most is not None and large.most is not None
    assert small.most.by_memory < large.most.by_memory
    assert (small.card, large.card) == ("GeForce RTX 4060", "GeForce RTX 4090")
    assert small.most.bound == "env steps per update"
