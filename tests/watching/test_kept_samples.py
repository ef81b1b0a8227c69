"""What a watching keeps: every extreme, in memory that does not grow."""

from __future__ import annotations

import math
import tracemalloc

import pytest

from legroom.model.trace import Sample
from legroom.watching.samples import KeptSamples


def _sample(number: int, host: int, gpu: int | None = None) -> Sample:
    return Sample(number / 4, host, gpu, {"trainer": host - 7, "workers": 5, "others": 2}, untouched=3, files=number)


def test_samples_come_back_as_they_were() -> None:
    kept, given = KeptSamples(10), [_sample(0, 100), _sample(1, 1 << 44, gpu=0), _sample(2, 50, gpu=9)]
    for each in given:
        kept.add(each)
    assert list(kept) == given and len(kept) == 3
    assert kept.highest_of_last(1) == 50 and kept.highest_of_last(3) == 1 << 44


@pytest.mark.parametrize("count", [40, 41, 400, 4001])
def test_every_extreme_stays_however_often_they_are_thinned(count: int) -> None:
    kept = KeptSamples(40)
    heights = [
        int(1000 + 100 * math.sin(number / 3)) + (5000 if number == count // 3 else 0) for number in range(count)
    ]
    for number, height in enumerate(heights):
        kept.add(_sample(number, height))
    told = list(kept)
    assert len(told) <= 40
    assert [each.t for each in told] == sorted(each.t for each in told)
    assert told[0].t == 0 and told[-1].t == (count - 1) / 4
    assert max(each.host for each in told) == max(heights) and min(each.host for each in told) == min(heights)


def test_memory_has_its_level_from_the_start() -> None:
    kept = KeptSamples(1000)
    for number in range(100):
        kept.add(_sample(number, number))
    tracemalloc.start()
    try:
        for number in range(100, 20_000):
            kept.add(_sample(number, number))
        assert tracemalloc.get_traced_memory()[0] < 4096
    finally:
        tracemalloc.stop()
