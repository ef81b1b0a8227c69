"""The ultimate pit is the best of all pits: by hand, against every pit of small grids, and proven on the sample."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from legroom_workloads.mine.coarser import resample
from legroom_workloads.mine.deposit import sample
from legroom_workloads.mine.economics import block_values
from legroom_workloads.mine.pit import ultimate_pit
from legroom_workloads.mine.precedence import close_upwards, depths_of, slopes

NINE_OVER_ONE = (1.0, 1.0, 1.42)  # so tall that the corners of the bench above are within 45 degrees, to three benches
SAMPLE_M = np.array([49 * 20, 71 * 20, 58 * 15])  # the ground of the sample deposit


def is_closed(pit: np.ndarray, size_m=NINE_OVER_ONE, steeper_deg: float = 0.0) -> bool:
    """Whether all blocks whose centres lie within 45 degrees, or steeper, over those of the pit belong to it."""
    nx, ny, nz = pit.shape
    x, y, z = np.ogrid[:nx, :ny, :nz]
    for at_x, at_y, at_z in np.argwhere(pit & ~np.pad(pit, ((0, 0), (0, 0), (0, 1)))[:, :, 1:]):  # the deepest ones
        away = np.hypot((x - at_x) * size_m[0], (y - at_y) * size_m[1])
        over = (at_z - z) * size_m[2]
        steep = over + 1e-6 >= away * np.tan(np.radians(45 + steeper_deg))
        if not pit[(z < at_z) & steep].all():
            return False
    return True


def every_pit(shape):
    """Yield all pits of a small grid, by the depths of their columns."""
    nx, ny, nz = shape
    for depths in product(range(nz + 1), repeat=nx * ny):
        pit = np.arange(nz) < np.reshape(depths, (nx, ny, 1))
        if is_closed(pit):
            yield pit


def test_ore_under_nine_blocks_of_waste_by_hand():
    values = np.full((3, 3, 2), -1.0)
    values[1, 1, 1] = 9.5
    pit = ultimate_pit(values, NINE_OVER_ONE)  # 9.5 - 9 = 0.5
    assert pit[:, :, 0].all()
    assert pit[:, :, 1].sum() == 1
    assert values[pit].sum() == 0.5
    values[1, 1, 1] = 8.5  # less than the waste over it costs
    assert not ultimate_pit(values, NINE_OVER_ONE).any()
    values[1, 1, 1] = 9.0  # no gain: the smallest of the best pits is none
    assert not ultimate_pit(values, NINE_OVER_ONE).any()


def test_blocks_of_20_20_15_need_the_one_above_and_nine_two_benches_up_by_hand():
    values = np.full((5, 5, 3), -1.0)
    values[2, 2, 2] = 10.5
    pit = ultimate_pit(values)  # within 15 m of 15 m up: the one; within 30 m of 30 m up: 20 and 28.3, not 40
    assert pit.sum(axis=(0, 1)).tolist() == [9, 1, 1] and values[pit].sum() == 0.5
    assert pit[1:4, 1:4, 0].all()


GRIDS = [(49, 71, 58), (50, 50, 30), (20, 20, 10), (10, 10, 5), (25, 35, 29), (98, 40, 58), (30, 3, 30), (12, 90, 40)]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_slopes_are_45_to_46_degrees_on_every_grid_of_the_same_ground(grid):
    """Centre to centre: no rock stands more steeply over a mined block, and none is moved that lies flatter."""
    size_m = tuple(SAMPLE_M / grid)
    x, y, z = np.ogrid[: grid[0], : grid[1], : grid[2]]
    for at_x, at_y in {(grid[0] // 2, grid[1] // 2), (0, 0), (grid[0] // 3, grid[1] - 1)}:  # middle, corner, edge
        deepest = np.zeros(grid, bool)
        deepest[at_x, at_y, -1] = True
        depths = close_upwards(depths_of(deepest), slopes(grid, size_m))
        pit = np.arange(grid[2]) < depths[:, :, None]
        away = np.hypot((x - at_x) * size_m[0], (y - at_y) * size_m[1])
        angle = np.degrees(np.arctan2((grid[2] - 1 - z) * size_m[2], away))
        assert angle[~pit].max() <= 46.0
        assert angle[pit & (z < grid[2] - 1)].min() >= 45.0 - 1e-6
        values = np.where(deepest, pit.sum() + 0.5, -1.0)
        assert np.array_equal(ultimate_pit(values, size_m), pit)


def test_two_ore_blocks_share_the_waste_neither_could_pay_for():
    values = np.full((4, 3, 2), -1.0)
    values[1, 1, 1] = values[2, 1, 1] = 6.5  # 9 blocks over each, 12 over both: 13 - 12 = 1
    pit = ultimate_pit(values, NINE_OVER_ONE)
    assert pit.sum() == 14
    assert values[pit].sum() == 1


@pytest.mark.parametrize("shape", [(2, 2, 3), (3, 2, 2), (1, 5, 3), (2, 3, 2)])
def test_no_pit_of_a_small_grid_is_better(shape):
    pits = list(every_pit(shape))
    rng = np.random.default_rng(0)
    for _ in range(25):
        values = rng.integers(-6, 9, shape).astype(float)
        found = ultimate_pit(values, NINE_OVER_ONE)
        best = max(float(values[pit].sum()) for pit in pits)
        assert values[found].sum() == best
        assert is_closed(found)
        as_good = [pit for pit in pits if values[pit].sum() == best]
        assert found.sum() == min(pit.sum() for pit in as_good)


def test_the_sample_has_a_sensible_pit_on_every_grid_that_runs_use():
    model = sample()
    for grid in (model.shape, (50, 50, 30), (20, 20, 10), (10, 10, 5)):
        ground = resample(model, grid)
        values, _ = block_values(ground)
        pit = ultimate_pit(values, ground.size_m)
        assert 0.15 < pit.mean() < 0.45, grid
        assert values[pit].sum() > 1e9, grid
        assert 0.4 < (values[pit] < 0).mean() < 0.85, grid  # waste over the ore, but not only waste
        assert not pit[:, :, -1].any(), grid
        top_down = pit[:, :, :-1] >= pit[:, :, 1:]
        assert top_down.all()
