"""Fire growth: arrival times that can be checked with a ruler, and breaks that hold."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest

from legroom_workloads.fire.rothermel import Moisture, fire_bed, spread_rate
from legroom_workloads.fire.spread import Ellipses, Landscape, ellipses, length_to_width

DRY = dict(dead_1h=0.06, dead_10h=0.07, dead_100h=0.08, live_herb=0.60, live_woody=0.90)
SOUTH, EAST = math.pi, math.pi / 2


def uniform(code=102, size=21, *, wind=0.0, to=0.0, slope=0.0, up=0.0):
    codes = np.full((size, size), code)
    flat = np.zeros(codes.shape)
    bed = fire_bed(codes, Moisture(**DRY))
    return ellipses(bed, wind_m_min=wind, wind_to_rad=to, slope_rise_run=flat + slope, upslope_rad=flat + up)


def centre(size=21):
    return np.array([size // 2 * size + size // 2])


def test_still_air_and_level_ground_burn_in_a_circle():
    rate = spread_rate(102, **DRY, wind_midflame_m_min=0.0, slope_rise_run=0.0)
    arrival = Landscape(uniform(), neighbours=16).arrival_min(centre(), limit_min=1e9)[0]
    for down, right in ((0, 5), (-7, 0), (3, 3), (-4, 4), (1, 2), (-2, 1), (8, 4), (6, 0)):
        assert arrival[10 + down, 10 + right] == pytest.approx(30 * math.hypot(down, right) / rate)


def test_the_head_runs_with_the_wind_at_the_head_rate_and_the_back_is_slow():
    rate = spread_rate(102, **DRY, wind_midflame_m_min=80.0, slope_rise_run=0.0)
    growth = uniform(wind=80.0, to=EAST)
    arrival = Landscape(growth).arrival_min(centre(), limit_min=1e9)[0]
    ratio = float(length_to_width(np.array(80.0)))
    e = math.sqrt(ratio**2 - 1) / ratio
    assert arrival[10, 20] == pytest.approx(300 / rate)
    assert arrival[10, 0] == pytest.approx(300 / rate * (1 + e) / (1 - e))
    assert arrival[0, 10] == pytest.approx(arrival[20, 10])


# pyretechnics' calc_surface_fire_behavior_max, without a wind limit: wind of 150 m/min to the north, a slope of 0.7
# that faces this way; rate in m/min, direction of the head in degrees, eccentricity
OBLIQUE = [
    (104, 180.0, 53.82, 0.0, 0.9133), (104, 225.0, 46.86, 14.57, 0.8943), (104, 300.0, 24.76, 30.57, 0.7859),
    (145, 225.0, 34.95, 13.74, 0.9017), (145, 300.0, 19.24, 27.5, 0.7778), (145, 0.0, 15.44, 0.0, 0.7252),
]  # fmt: skip


@pytest.mark.parametrize(("code", "aspect", "rate", "direction", "eccentricity"), OBLIQUE)
def test_wind_across_a_slope_is_that_of_a_peer(code, aspect, rate, direction, eccentricity):
    growth = uniform(code, wind=150.0, slope=0.7, up=math.radians(aspect + 180))
    assert growth.head_m_min[0, 0] == pytest.approx(rate, rel=0.005)
    assert math.degrees(growth.direction_rad[0, 0]) == pytest.approx(direction, abs=0.1)
    assert growth.eccentricity[0, 0] == pytest.approx(eccentricity, abs=0.002)


def test_length_to_width_is_1_in_still_air_grows_and_has_a_limit():
    ratios = length_to_width(np.array([0.0, 50.0, 100.0, 200.0, 1e4]))
    assert ratios[0] == pytest.approx(1.0)
    assert (np.diff(ratios) > 0).all()
    assert ratios[-1] == 8.0
    # 200 m/min are 7.4565 mi/h: 0.936·e^0.85526 + 0.461·e^-0.51599 - 0.397
    assert ratios[3] == pytest.approx(2.2015 + 0.2752 - 0.397, abs=2e-4)


@pytest.mark.parametrize("neighbours", [8, 16])
@pytest.mark.parametrize("wall", ["column", "diagonal", "ring"])
def test_no_fire_crosses_a_break(wall, neighbours):
    breaks = np.zeros((21, 21), bool)
    rows, columns = np.indices(breaks.shape)
    shut_out = columns > 13
    if wall == "column":
        breaks[:, 13] = True
    elif wall == "diagonal":
        breaks[rows + columns == 24], shut_out = True, rows + columns > 24
    else:
        distance = np.maximum(abs(rows - 10), abs(columns - 10))
        breaks[distance == 4], shut_out = True, distance > 4
    landscape = Landscape(uniform(wind=80.0, to=EAST), neighbours=neighbours)
    burned = landscape.burned(centre(), breaks=breaks, limit_min=1e9)[0]
    assert not burned[breaks].any() and not burned[shut_out].any()
    assert burned[~breaks & ~shut_out].all()
    # and a river in the landscape itself does the same
    codes = np.where(breaks, 98, 102)
    bed, flat = fire_bed(codes, Moisture(**DRY)), np.zeros(codes.shape)
    river = ellipses(bed, wind_m_min=80.0, wind_to_rad=EAST, slope_rise_run=flat, upslope_rad=flat)
    assert (Landscape(river, neighbours=neighbours).burned(centre(), limit_min=1e9)[0] == burned).all()


@pytest.mark.parametrize("seed", range(6))
def test_arrivals_are_those_of_a_plain_search(seed):
    """The same rule, cell by cell with a heap, on a random landscape with random breaks."""
    rng = np.random.default_rng(seed)
    shape = (9, 12)
    growth = Ellipses(
        rng.uniform(0.5, 9, shape) * (rng.random(shape) > 0.15), rng.uniform(-3, 3, shape), rng.uniform(0, 0.9, shape)
    )
    breaks = rng.random(shape) < 0.1
    open_cells = (growth.head_m_min > 0) & ~breaks
    start = tuple(int(i) for i in np.argwhere(open_cells)[rng.integers(open_cells.sum())])

    def slowness(cell, azimuth):
        e = growth.eccentricity[cell]
        return (1 - e * math.cos(growth.direction_rad[cell] - azimuth)) / (growth.head_m_min[cell] * (1 - e))

    expected = np.full(shape, np.inf)
    heap = [(0.0, start)]
    while heap:
        minute, (r, c) = heapq.heappop(heap)
        if minute >= expected[r, c]:
            continue
        expected[r, c] = minute
        for dr in range(-2, 3):
            for dc in range(-2, 3):
                far, end = abs(dr) + abs(dc), (r + dr, c + dc)
                if far == 0 or math.gcd(dr, dc) != 1 or not (0 <= end[0] < 9 and 0 <= end[1] < 12 and open_cells[end]):
                    continue
                azimuth = math.atan2(dc, -dr)
                crossed = [(r, c), end]
                if far == 3:
                    middle = (dr / 2, dc / 2)
                    lows, highs = [math.floor(m) for m in middle], [math.ceil(m) for m in middle]
                    crossed += [(r + lows[0], c + lows[1]), (r + highs[0], c + highs[1])]
                    if not all(open_cells[cell] for cell in crossed):
                        continue
                elif far == 2 and not (open_cells[r + dr, c] or open_cells[r, c + dc]):
                    continue
                cost = 30 * math.hypot(dr, dc) * sum(slowness(cell, azimuth) for cell in crossed) / len(crossed)
                heapq.heappush(heap, (minute + cost, end))
    number = np.array([start[0] * 12 + start[1]])
    ours = Landscape(growth, neighbours=16).arrival_min(number, breaks=breaks, limit_min=1e9)[0]
    np.testing.assert_allclose(ours, expected, rtol=1e-9)
