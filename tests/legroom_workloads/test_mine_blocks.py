"""A block model that cannot be is refused when it is made, and nobody can change one behind another's back."""

from __future__ import annotations

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.mine.blocks import COLUMNS, BlockModel


def channels(shape=(3, 3, 2)) -> np.ndarray:
    array = np.ones((len(COLUMNS), *shape), np.float32)
    array[COLUMNS.index("ton")] = 15_600
    return array


def test_a_model_knows_its_shape_columns_and_default_block_size():
    model = BlockModel(channels((4, 5, 6)))
    assert (model.shape, model.n_blocks, model.size_m) == ((4, 5, 6), 120, (20, 20, 15))
    assert model.column("ton").shape == (4, 5, 6)
    assert model.column("ton")[0, 0, 0] == 15_600


def test_environments_sharing_a_model_cannot_change_it():
    model = BlockModel(channels())
    with pytest.raises(ValueError, match="read-only"):
        model.channels[0, 0, 0, 0] = 2
    changed = model.with_column("upl", np.zeros(model.shape))
    assert changed.column("upl").sum() == 0
    assert model.column("upl").sum() == 18


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("cu", np.nan, "cu is not finite"),
        ("bwi", np.inf, "bwi is not finite"),
        ("ton", -1, "ton is negative"),
        ("rec", 101, "rec is over 100 %"),
        ("upl", 0.5, "upl is neither 0 nor 1"),
    ],
)
def test_what_no_deposit_can_be_is_refused(column, value, message):
    array = channels()
    array[COLUMNS.index(column), 1, 1, 1] = value
    with pytest.raises(BadInput, match=message):
        BlockModel(array, "quarry")
