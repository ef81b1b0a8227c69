"""The memory of a training over time: kept as it was measured, without growing itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from legroom.model.outcome import MemorySample
from legroom.training.lookout import MOST_SAMPLES, MemorySamples
from legroom.training.supervise import MOST_MESSAGES, drop_some

GIVEN = [
    MemorySample(0.0, 1 << 40, None, "start"),
    MemorySample(0.2, 5, 0, "collect", 7, 0.25),
    MemorySample(0.4, 6, 9, "evaluate", 0, 0.0),
]


def _kept(samples: list[MemorySample]) -> MemorySamples:
    kept = MemorySamples()
    for each in samples:
        kept.add(each)
    return kept


def test_samples_come_back_as_they_were() -> None:
    kept = _kept(GIVEN)
    assert list(kept) == GIVEN and kept[-1] == GIVEN[-1] and kept[1:] == GIVEN[1:]
    assert not MemorySamples()
    with pytest.raises(IndexError):
        kept[3]


def test_peaks_of_days_stay() -> None:
    kept = _kept([replace(GIVEN[1], seconds=n / 5, host_nbytes=n % 100 + 900 * (n == 777)) for n in range(20_000)])
    assert len(kept) <= MOST_SAMPLES
    assert max(each.host_nbytes for each in kept) == 777 % 100 + 900


def test_messages_are_bounded_and_the_last_is_kept() -> None:
    messages: list[int] = []
    for number in range(10_000):
        messages.append(number)
        drop_some(messages)
    assert len(messages) <= MOST_MESSAGES and messages[-1] == 9_999 and messages == sorted(messages)
