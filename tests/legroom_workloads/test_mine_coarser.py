"""The same ground on another grid holds the same rock and the same metal."""

from __future__ import annotations

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom_workloads.mine.blocks import COLUMNS, BlockModel
from legroom_workloads.mine.coarser import resample
from legroom_workloads.mine.deposit import generate


def row_of_four(**columns) -> BlockModel:
    """A model of 4 x 1 x 1 blocks of 20 m with the given columns."""
    channels = np.zeros((len(COLUMNS), 4, 1, 1))
    for name, values in columns.items():
        channels[COLUMNS.index(name), :, 0, 0] = values
    return BlockModel(channels, size_m=(20, 20, 15))


def test_four_blocks_become_two_as_by_hand():
    model = row_of_four(
        ton=[100, 300, 200, 200], cu=[1.0, 0.2, 0.0, 0.0], rec=[90, 50, 80, 60], bwi=[10, 14, 12, 16], upl=[1, 0, 1, 1]
    )
    coarse = resample(model, (2, 1, 1))
    assert coarse.size_m == (40, 20, 15)
    assert coarse.column("ton").ravel().tolist() == [400, 400]
    # (100 t * 1 % + 300 t * 0.2 %) / 400 t = 160 / 400
    assert coarse.column("cu").ravel().tolist() == pytest.approx([0.4, 0.0])
    # copper recovered: 1 t * 90 % + 0.6 t * 50 % = 1.2 t of 1.6 t; where there is no copper, by tonnes
    assert coarse.column("rec").ravel().tolist() == pytest.approx([75.0, 70.0])
    assert coarse.column("bwi").ravel().tolist() == pytest.approx([13.0, 14.0])
    assert coarse.column("upl").ravel().tolist() == [0, 1]  # 100 of 400 t, then all


def test_air_stays_air_and_does_not_dilute():
    coarse = resample(row_of_four(ton=[0, 0, 0, 100], cu=[0, 0, 0, 0.8], rec=[0, 0, 0, 90]), (2, 1, 1))
    assert coarse.column("ton").ravel().tolist() == [0, 100]
    assert coarse.column("cu").ravel().tolist() == pytest.approx([0, 0.8])
    assert coarse.column("rec").ravel().tolist() == pytest.approx([0, 90])


@pytest.mark.parametrize("grid", [(5, 5, 5), (10, 20, 7), (18, 25, 21), (40, 9, 30), (1, 1, 1)])
def test_rock_metal_and_money_are_preserved_on_every_grid(grid):
    model = generate((17, 24, 20), 3)
    model = BlockModel(model.channels, "m", model.size_m, np.random.default_rng(0).normal(size=model.shape))
    other = resample(model, grid)
    assert other.shape == grid

    def totals(m):
        f = {name: m.column(name).astype(float) for name in COLUMNS}
        tonnes, copper = f["ton"], f["ton"] * f["cu"]
        metals = [(tonnes * f[name]).sum() for name in ("cu", "mo", "as", "clays", "pyrite", "molibdenite")]
        return [tonnes.sum(), (copper * f["rec"]).sum(), *metals]

    assert totals(other) == pytest.approx(totals(model), rel=1e-6)  # float32 channels
    assert other.values_usd.sum() == pytest.approx(model.values_usd.sum())
    extents = [n * size for n, size in zip(other.shape, other.size_m, strict=True)]
    assert extents == pytest.approx([17 * 20, 24 * 20, 20 * 15])


def test_the_same_grid_is_the_same_model_and_a_bad_one_is_refused():
    model = row_of_four(ton=[1, 1, 1, 1])
    assert resample(model, [4, 1, 1]) is model
    with pytest.raises(BadInput, match="grid 0x1x1"):
        resample(model, (0, 1, 1))
