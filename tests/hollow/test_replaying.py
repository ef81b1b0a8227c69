"""Repeated rounds are replayed as if every one of them were written out."""

import random

import pytest

from legroom.hollow.cuda_allocator import MIB, Settings
from legroom.hollow.journal import Rounds
from legroom.hollow.replaying import replay


def rounds_of(draw: random.Random, copies: int) -> tuple[list, int, int]:
    """Return so many equal rounds that keep a few blocks for the next round, their length and their requests."""
    sizes = [draw.choice([400, 70_000, MIB, 3 * MIB, 9 * MIB, 30 * MIB]) + 512 * draw.randrange(90) for _ in range(12)]
    order = draw.sample(range(12), 12)
    kept = set(order[:2])  # freed in the next round
    events: list = []
    for number in range(copies):
        first = 1000 + 12 * number
        for place in range(12):
            events.append(("alloc", first + place, sizes[place]))
            if place == 5:
                events += [("free", first - 12 + old) for old in sorted(kept)]
            if place > 6:
                events += [("free", first + order[place - 5])]
        events += [("free", first + place) for place in range(12) if place not in kept and place not in order[2:7]]
    return events, len(events) // copies, 12


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("expandable", [False, True])
def test_rounds_that_are_repeated_count_as_if_written_out(seed: int, expandable: bool) -> None:
    draw, settings = random.Random(seed), Settings(expandable_segments=expandable)
    before = [("alloc", number, draw.randrange(1, 4 * MIB)) for number in range(20)]
    before += [("free", number) for number in range(0, 20, 3)]
    times = draw.choice([1, 2, 7, 40])
    seeds = draw.randrange(10**9)
    long, length, births = rounds_of(random.Random(seeds), 3 + times)
    short, _, _ = rounds_of(random.Random(seeds), 3)
    last = 1000 + births * (2 + times)
    after = [("alloc", 500, 11 * MIB), *(("free", last + place) for place in range(births)), ("alloc", 501, 25 * MIB)]
    renamed = [(e[0], e[1] - births * times, *e[2:]) if e[1] >= 1000 else e for e in after]
    whole = replay([*before, *long, *after], settings)
    rounds = Rounds(len(before) + len(short), length, births, 1000, times)
    again = replay([*before, *short, *renamed], settings, rounds)
    assert (again.peak_allocated, again.peak_reserved) == (whole.peak_allocated, whole.peak_reserved)
    assert again.segments == whole.segments
    assert sum(again.live_at_allocated_peak.values()) == sum(whole.live_at_allocated_peak.values())
