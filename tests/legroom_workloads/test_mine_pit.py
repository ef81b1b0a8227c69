"""The ultimate pit is the best of all pits: by hand, against every pit of small grids, and proven on the sample."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array

from legroom.errors import BadInput
from legroom_workloads.mine.coarser import resample
from legroom_workloads.mine.deposit import sample
from legroom_workloads.mine.economics import block_values
from legroom_workloads.mine.pit import closure, grid_precedence, solve_closure, ultimate_pit


def is_closed(pit: np.ndarray) -> bool:
    """Whether over each block of the pit all blocks above, those that exist, belong to it."""
    for x, y, z in np.argwhere(pit):
        above = pit[max(x - 1, 0) : x + 2, max(y - 1, 0) : y + 2, z - 1] if z else np.ones(1, bool)
        if not above.all():
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
    pit = ultimate_pit(values)  # 9.5 - 9 = 0.5
    assert pit[:, :, 0].all()
    assert pit[:, :, 1].sum() == 1
    assert values[pit].sum() == 0.5
    values[1, 1, 1] = 8.5  # less than the waste over it costs
    assert not ultimate_pit(values).any()
    values[1, 1, 1] = 9.0  # no gain: the smallest of the best pits is none
    assert not ultimate_pit(values).any()


def test_ore_at_the_edge_needs_only_the_blocks_that_exist():
    values = np.full((3, 3, 2), -1.0)
    values[0, 0, 1] = 4.5  # four blocks over it
    assert np.argwhere(ultimate_pit(values)).tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 1, 0]]


def test_two_ore_blocks_share_the_waste_neither_could_pay_for():
    values = np.full((4, 3, 2), -1.0)
    values[1, 1, 1] = values[2, 1, 1] = 6.5  # 9 blocks over each, 12 over both: 13 - 12 = 1
    pit = ultimate_pit(values)
    assert pit.sum() == 14
    assert values[pit].sum() == 1


def test_all_ore_and_all_waste():
    assert ultimate_pit(np.ones((3, 4, 5))).all()
    assert not ultimate_pit(-np.ones((3, 4, 5))).any()
    assert not ultimate_pit(np.zeros((2, 2, 2))).any()
    assert ultimate_pit(np.full((1, 1, 1), 1e-9)).all()
    top_only = np.zeros((2, 2, 3))
    top_only[0, 0, 0] = 5
    assert np.argwhere(ultimate_pit(top_only)).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("shape", [(2, 2, 3), (3, 2, 2), (1, 5, 3), (2, 3, 2)])
def test_no_pit_of_a_small_grid_is_better(shape):
    pits = list(every_pit(shape))
    rng = np.random.default_rng(0)
    for _ in range(25):
        values = rng.integers(-6, 9, shape).astype(float)
        found = ultimate_pit(values)
        best = max(float(values[pit].sum()) for pit in pits)
        assert values[found].sum() == best
        assert is_closed(found)
        as_good = [pit for pit in pits if values[pit].sum() == best]
        assert found.sum() == min(pit.sum() for pit in as_good)


def test_small_values_beside_large_ones_are_all_counted():
    # in 32-bit units of the large values a waste of 4 is nothing: a single pass would dig for every 30 under nine
    values = np.full((3 * 101, 3, 2), -4.0)
    values[1:-3:3, 1, 1] = 30
    values[4:-3:9, 1, 1] = 40  # these pay
    values[-2, 1, 1], values[-2, 1, 0] = 3e10, -2e10
    pit = ultimate_pit(values)
    assert np.flatnonzero(pit[:, 1, 1]).tolist() == [*range(4, 300, 9), 301]


def test_the_sample_has_a_sensible_pit_on_every_grid_that_runs_use():
    model = sample()
    for grid in (model.shape, (50, 50, 30), (20, 20, 10), (10, 10, 5)):
        values, _ = block_values(resample(model, grid))
        pit = ultimate_pit(values)
        assert 0.15 < pit.mean() < 0.45, grid
        assert values[pit].sum() > 1e9, grid
        assert 0.4 < (values[pit] < 0).mean() < 0.85, grid  # waste over the ore, but not only waste
        assert not pit[:, :, -1].any(), grid
        top_down = pit[:, :, :-1] >= pit[:, :, 1:]
        assert top_down.all()


def test_a_pit_of_25_000_blocks_is_proven_optimal_to_the_dollar():
    values, _ = block_values(resample(sample(), (25, 35, 29)))
    found = solve_closure(values.ravel(), grid_precedence(values.shape))
    assert np.array_equal(found.inside.reshape(values.shape), ultimate_pit(values))
    assert is_closed(found.inside.reshape(values.shape))
    assert 0 <= found.bound - found.value < 1
    assert found.value == pytest.approx(values.ravel()[found.inside].sum())


def test_the_grids_precedence_has_nine_blocks_over_one():
    graph = grid_precedence((3, 3, 2))
    middle = graph[[(1 * 3 + 1) * 2 + 1]]
    assert sorted(middle.indices.tolist()) == [(x * 3 + y) * 2 for x in range(3) for y in range(3)]
    assert graph[[(0 * 3 + 0) * 2 + 1]].nnz == 4
    assert graph[[0]].nnz == 0


def test_a_closure_of_any_graph():
    # 2 needs 0 and 1; 3 needs 2; 4 stands alone
    graph = csr_array(([1, 1, 1], ([2, 2, 3], [0, 1, 2])), shape=(5, 5))
    assert closure([-1, -1, 1, 2, -5], graph).tolist() == [True, True, True, True, False]
    assert closure([-1, -3, 1, 2, 5], graph).tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("values", [np.zeros((2, 2)), np.full((2, 2, 2), np.nan), np.full((2, 2, 2), np.inf)])
def test_values_that_are_none(values):
    with pytest.raises(BadInput, match="block values"):
        ultimate_pit(values)


def test_a_graph_of_other_blocks():
    with pytest.raises(BadInput, match="it must be 3 x 3"):
        closure([1, 2, 3], csr_array((2, 2)))
