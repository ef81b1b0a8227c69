"""What XLA plans for a card is on the bill where it is known, and who reads it knows which card it was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_brax_calibration import make_calibration, make_run

from legroom.backends.brax import card_asking, card_plans
from legroom.backends.brax.calibration import (
    Checked,
    calibration_file,
    card_kind_of,
    program_for,
    save_calibration,
    sizes_of,
)
from legroom.backends.brax.card_plans import PLAN_VERSION, CardPlan, ask_for_card, plan_file
from legroom.backends.brax.items import CARD_ERROR, UNEVEN_ERROR
from legroom.backends.brax.pieces import Program, Sizes
from legroom.backends.brax.scaling import known_for
from legroom.device.xla_target import plugin_missing, target_text
from legroom.errors import BadInput
from legroom.fitting.changes import with_settings
from legroom.fitting.predictor import Predictor
from legroom.fitting.priced import predict_all
from legroom.fitting.tiers import tier
from legroom.machine.cache import write_json
from legroom.machine.gpu_table import GPUS, find_gpu
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.verdict import Budget
from legroom.predicting.predict import predict
from legroom.reading import read
from legroom.reading.reading_notes import collected_notes
from legroom.rendering.prediction_text import comparison_table
from legroom.units import GIB

CARD = find_gpu("RTX 4090")
# half of what the CPU's compiler plans for a minibatch
PROGRAM = Program(({"BU": 250.0, "BMU": 120.0, "1": 4096.0},))


def machine(card: str = "RTX 4090") -> Machine:
    gpus = (find_gpu(card).as_gpu(),)
    return Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=32 * GIB, cores=8, gpus=gpus)


def temporaries(footprint: Footprint) -> int:
    names = {"network.activations", "rollout", "rollout.copies", "envs.temporaries", "xla.other temporaries"}
    return sum(item.total for item in footprint.items if item.name in names)


@pytest.fixture(autouse=True)
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save_calibration(make_run(), make_calibration())


def keep_plan(**checked: list[Checked]) -> None:
    plan = CardPlan(PLAN_VERSION, {}, CARD.name, {"many few 4": PROGRAM}, None, dict(checked))
    write_json(plan_file(calibration_file(make_run()), CARD), plan.model_dump())


def test_the_bill_of_a_card_is_as_xla_plans_it_for_that_card() -> None:
    keep_plan()
    footprint = predict(make_run(), machine(), mode="arithmetic", device="cuda")
    # 4 × 5 samples × 250 + 80 steps × 120 + 4096
    assert temporaries(footprint) == 5000 + 9600 + 4096
    item = next(item for item in footprint.items if item.name == "network.activations")
    assert "XLA for GeForce RTX 4090" in item.why
    assert item.error == 500  # 10 %, no longer half of it
    # on the CPU nothing changes
    assert temporaries(predict(make_run(), machine(), mode="arithmetic", device="cpu")) == 23_696


def test_a_setting_that_xla_planned_as_it_is_is_met_and_others_are_as_the_marked_program_says() -> None:
    keep_plan(**{CARD.name: [Checked(Sizes(8, 4, 4, 5), 25_600)]})
    met = predict(make_run(), machine(), mode="arithmetic", device="cuda")
    assert temporaries(met) == 25_600
    item = next(item for item in met.items if item.name == "network.activations")
    assert item.error == round(CARD_ERROR * item.nbytes)  # however far the marked program is from it
    # 40 × 250 + 160 × 120 + 4096, in a band as wide as the planned one is off: 25,600 for 18,696
    other = predict(make_run(unroll=10), machine(), mode="arithmetic", device="cuda")
    assert temporaries(other) == 10_000 + 19_200 + 4096
    activations = next(item for item in other.items if item.name == "network.activations")
    assert activations.error == round(10_000 * (1 - 18_696 / 25_600))


def test_programs_are_told_apart_by_unrolls_minibatches_and_evenness_of_the_batch() -> None:
    assert card_kind_of(Sizes(1024, 256, 4, 10)) == "one few 64"
    assert card_kind_of(Sizes(1024, 256, 32, 10)) == "many lots 64"
    assert card_kind_of(Sizes(400, 100, 4, 10)) == "one few 4"
    few, lots = Program(({"BU": 1.0},)), Program(({"BU": 2.0},))
    programs = {"many few 64": few, "many lots 64": lots, "one few 64": Program(({"BU": 3.0},))}
    assert program_for(programs, Sizes(512, 256, 32, 10)) is lots
    assert program_for(programs, Sizes(100, 100, 4, 10)) is few  # nobody asked about multiples of 4


def test_a_batch_that_is_no_multiple_of_64_has_a_wider_band_until_xla_was_asked_about_such() -> None:
    def error(key: str) -> int:
        plan = CardPlan(PLAN_VERSION, {}, CARD.name, {key: PROGRAM}, None, {})
        write_json(plan_file(calibration_file(make_run()), CARD), plan.model_dump())
        items = predict(make_run(), machine(), mode="arithmetic", device="cuda").items
        return next(item for item in items if item.name == "network.activations").error

    assert error("many few 4") == round(CARD_ERROR * 5000)
    assert error("many few 64") == round(UNEVEN_ERROR * 5000)


def test_a_card_of_another_generation_has_a_wider_band_and_the_reader_is_told() -> None:
    keep_plan()
    footprint = predict(make_run(), machine("T4"), mode="arithmetic", device="cuda")
    item = next(item for item in footprint.items if item.name == "network.activations")
    assert item.error == 1250
    assert any("for a GeForce RTX 4090" in note and "±25% of the temporaries" in note for note in footprint.notes)
    same = predict(make_run(), machine("RTX 4060"), mode="arithmetic", device="cuda")  # the same capability
    assert next(item for item in same.items if item.name == "network.activations").error == 500


def test_without_a_plan_the_reader_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_asking, "plugin_missing", lambda: "jax-cuda12-plugin is not installed")
    footprint = predict(make_run(), machine(), mode="arithmetic", device="cuda")
    assert any("±50% of the temporaries" in note and "[xla-gpu]" in note for note in footprint.notes)


def test_what_nvidia_smi_will_show_is_said_and_is_not_what_the_run_needs() -> None:
    notes = predict(make_run(), machine(), mode="arithmetic", device="cuda").notes
    assert any("nvidia-smi will show about 18.0 GiB" in note for note in notes)  # three quarters of 24,564 MiB
    off = make_run(memory={"xla_preallocate": False})
    save_calibration(off, make_calibration())
    assert not any("nvidia-smi" in note for note in predict(off, machine(), mode="arithmetic", device="cuda").notes)


def test_a_card_needs_a_third_more_than_the_arrays_since_xla_takes_three_quarters_of_it() -> None:
    program = Program(({"1": 6.0 * GIB},))
    plan = CardPlan(PLAN_VERSION, {}, CARD.name, {"many few 4": program}, None, {})
    write_json(plan_file(calibration_file(make_run()), CARD), plan.model_dump())
    gpu = predict(make_run(), machine(), mode="arithmetic", device="cuda").gpu
    assert gpu is not None
    assert 8 * GIB < gpu.nbytes < 8.1 * GIB  # 6 GiB and 32 MiB of workspaces are three quarters of it


def test_xla_is_asked_once_for_all_settings_and_again_for_the_very_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, Any]] = []

    def answer(what: str, run: Any, **more: Any) -> dict[str, Any]:
        asked.append((what, more["card"], more.get("one_unroll")))
        assert "cuda_compute_capability { major: 8 minor: 9 }" in more["target"]
        return {"temporaries": 20_000} if what == "plan" else {"pieces": [{"BU": 1.0}], "packing": 1.0}

    monkeypatch.setattr(card_plans, "ask_compiler", answer)
    run = make_run()  # 16 segments for 8 environments: many unrolls
    plan = ask_for_card(run, CARD)
    assert [what for what, _, _ in asked] == ["mark", "mark", "plan"]  # its kind, the evaluation, itself
    assert plan.knows(Sizes(8, 4, 4, 5)) and not plan.knows(Sizes(8, 64, 4, 5))
    assert plan.exact(CARD, Sizes(8, 4, 4, 5)) == 20_000
    ask_for_card(run, CARD)
    assert len(asked) == 3  # all of it is known
    ask_for_card(run, find_gpu("RTX 4060"))  # of the same generation: only the very run is asked about
    assert asked[3:] == [("plan", "GeForce RTX 4060", None)]


def test_a_compilation_that_fails_is_told_and_the_cpus_plan_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **more: Any) -> Any:
        raise BadInput("no kernel for sm_60")

    monkeypatch.setattr(card_asking, "plugin_missing", lambda: "")
    monkeypatch.setattr(card_plans, "ask_compiler", fail)
    footprint = predict(make_run(), machine("P100"), mode="auto", device="cuda")
    assert temporaries(footprint) == 23_696
    assert any("no kernel for sm_60" in note and "wide band" in note for note in footprint.notes)


def test_versions_that_do_not_match_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"jax-cuda12-plugin": "0.9.1", "jax-cuda12-pjrt": "0.9.2", "nvidia-cuda-nvcc-cu12": "12.9.86"}
    monkeypatch.setattr("legroom.device.xla_target.read_versions", lambda _: {**versions, "jaxlib": "0.9.2"})
    assert plugin_missing() == "jax-cuda12-plugin 0.9.1 does not match jaxlib 0.9.2"


def test_every_card_of_the_table_can_be_described_to_xla() -> None:
    for card in GPUS:
        text = target_text(card)
        assert f"core_count: {card.multiprocessors}" in text and text.count("{") == text.count("}") == 4
    assert "memory_bandwidth: 1008000000000 l2_cache_size: 75497472 clock_rate_ghz: 2.52" in target_text(CARD)


@pytest.mark.parametrize("name", ["T4", "A100", "RTX 3090", "RTX 4090", "H100", "RTX 5090"])
def test_the_robot_ships_plans_for_cards_of_six_generations(name: str) -> None:
    run, card = read("robot:default"), find_gpu(name)
    known = known_for(run, card.as_gpu())
    assert known is not None and known.plan is not None and known.same_card
    assert set(known.plan.programs) == {"one few 64", "one lots 64", "many few 64", "many lots 64"}
    assert known.planned is not None  # the run as it is
    # the marked program, compiled with other sizes, says nearly the same of it
    said = sum(known.calibration.temporaries(Sizes(1024, 256, 4, 10)).values())
    assert said == pytest.approx(known.planned, rel=CARD_ERROR / 2)
    if name == "RTX 4090":
        assert known.planned == 32_054_272  # XLA's memory analysis says 32.1 MB


@pytest.mark.parametrize("name", ["A100", "RTX 3090", "RTX 4090", "H100"])
def test_the_robot_with_smaller_networks_has_plans_of_its_own(name: str) -> None:
    run = read("robot:quick")
    known = known_for(run, find_gpu(name).as_gpu())
    assert known is not None and known.plan is not None and known.same_card and not known.scaled
    assert set(known.plan.programs) == {"one few 64", "one lots 64", "many few 64", "many lots 64"}
    assert known.planned is not None
    said = sum(known.calibration.temporaries(sizes_of(run)).values())
    assert said == pytest.approx(known.planned, rel=CARD_ERROR)
    if name == "RTX 4090":
        assert known.planned == 11_939_744  # of which 1,310,720 B are workspaces of cuBLAS


def test_whose_environment_is_billed_is_said_where_the_file_names_none(tmp_path: Path) -> None:
    file = tmp_path / "quick.yaml"
    file.write_text("ppo: {num_envs: 512, batch_size: 128, num_minibatches: 4, unroll_length: 10}\n")
    with collected_notes() as notes:
        read(str(file), like="robot:default")
    assert any(note.startswith("WARNING: predicted with the environment of robot:default") for note in notes)


def test_a_run_that_brax_refuses_is_never_shown_as_one_that_fits() -> None:
    runs = [with_settings(read("robot:default"), hyperparams={"batch_size": 100}), read("robot:quick")]
    predictions = predict_all(runs, machine(), Budget(64 * GIB, CARD.total), mode="arithmetic", device="cuda")
    refused, good = comparison_table(predictions).rows
    assert str(getattr(refused[-1], "text", refused[-1])) == "no: invalid"
    assert str(getattr(good[-1], "text", good[-1])).startswith("yes")


def test_tiers_of_cards_by_name_say_how_many_environments_memory_alone_would_allow() -> None:
    tiers = []
    for name in ("RTX 4060", "RTX 4090"):
        predictor = Predictor(read("robot:default"), machine(name), mode="arithmetic", device="cuda")
        card = find_gpu(name)
        tiers.append(tier(card.total, Budget(64 * GIB), predictor, card=card.name))
    small, large = tiers
    assert small.most is not None and large.most is not None
    assert small.most.by_memory < large.most.by_memory
    assert (small.card, large.card) == ("GeForce RTX 4060", "GeForce RTX 4090")
    assert small.most.bound == "env steps per update"
