"""Greedy schedules can be dug, are worth what they say, and stay under the bound that nested pits prove."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from legroom_workloads.mine.coarser import resample
from legroom_workloads.mine.deposit import sample
from legroom_workloads.mine.economics import block_values
from legroom_workloads.mine.greedy import Ground, best_greedy, running_npv, schedules
from legroom_workloads.mine.nested import nested_pits, npv_bound
from legroom_workloads.mine.pit import ultimate_pit
from legroom_workloads.mine.precedence import slopes

NINE_OVER_ONE = (1.0, 1.0, 1.42)  # so tall that the corners of the bench above are within 45 degrees
ULTRA_LIGHT_M = (49.0, 71.0, 87.0)
NAMES = {"exposed", "benches", "cones", "shells", "shell cones"}


def dig(values, order, start=None, size_m=NINE_OVER_ONE) -> list[float]:
    """Dig column after column, refusing what may not be dug; return the value of each block."""
    nx, ny, nz = values.shape
    depths = np.zeros((nx, ny), int) if start is None else np.array(start)
    got = []
    for column in order:
        x, y = divmod(int(column), ny)
        depth = depths[x, y]
        assert depth < nz
        for dx, dy, up in slopes(values.shape, size_m).tolist():
            if 0 <= x + dx < nx and 0 <= y + dy < ny:
                assert depths[x + dx, y + dy] >= depth + 1 - up
        got.append(float(values[x, y, depth]))
        depths[x, y] += 1
    return got


def factors(count, rate=0.01):
    return (1 + rate) ** -np.arange(1.0, count + 1)


@pytest.fixture(scope="module")
def ultra_light():
    deposit = resample(sample(), (20, 20, 10))
    assert deposit.size_m == ULTRA_LIGHT_M
    values, _ = block_values(deposit)
    return values, ultimate_pit(values, ULTRA_LIGHT_M)


def test_two_hills_by_hand():
    # two columns apart from each other: 5 in the open on the left; 20 under a waste of 2 on the right
    values = np.zeros((5, 1, 2)) - 100
    values[0, 0, 0] = 5
    values[4, 0, :] = [-2, 20]
    values[3, 0, 0] = -2
    pit = ultimate_pit(values, NINE_OVER_ONE)
    assert np.argwhere(pit).tolist() == [[0, 0, 0], [3, 0, 0], [4, 0, 0], [4, 0, 1]]
    halves = 0.5 ** np.arange(4)
    ground = Ground.of(values, pit, size_m=NINE_OVER_ONE)
    npvs = {name: float(running_npv(ground, order, halves).max()) for name, order in schedules(ground)}
    assert npvs["exposed"] == 5 - 2 / 2 - 2 / 4 + 20 / 8
    npv, order, name = best_greedy(values, pit, halves, size_m=NINE_OVER_ONE)
    assert (npv, name) == (6.0, "exposed")  # the others come to the same; the right hill first would bring -2 - 1 + 5
    assert order.tolist()[0] == 0


def test_every_schedule_can_be_dug_and_is_worth_what_it_says(ultra_light):
    values, pit = ultra_light
    ground = Ground.of(values, pit, size_m=ULTRA_LIGHT_M)
    discount = factors(int(pit.sum()), 0.003)
    seen = set()
    for name, order in schedules(ground):
        got = dig(values, order, size_m=ULTRA_LIGHT_M)
        assert len(order) <= pit.sum()
        assert sum(got) == pytest.approx(values[pit].sum()), name  # the smallest best pit: all of it is needed
        assert np.cumsum(got * discount) == pytest.approx(running_npv(ground, order, discount)), name
        seen.add(name)
    assert seen == NAMES


def test_the_best_is_the_best_and_under_the_bound(ultra_light):
    values, pit = ultra_light
    discount = factors(int(pit.sum()), 0.003)
    npv, order, name = best_greedy(values, pit, discount, size_m=ULTRA_LIGHT_M)
    ground = Ground.of(values, pit, size_m=ULTRA_LIGHT_M)
    each = {name: running_npv(ground, order, discount).max() for name, order in schedules(ground)}
    assert npv == pytest.approx(max(each.values()))
    assert each[name] == max(each.values())
    assert npv == pytest.approx((np.array(dig(values, order, size_m=ULTRA_LIGHT_M)) * discount[: len(order)]).sum())
    bound = npv_bound(nested_pits(values, pit, size_m=ULTRA_LIGHT_M), discount)
    assert 0.8 * bound < npv <= bound <= values[pit].sum()
    assert each["exposed"] < npv  # the rules do differ


# ---- nested pits


def test_nested_pits_by_hand():
    # three columns apart from each other: 9 in the open; 8 under 2 blocks of -1 at the edge; 3 under a waste of 1
    values = np.full((7, 1, 2), -1000.0)
    values[0, 0, 0] = 9
    values[6, 0, :] = [-1, 8]
    values[5, 0, 0] = -1
    values[3, 0, :] = [1, -1000]
    pits = nested_pits(values, size_m=NINE_OVER_ONE)
    # per block: 9 (one block), then (8 - 2) / 3 = 2, then 1
    assert pits.sizes.tolist() == [1, 4, 5]
    assert pits.values.tolist() == [9, 15, 16]
    assert pits.shells[:, 0, 0].tolist() == [1, 0, 0, 3, 0, 2, 2]
    # two blocks hold at most 9 + 2, on the line from the first pit to the second
    assert pits.most_within([1, 2, 4, 5, 100]).tolist() == pytest.approx([9, 11, 15, 16, 16])


def every_schedule_best(values, discount) -> float:
    """The largest NPV of all schedules there are, by trying them all."""
    nx, ny, nz = values.shape

    @cache
    def best(depths, dug):
        most = 0.0
        for x, y in product(range(nx), range(ny)):
            depth = depths[x * ny + y]
            around = [
                depths[i * ny + j] for i in (x - 1, x, x + 1) for j in (y - 1, y, y + 1) if 0 <= i < nx and 0 <= j < ny
            ]
            if depth < nz and min(around) >= depth and dug < len(discount):
                after = (*depths[: x * ny + y], depth + 1, *depths[x * ny + y + 1 :])
                most = max(most, values[x, y, depth] * discount[dug] + best(after, dug + 1))
        return most

    return best((0,) * (nx * ny), 0)


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_at_all_exceeds_the_bound(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(0.3, 3, (3, 2, 2))
    values[:, :, 0] -= 2
    discount = factors(12, 0.1)
    best = every_schedule_best(values, discount)
    pits = nested_pits(values, shells=1000, size_m=NINE_OVER_ONE)
    assert best <= npv_bound(pits, discount) + 1e-9
    assert best_greedy(values, ultimate_pit(values, NINE_OVER_ONE), discount, size_m=NINE_OVER_ONE)[0] <= best + 1e-9
