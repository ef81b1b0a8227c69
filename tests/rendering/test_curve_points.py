"""Curves that are drawn: few points whatever the length of the training, and no peak lost on the way."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from legroom.rendering.curves import Stretch, phase_stretches, thin


def test_thinning_keeps_every_spike_and_both_ends():
    points = [(float(i), 10.0) for i in range(100_000)]
    points[12_345] = (12_345.0, 99.0)
    points[70_001] = (70_001.0, 1.0)
    thinned = thin(points, 500)
    assert len(thinned) <= 500
    assert {points[0], points[12_345], points[70_001], points[-1]} <= set(thinned)
    assert thinned == sorted(thinned)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))), st.integers(4, 60))
def test_thinning_never_loses_an_extreme_and_never_invents_a_point(points, most):
    thinned = thin(points, most)
    assert len(thinned) <= max(most, 4)
    assert set(thinned) <= set(points)
    if points:
        heights = [y for _, y in points]
        assert {min(heights), max(heights)} <= {y for _, y in thinned}


def test_points_that_are_no_numbers_are_left_out():
    assert thin([(0.0, math.nan), (math.inf, 1.0), (1.0, 2.0)], 4) == [(1.0, 2.0)]


def test_phases_last_until_the_next_begins():
    moments = [(0.0, "start"), (1.0, "collect"), (2.0, "collect"), (3.0, "update")]
    assert phase_stretches(moments) == [Stretch(0, 1, "start"), Stretch(1, 3, "collect"), Stretch(3, 3, "update")]
