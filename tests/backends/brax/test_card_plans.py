"""What XLA plans for a card is on the bill where it is known, and who reads it knows which card it was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_brax_calibration import keep, make_plan, make_run

from legroom.backends.brax import asking, items
from legroom.backends.brax.asking import ask_for_plan
from legroom.backends.brax.items import CARD_ERROR, FAR_ERROR, UNEVEN_ERROR
from legroom.backends.brax.plans import Asked, Sizes, Step, moments_of, sizes_of
from legroom.backends.brax.scaling import known_for
from legroom.device.xla_target import plugin_missing, target_text
from legroom.errors import BadInput
from legroom.fitting.changes import with_settings
from legroom.fitting.predictor import Predictor, predict_all
from legroom.fitting.tiers import tier
from legroom.machine.gpu_table import GPUS, find_gpu
from legroom.model.footprint import Footprint, Item
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.predicting.predict import predict
from legroom.reading import read
from legroom.reading.reading_notes import collected_notes
from legroom.rendering.prediction_text import comparison_table
from legroom.units import GIB

CARD = find_gpu("RTX 4090")
# half of what the CPU's compiler plans for a minibatch
STEP = Step(({"BU": 250.0, "BMU": 120.0, "1": 4096.0},))


def machine(card: str = "RTX 4090") -> Machine:
    gpus = (find_gpu(card).as_gpu(),)
    return Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=32 * GIB, cores=8, gpus=gpus)


def temporaries(footprint: Footprint) -> int:
    names = {"network.activations", "rollout", "rollout.copies", "envs.temporaries", "xla.other temporaries"}
    return sum(item.total for item in footprint.items if item.name in names)


@pytest.fixture(autouse=True)
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep(make_run())


def keep_plan(step: Step = STEP, **run: Any) -> None:
    keep(make_run(**run), make_plan(step, CARD.name))


def activations(run: Run, card: str = "RTX 4090") -> Item:
    footprint = predict(run, machine(card), mode="arithmetic", device="cuda")
    return next(item for item in footprint.items if item.name == "network.activations")


EVEN: dict[str, Any] = {"envs": 128, "batch": 64}


def test_the_bill_of_a_card_is_as_xla_plans_it_for_that_card() -> None:
    keep_plan()
    run = make_run(**EVEN)
    # 64 × 5 samples × 250 + 1,280 steps × 120 + 4096
    assert temporaries(predict(run, machine(), mode="arithmetic", device="cuda")) == 80_000 + 153_600 + 4096
    item = activations(run)
    assert "XLA for GeForce RTX 4090" in item.why
    assert item.error == 8000  # 10 %, no longer half of it
    # on the CPU nothing changes
    assert temporaries(predict(make_run(), machine(), mode="arithmetic", device="cpu")) == 23_696


def test_a_run_that_xla_planned_as_it_is_is_met() -> None:
    plan = make_plan(STEP, CARD.name)
    asked = [*plan.asked[CARD.name], Asked(Sizes(8, 4, 4, 5), 25_600)]
    keep(make_run(), plan.model_copy(update={"asked": {CARD.name: asked}}))
    assert temporaries(predict(make_run(), machine(), mode="arithmetic", device="cuda")) == 25_600
    item = activations(make_run())
    assert item.error == round(CARD_ERROR * item.nbytes)  # although no multiple of 64


def test_a_batch_that_is_no_multiple_of_64_has_a_wider_band_until_xla_was_asked_about_it() -> None:
    keep_plan()
    assert activations(make_run()).error == round(UNEVEN_ERROR * 5000)
    assert activations(make_run(**EVEN)).error == round(CARD_ERROR * 80_000)


def test_a_minibatch_far_larger_than_any_that_xla_was_asked_about_has_a_wider_band() -> None:
    keep_plan()
    far = activations(make_run(envs=16_384, batch=16_384))
    assert far.error == round(FAR_ERROR * far.nbytes)


def test_a_card_of_another_generation_has_a_wider_band_and_the_reader_is_told() -> None:
    keep_plan()
    footprint = predict(make_run(**EVEN), machine("T4"), mode="arithmetic", device="cuda")
    assert activations(make_run(**EVEN), "T4").error == 20_000
    assert any("for a GeForce RTX 4090" in note and "±25% of the temporaries" in note for note in footprint.notes)
    assert activations(make_run(**EVEN), "RTX 4060").error == 8000  # the same capability


def test_without_a_plan_the_reader_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "plugin_missing", lambda: "jax-cuda12-plugin is not installed")
    footprint = predict(make_run(), machine(), mode="arithmetic", device="cuda")
    assert any("±50% of the temporaries" in note and "[xla-gpu]" in note for note in footprint.notes)


def test_what_nvidia_smi_will_show_is_said_and_is_not_what_the_run_needs() -> None:
    notes = predict(make_run(), machine(), mode="arithmetic", device="cuda").notes
    assert any("nvidia-smi will show about 18.0 GiB" in note for note in notes)  # three quarters of 24,564 MiB
    off = make_run(memory={"xla_preallocate": False})
    keep(off)
    assert not any("nvidia-smi" in note for note in predict(off, machine(), mode="arithmetic", device="cuda").notes)


def test_a_card_needs_a_third_more_than_the_arrays_since_xla_takes_three_quarters_of_it() -> None:
    keep_plan(Step(({"1": 6.0 * GIB},)))
    gpu = predict(make_run(), machine(), mode="arithmetic", device="cuda").gpu
    assert gpu is not None
    assert 8 * GIB < gpu.nbytes < 8.1 * GIB  # 6 GiB and 32 MiB of workspaces are three quarters of it


def test_xla_is_asked_once_for_all_sizes_and_again_for_the_very_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(what: str, run: Run, **more: Any) -> dict[str, Any]:
        asked.append(more["card"])
        assert "cuda_compute_capability { major: 8 minor: 9 }" in more["target"]
        return {"temporaries": STEP.nbytes(sizes_of(run))}

    monkeypatch.setattr(asking, "ask_compiler", answer)
    run = make_run()
    plan = ask_for_plan(run, CARD)
    few = sum(len(moment.asked) for moment in moments_of(replay=False))
    assert len(asked) == few + 2  # itself, and the evaluation
    assert plan.step is not None and plan.exact(CARD.name, Sizes(8, 4, 4, 5)) == 18_696
    ask_for_plan(run, CARD)
    assert len(asked) == few + 2  # all of it is known
    ask_for_plan(run, find_gpu("RTX 4060"))  # of the same generation: only the very run is asked about
    assert asked[few + 2 :] == ["GeForce RTX 4060"]


def test_a_batch_of_another_kind_is_asked_about_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "plugin_missing", lambda: "")
    monkeypatch.setattr(asking, "ask_compiler", lambda what, run, **more: {"temporaries": 25_600})
    keep_plan()
    assert temporaries(predict(make_run(), machine(), mode="auto", device="cuda")) == 25_600  # a batch of 4


def test_a_compilation_that_fails_is_told_and_the_cpus_plan_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **more: Any) -> Any:
        raise BadInput("no kernel for sm_60")

    monkeypatch.setattr(asking, "plugin_missing", lambda: "")
    monkeypatch.setattr(asking, "ask_compiler", fail)
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


@pytest.mark.parametrize(
    ("run", "card"),
    [
        *(("robot:default", card) for card in ("T4", "A100", "RTX 3090", "RTX 4090", "H100", "RTX 5090")),
        ("robot:quick", "RTX 4090"),
    ],
)
def test_the_robot_ships_plans_for_cards(run: str, card: str) -> None:
    known = known_for(read(run), find_gpu(card).as_gpu())
    assert known is not None and known.plan.card and known.same_card and not known.scaled
    assert known.planned is not None  # the run as it is; what the sizes that were asked say is nearly the same
    assert known.step.nbytes(sizes_of(read(run))) == pytest.approx(known.planned, rel=CARD_ERROR)


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
