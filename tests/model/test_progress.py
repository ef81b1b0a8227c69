"""Messages of a training survive JSON, also where a figure is not a number."""

import json
import math

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom.model.progress import MemorySample, Progress

PROGRESS = Progress(4096, 100_000, 2, "update", 212.5, 1.25, 300.0, 19.5, {"train/loss": 0.5})


def through_json(data):
    return json.loads(json.dumps(data, allow_nan=False))


def test_both_come_back_as_they_were():
    assert Progress.from_json(through_json(PROGRESS.to_json())) == PROGRESS
    for sample in (MemorySample(1.5, 10, None, "collect"), MemorySample(1.5, 10, 20, "start")):
        assert MemorySample.from_json(through_json(sample.to_json())) == sample


def test_a_figure_that_is_no_number_travels_as_null():
    wild = Progress(1, 2, 0, "collect", math.inf, math.nan, np.float32("nan"), 0.5, {"a": math.nan, "b": np.float64(2)})
    data = through_json(wild.to_json())
    assert (data["steps_per_s"], data["reward_mean"], data["extra"]) == (None, None, {"a": None, "b": 2.0})
    back = Progress.from_json(data)
    assert (back.reward_mean, back.episode_length_mean) == (None, None)
    assert math.isnan(back.steps_per_s)
    assert math.isnan(back.extra["a"])


def test_keys_it_does_not_know_are_skipped():
    assert Progress.from_json(PROGRESS.to_json() | {"event": "progress"}) == PROGRESS


@pytest.mark.parametrize("change", [{"timesteps": None}, {"timesteps": "1"}, {"phase": "lunch"}, {"reward_mean": "x"}])
def test_nonsense_is_one_line(change):
    with pytest.raises(BadInput, match=next(iter(change))):
        Progress.from_json(PROGRESS.to_json() | change)
