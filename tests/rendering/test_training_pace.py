"""The time left: computed by hand for rounds of collecting and updating, and never nonsense."""

import math

import pytest

from legroom.model.outcome import Progress
from legroom.rendering.time_left import TimeLeft, TrainingPace, duration_text, number_text


def said(pace, *messages, total=1000):
    for seconds, timesteps, iteration in messages:
        pace.add(Progress(timesteps, total, iteration, "collect", math.nan, None, None, seconds))
    return pace


def test_nothing_is_known_before_and_at_the_first_message():
    assert TrainingPace().time_left() is None
    assert said(TrainingPace(), (5.0, 0, 1)).time_left() is None


def test_within_the_first_round_there_is_only_a_lower_bound():
    # 50 steps in 10 s: 950 left at 5 steps/s
    assert said(TrainingPace(), (0, 0, 1), (10, 50, 1)).time_left() == TimeLeft(190.0, at_least=True)


def test_the_lower_bound_grows_while_the_first_update_says_nothing():
    pace = said(TrainingPace(), (0, 0, 1), (10, 100, 1))
    assert pace.time_left() == TimeLeft(90.0, at_least=True)
    assert pace.time_left(waited_s=10) == TimeLeft(180.0, at_least=True)


def test_a_round_counts_with_its_update():
    # a round: 100 steps in 10 s, then 30 s of update. At the beginning of round 3, 800 steps are left at 100 per 40 s.
    pace = said(TrainingPace(), (0, 0, 1), (10, 100, 1), (40, 100, 2), (50, 200, 2), (80, 200, 3))
    assert pace.time_left() == TimeLeft(320.0)


def test_it_counts_down_evenly_through_collecting_and_updating():
    pace = said(TrainingPace(), (0, 0, 1), (40, 100, 2), (80, 200, 3))
    said(pace, (90, 300, 3))  # collected: 10 s later, ten seconds less
    assert pace.time_left() == TimeLeft(310.0)
    assert pace.time_left(waited_s=20) == TimeLeft(290.0)  # in the middle of the update


def test_a_round_that_takes_longer_does_not_count_down_to_nothing():
    pace = said(TrainingPace(), (0, 0, 1), (40, 100, 2), (80, 200, 3), (90, 300, 3))
    assert pace.time_left(waited_s=10_000) == TimeLeft(280.0)  # 700 steps at 2.5 a second are still to come


def test_a_resumed_run_counts_only_what_it_made_itself():
    # goes on at 600 of 1000; 100 steps take 40 s here, however long the first 600 took
    pace = said(TrainingPace(), (5, 600, 7), (45, 700, 8))
    assert pace.time_left() == TimeLeft(120.0)
    assert (pace.steps, pace.elapsed_s) == (100, 40.0)


def test_another_attempt_that_begins_earlier_begins_anew():
    pace = said(TrainingPace(), (0, 0, 1), (40, 100, 2), (80, 200, 3), (3, 100, 2), (13, 150, 2))
    assert pace.time_left() == TimeLeft(170.0, at_least=True)  # 850 steps at 5 a second


def test_the_later_half_counts_since_learning_begins_late():
    # off-policy: 500 steps in 5 s without learning, then 1 step a second for 195 s
    pace = said(TrainingPace(), *((t, 100 * t, t) for t in range(6)), *((5 + t, 500 + t, 5 + t) for t in range(1, 196)))
    assert pace.time_left().seconds == pytest.approx(305, rel=0.01)


def test_a_million_short_rounds_are_no_burden():
    pace = said(TrainingPace(), *((i / 100, i, i) for i in range(100_000)), total=200_000)
    assert pace.time_left().seconds == pytest.approx(1000, rel=0.01)
    assert len(pace._rounds) < 5000


def test_when_all_steps_are_made_nothing_is_left_but_the_update():
    pace = said(TrainingPace(), (0, 0, 1), (40, 500, 2), (50, 1000, 2))
    assert pace.time_left() == TimeLeft(30.0)
    assert pace.time_left(waited_s=100) == TimeLeft(0.0)


def test_a_time_that_is_no_number_changes_nothing():
    pace = said(TrainingPace(), (0, 0, 1), (40, 100, 2), (math.nan, 150, 3))
    assert pace.time_left() == TimeLeft(360.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (42.4, "42 s"), (59.6, "1 min"), (420, "7 min"), (3569, "59 min"), (3599, "1 h"), (4800, "1 h 20 min"),
     (86_399, "1 d"), (273_600, "3 d 4 h"), (math.nan, "–"), (math.inf, "–"), (-3, "0 s")],
)  # fmt: skip
def test_durations(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.234, "1.23"), (-0.00123, "-0.0012"), (12345.6, "12,346"), (500.0, "500.0"), (0.0, "0.00"), (None, "–"),
     (math.nan, "–"), (1.2e9, "1.20e+09"), (3e-6, "3.00e-06")],
)  # fmt: skip
def test_numbers(value, text):
    assert number_text(value) == text
