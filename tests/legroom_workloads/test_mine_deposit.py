"""The generated deposit is one to plan a mine on: its columns agree, and its rock lies where such rock lies."""

from __future__ import annotations

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.mine.blocks import COLUMNS
from legroom_workloads.mine.deposit import Geology, generate, sample


@pytest.fixture(scope="module")
def deposit():
    return sample()


def test_the_sample_has_the_size_of_the_original(deposit):
    assert deposit.shape == (49, 71, 58)
    assert deposit.n_blocks == 201_782
    assert deposit.size_m == (20, 20, 15)


def test_the_same_seed_gives_the_same_deposit_and_another_does_not(deposit):
    assert np.array_equal(sample().channels, deposit.channels)
    one, two = generate((16, 16, 16), 1), generate((16, 16, 16), 2)
    assert not np.array_equal(one.channels, two.channels)


def test_grades_follow_from_the_minerals_by_stoichiometry(deposit):
    column = {name: deposit.column(name).astype(float) for name in COLUMNS}
    copper = (
        0.799 * column["chalcocite"]
        + 0.633 * column["bornite"]
        + 0.346 * column["chalcopyrite"]
        + 0.516 * column["tennantite"]
    )
    assert np.abs(column["cu"] - copper).max() < 6e-5  # four decimals
    assert np.abs(column["mo"] - 0.599 * column["molibdenite"]).max() < 6e-5
    assert np.abs(column["as"] - 0.203 * column["tennantite"]).max() < 6e-5


def test_every_column_varies_and_stays_in_its_range(deposit):
    for name in COLUMNS[:-1]:
        assert deposit.column(name).std() > 0, name
    assert deposit.column("rec").max() <= 95
    tonnes = deposit.column("ton") / (20 * 20 * 15)
    assert 2.0 < tonnes.min() < tonnes.max() < 3.2
    assert (deposit.column("clays") > 3).any() and (deposit.column("clays") < 3).any()
    assert (deposit.column("bwi") > 15).any() and (deposit.column("bwi") < 15).any()


def test_neighbours_are_alike(deposit):
    copper = np.log(deposit.column("cu").astype(float))
    for axis in range(3):
        ahead, behind = np.delete(copper, 0, axis).ravel(), np.delete(copper, -1, axis).ravel()
        assert np.corrcoef(ahead, behind)[0, 1] > 0.9


def test_the_zones_lie_over_each_other_as_rain_left_them(deposit):
    middle = (slice(15, 34), slice(22, 49))
    cap, blanket, primary = ((*middle, slice(*benches)) for benches in ((0, 3), (6, 8), (18, 24)))

    def mean(name, zone):
        return float(deposit.column(name)[zone].mean())

    assert mean("cu", cap) < 0.3 * mean("cu", blanket)  # the leached cap
    assert mean("ton", cap) < 0.95 * mean("ton", primary)
    assert mean("chalcocite", blanket) > mean("chalcopyrite", blanket) * 0.3 > mean("chalcocite", primary)
    assert mean("clays", cap) > 1.5 * mean("clays", primary)
    assert deposit.column("bwi")[:, :, -1].mean() > deposit.column("bwi")[:, :, 0].mean() + 3
    assert mean("rec", cap) < mean("rec", primary) - 20
    edge = deposit.column("pyrite")[[0, -1]].mean()
    assert deposit.column("pyrite").max() > 3 * edge  # a halo: neither everywhere nor in the core only


@pytest.mark.parametrize("shape", [(3, 3, 2), (1, 1, 1), (5, 40, 3), (10, 10, 5), (33, 17, 20)])
def test_any_size_is_a_deposit(shape):
    model = generate(shape, 7)
    assert model.shape == shape
    assert model.column("ton").min() > 0
    assert model.column("cu").max() > model.column("cu").min() or shape == (1, 1, 1)


def test_a_large_grid_is_no_matter_of_minutes():
    assert generate((80, 80, 50), 1).n_blocks == 320_000


def test_geology_can_be_chosen():
    rich, poor = (generate((16, 16, 16), 1, geology=Geology(peak_cu=cu)) for cu in (1.2, 0.3))
    assert rich.column("cu").max() > 2 * poor.column("cu").max()
    small = generate((20, 20, 20), 1, size_m=(10, 10, 5))
    assert small.size_m == (10, 10, 5)
    assert small.column("ton").max() < 3.2 * 500


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0, 3, 3), 1), "grid 0x3x3"),
        (((3, 3), 1), "three whole numbers"),
        (((3, 3, 3), -1), "seed -1"),
        (((3, 3, 3), "x"), "seed 'x'"),
        (((3000, 3000, 3000), 1), "at most"),
    ],
)
def test_what_cannot_be_generated_is_refused(arguments, message):
    with pytest.raises(BadInput, match=message):
        generate(*arguments)


def test_impossible_geology_is_refused():
    with pytest.raises(BadInput, match="peak_cu is -1"):
        Geology(peak_cu=-1)
    with pytest.raises(BadInput, match="over 0"):
        Geology(stock=0)
