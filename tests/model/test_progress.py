"""Messages of a training are read from JSON, also where a figure is not a number."""

import json
import math
from dataclasses import asdict

from legroom.model.outcome import Progress

PROGRESS = Progress(4096, 100_000, 2, "update", 212.5, 1.25, 300.0, 19.5)


def test_it_comes_back_as_it_was():
    assert Progress.from_json(json.loads(json.dumps(asdict(PROGRESS)))) == PROGRESS


def test_a_figure_that_is_no_number_travels_as_null():
    figures = dict.fromkeys(("steps_per_s", "reward_mean", "episode_length_mean"))
    back = Progress.from_json(asdict(PROGRESS) | figures)
    assert (back.reward_mean, back.episode_length_mean) == (None, None)
    assert math.isnan(back.steps_per_s)


def test_keys_it_does_not_know_are_skipped():
    assert Progress.from_json(asdict(PROGRESS) | {"event": "progress"}) == PROGRESS
