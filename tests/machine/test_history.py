"""If these fail, bands on a user's machine are as wrong after a hundred trainings as before, or `machine` breaks."""

import json

import pytest

from legroom.machine.cache import cache_folder
from legroom.machine.history import FILE, MOST, PastRun, band_scale, past_runs, remember_run
from legroom.model.footprint import Footprint, Item, Peak, Phase, Place


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("LEGROOM_HISTORY", raising=False)


def past(measured, *, way="sb3, traced", scale=1.0, predicted=1_000_000_000, half=100_000_000):
    return PastRun("x", way, predicted, predicted - half, predicted + half, measured, scale)


def test_a_run_is_kept_and_read_again():
    peak = Peak(500, 450, 550, Phase.UPDATE)
    run = remember_run("mine", "sb3, traced", peak, 600, scale=1.0, seen_by="train")
    assert past_runs() == [run]
    assert not run.inside
    assert run.error == pytest.approx(500 / 600 - 1)


def test_the_oldest_give_way():
    peak = Peak(500, 450, 550, Phase.UPDATE)
    for number in range(MOST + 5):
        remember_run(str(number), "way", peak, 500, scale=1.0, seen_by="train")
    assert [run.name for run in past_runs()][:2] == ["5", "6"]
    assert len(past_runs()) == MOST


def test_damage_is_left_out():
    (cache_folder()).mkdir(parents=True)
    (cache_folder() / FILE).write_text("{")
    assert past_runs() == []
    good = {"name": "a", "way": "w", "predicted": 5, "low": 4, "high": 6, "measured": 5}
    bad = [good | {"measured": -1}, good | {"measured": "5"}, good | {"other": 1}, [], good | {"scale": 0}]
    (cache_folder() / FILE).write_text(json.dumps({"runs": [*bad, good]}))
    assert [run.name for run in past_runs()] == ["a"]


def test_it_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("LEGROOM_HISTORY", "off")
    remember_run("mine", "sb3, traced", Peak(500, 450, 550, Phase.UPDATE), 600, scale=1.0, seen_by="train")
    assert not (cache_folder() / FILE).exists()
    assert band_scale("sb3, traced") == 1


def test_one_miss_widens_and_few_hits_change_nothing():
    assert band_scale("sb3, traced", [past(1_010_000_000)] * 5) == 1
    # 1.2 GB where 1.1 was the upper end: twice the half width, and a tenth on top
    assert band_scale("sb3, traced", [past(1_010_000_000), past(1_200_000_000)]) == pytest.approx(2.2)
    assert band_scale("sb3, arithmetic", [past(1_200_000_000)]) == 1
    assert band_scale("sb3, traced", [past(9_000_000_000)]) == 3


def test_many_hits_narrow():
    close = [past(1_020_000_000)] * 30  # a fifth of the half width
    assert band_scale("sb3, traced", close) == 0.6
    # 2 of 40 outside: the 95th of a hundred still lies at twice the half width
    assert band_scale("sb3, traced", [*[past(1_020_000_000)] * 37, *[past(1_200_000_000)] * 3]) == pytest.approx(2.2)


def test_a_band_that_was_stretched_is_judged_by_what_it_would_have_been():
    # the band of ±200 was one of ±100, stretched by 2; the truth lay at +150
    assert past(1_150_000_000, scale=2.0, half=200_000_000).stretch == pytest.approx(1.5)


def test_libraries_shared_with_a_neighbour_are_no_error():
    assert past(820_000_000).stretch == pytest.approx(1.0)  # 80 MB below the lower end
    assert past(700_000_000).stretch == pytest.approx(2.1)  # 200 MB below it, 90 of them perhaps shared


def test_the_scale_is_the_hosts_alone():
    items = (Item("a", 1000, Place.HOST, "", error=100), Item("b", 1000, Place.GPU, "", error=100))
    bill = Footprint("x", items, "cuda", band_scale=1.5)
    assert (bill.host.low, bill.host.high) == (850, 1150)
    assert bill.gpu is not None
    assert (bill.gpu.low, bill.gpu.high) == (900, 1100)


@pytest.mark.parametrize(
    ("change", "kept"),
    [({}, 1), ({"status": "stopped"}, 0), ({"resumed": True}, 0), ({"retreats": ["x"]}, 0), ({"way": ""}, 0)],
)
def test_a_training_is_kept_where_it_went_as_predicted(change, kept):
    from types import SimpleNamespace as Some

    from legroom.training.run_folder import Predicted
    from legroom.training.train import _remember

    peak = Peak(500, 450, 550, Phase.UPDATE)
    said = Predicted(peak, None, (), (), way=change.get("way", "sb3, traced"), band_scale=1.2)
    training = Some(predicted=said, run=Some(name="mine"), resume=change.get("resumed", False))
    outcome = Some(
        status=change.get("status", "finished"),
        retreats=change.get("retreats", []),
        peaks=Some(host=Some(measured=510)),
    )
    _remember(outcome, training)
    assert [(run.measured, run.scale, run.seen_by) for run in past_runs()] == [(510, 1.2, "train")] * kept
