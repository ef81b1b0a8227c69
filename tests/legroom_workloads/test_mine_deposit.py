"""The generated deposit is one to plan a mine on: its columns agree, and its rock lies where such rock lies."""

from __future__ import annotations

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.mine.blocks import COLUMNS
from legroom_workloads.mine.deposit import generate, sample


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
