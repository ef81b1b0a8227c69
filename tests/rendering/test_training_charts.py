"""Charts: small whatever the length of the training, the same bytes every time, and no peak lost on the way."""

import math
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legroom.errors import BadInput
from legroom.model.footprint import Peak, Phase
from legroom.model.progress import MemorySample, Progress
from legroom.rendering.charts import memory_chart, reward_chart
from legroom.rendering.curve_points import Stretch, highest, phase_stretches, thin

MIB = 1 << 20
PREDICTED = Peak(700 * MIB, 650 * MIB, 750 * MIB, Phase.UPDATE)


def samples(count, rounds, gpu=False):
    """Return memory that is low while collecting and high while updating, `rounds` times."""
    found = []
    for i in range(count):
        phase = "collect" if (2 * i * rounds // count) % 2 == 0 else "update"
        nbytes = (300 if phase == "collect" else 600) * MIB + (i * 7919) % (50 * MIB)
        found.append(MemorySample(i / 5, nbytes, 2 * nbytes if gpu else None, phase))
    return found


def texts(path):
    return [element.text for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


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


def test_the_highest_of_each_stretch():
    points = [(0.0, 1.0), (1.0, 5.0), (6.0, 2.0), (10.0, 3.0)]
    assert highest(points, 2, begin=0, end=10) == [(1.0, 5.0), (10.0, 3.0)]


@pytest.mark.parametrize(("count", "rounds", "gpu"), [(100_000, 5, False), (100_000, 20_000, True), (500, 70, True)])
def test_a_memory_chart_is_small_and_says_peak_prediction_and_limit_as_text(tmp_path, count, rounds, gpu):
    path = tmp_path / "memory.svg"
    taken = samples(count, rounds, gpu)
    limits = dict(gpu_predicted=PREDICTED, gpu_limit=1400 * MIB) if gpu else {}
    items = [("rollout", 400 * MIB), ("network", 290 * MIB), ("a", MIB), ("b", 9 * MIB)]
    memory_chart(taken, PREDICTED, 1024 * MIB, path, items, **limits)
    assert path.stat().st_size <= 100_000
    found = texts(path)
    assert f"peak {max(s.host_nbytes for s in taken) / MIB:.1f} MiB" in found
    assert {"predicted 700.0 MiB", "limit 1.0 GiB", "rollout  400.0 MiB", "2 smaller  10.0 MiB"} <= set(found)
    assert any(text.startswith("update: up to 6") for text in found)


def test_the_same_training_gives_the_same_file(tmp_path):
    for name in ("a.svg", "b.svg"):
        memory_chart(samples(300, 4), PREDICTED, None, tmp_path / name, [])
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_limit_far_above_is_said_and_not_drawn(tmp_path):
    memory_chart(samples(300, 4), PREDICTED, 64 << 30, tmp_path / "m.svg", [])
    assert "seconds; the limit of 64.0 GiB is far above" in texts(tmp_path / "m.svg")


@pytest.mark.parametrize("taken", [[], samples(1, 1), [MemorySample(math.nan, 1, None, "start")]])
def test_next_to_nothing_can_be_drawn_too(tmp_path, taken):
    memory_chart(taken, None, None, tmp_path / "m.svg", [])
    reward_chart([], tmp_path / "r.svg")
    assert "no episode ended" in texts(tmp_path / "r.svg")


def test_a_reward_chart_says_where_it_began_its_best_and_where_it_ended(tmp_path):
    rewards = [None, math.nan, -1.0, 3.0, 2.0]
    progress = [Progress(100 * i, 500, i, "collect", 1.0, r, None, float(i)) for i, r in enumerate(rewards)]
    reward_chart(progress, tmp_path / "r.svg")
    assert "first -1.00 · best 3.00 · last 2.00" in texts(tmp_path / "r.svg")


def test_png_by_its_suffix_and_nothing_else(tmp_path):
    reward_chart([], tmp_path / "r.PNG")
    assert (tmp_path / "r.PNG").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BadInput, match=r"\.svg or \.png"):
        reward_chart([], tmp_path / "r.pdf")
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.PNG"]
