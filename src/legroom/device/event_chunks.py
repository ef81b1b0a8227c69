"""Repeat parts of a request sequence: a run makes 1,280 minibatches, tracing four of them is enough.

Minibatch after minibatch asks for the same sizes in the same order; only the identities of the blocks change. So a few
are traced and the rest are copies. On equal requests the caching allocator takes some rounds (40, seen once) to settle,
and may then alternate between layouts with a short period; so `shorten` keeps many rounds, and the remainder of their
number.
"""

from collections.abc import Sequence
from typing import Any

from legroom.model.evidence import Event


def shorten(count: int, period: int) -> int:
    """Return a number of repetitions that leaves a periodic process in the same state as `count` does."""
    return count if count < 2 * period else period + count % period


def repeat(events: Sequence[Event], borders: Sequence[int], times: int) -> tuple[list[Event], dict[int, int]] | None:
    """Return the events with the last of some rounds repeated `times` more, and which copied block is which original.

    `borders` are the positions between rounds: round k is `borders[k]:borders[k + 1]`. The last two rounds must be the
    same work, where "the same" means that each frees blocks of its own, of the round before, or of the one before that
    (SB3's callbacks keep the variables of the last step) at the same place. None when they are not.
    """
    start, end = borders[-2], borders[-1]
    last = events[start:end]
    rounds = [_births(events, borders, k) for k in range(len(borders) - 1)]
    shape = _relative(last, rounds)
    sizes = {event[1]: event[2] for event in events[:end] if len(event) == 3}
    if shape is None or not _alike(events[borders[-3] : start], last, rounds, sizes):
        return None
    for lag in {lag for _, lag, _ in shape}:  # places in an older round mean the same only if it asked for the same
        if [sizes[b] for b in rounds[-1 - lag]] != [sizes[b] for b in rounds[-1]]:
            return None
    following = max((event[1] for event in events if event[0] == "alloc"), default=0) + 1
    copies: list[Event] = []
    origins: dict[int, int] = {}
    for _ in range(times):
        this: list[int] = []
        rounds.append(this)
        for event, (_, lag, place) in zip(last, shape, strict=True):
            if len(event) == 3:
                this.append(following)
                origins[following] = event[1]
                copies.append(("alloc", following, event[2]))
                following += 1
            else:
                copies.append(("free", rounds[-1 - lag][place]))
    # What comes after freed blocks of the last traced rounds; now these are the last copies' blocks.
    renamed: dict[int, int] = {}
    for back in range(min(3, len(borders) - 1)):
        renamed |= dict(zip(rounds[len(borders) - 2 - back], rounds[-1 - back], strict=False))
    tail: list[Event] = [
        ("free", renamed[event[1]]) if event[0] == "free" and event[1] in renamed else event for event in events[end:]
    ]
    return [*events[:end], *copies, *tail], origins


def _births(events: Sequence[Event], borders: Sequence[int], k: int) -> list[int]:
    return [event[1] for event in events[borders[k] : borders[k + 1]] if event[0] == "alloc"]


def _relative(last: Sequence[Event], rounds: Sequence[Sequence[int]]) -> list[tuple[Any, int, int]] | None:
    """Return the last round without identities: for each free (rounds ago, place among that round's births)."""
    at: dict[int, tuple[int, int]] = {}
    for lag, births in enumerate(reversed(rounds[-3:])):
        at |= {block: (lag, place) for place, block in enumerate(births)}
    found: list[tuple[Any, int, int]] = []
    for event in last:
        if event[0] == "alloc":
            found.append(("alloc", 0, 0))
        elif event[1] in at:
            found.append(("free", *at[event[1]]))
        else:
            return None  # frees something older: not a repetition
    return found


def _alike(before: Sequence[Any], last: Sequence[Any], rounds: Sequence[Sequence[int]], sizes: dict[int, int]) -> bool:
    """Return whether two rounds ask for and free the same sizes in the same order, each its own at the same place."""
    own = [{block: place for place, block in enumerate(births)} for births in rounds[-2:]]
    return len(before) == len(last) and all(
        old[0] == new[0] and sizes.get(old[1]) == sizes.get(new[1]) and (own[0].get(old[1]) == own[1].get(new[1]))
        for old, new in zip(before, last, strict=True)
    )
