"""Replay a sequence of requests through the simulated allocator: what it reserves, and when the most.

A run repeats its iterations. The allocator takes some rounds to settle and then does the same in every round, or comes
back to the same layout every few: from there on, further rounds change nothing and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .cuda_allocator import DEFAULT_SETTINGS, Block, CachingAllocator, Settings
from .journal import Rounds

LONGEST_PERIOD = 12  # rounds after which a layout is looked for again


@dataclass(frozen=True)
class Replay:
    """What the allocator did with a sequence."""

    peak_allocated: int
    peak_reserved: int
    # bytes of every segment taken from the driver, in order (pages mapped, when segments can expand)
    segments: tuple[int, ...]
    allocated_at_reserved_peak: int = 0  # bytes handed out when `peak_reserved` was first reached
    # indices into the events of the requests that set the peaks; in a repeated round, of the request that is repeated
    # there
    reserved_peak_event: int = -1
    allocated_peak_event: int = -1
    # block bytes by request id at those moments; a block can be larger than its request, because a small remainder is
    # not split off
    live_at_reserved_peak: dict[int, int] = field(default_factory=dict)
    live_at_allocated_peak: dict[int, int] = field(default_factory=dict)
    released: int = 0  # bytes given back to the driver by release-and-retry
    # the index of the event that could not be served, None when all were; nothing after it is replayed
    oom: int | None = None
    oom_request: int = 0

    @property
    def fragmentation(self) -> int:
        """Bytes reserved but not handed out at the reserved peak."""
        return self.peak_reserved - self.allocated_at_reserved_peak


def replay(
    events: Iterable[Sequence[Any]], settings: Settings = DEFAULT_SETTINGS, rounds: Rounds | None = None
) -> Replay:  # fmt: skip
    """Return what the allocator does with `events`: `("alloc", id, nbytes)` and `("free", id)`.

    Other entries (`segment_alloc`, `segment_free`) are results of the allocator and ignored. A request of zero bytes
    takes nothing. Frees of unknown ids are ignored, as a recording may start in the middle of a run.

    Args:
        rounds: which part of them is to be repeated.
    """
    events = events if isinstance(events, (list, tuple)) else list(events)
    run = _Run(settings)
    if rounds is None:
        run.feed(events)
    else:
        run.feed_rounds(events, rounds)
    # Which requests were alive at the peaks is known only afterwards; collecting them on the way would copy the
    # table at every new peak, so it is read off the request sizes in a second, cheap pass.
    live_reserved, live_allocated = _live_at(run.fed, run.sizes, (run.reserved_at, run.allocated_at))
    added = len(run.fed) - len(events)
    return Replay(
        peak_allocated=run.peak_allocated,
        peak_reserved=run.peak_reserved,
        segments=tuple(run.allocator.segments),
        allocated_at_reserved_peak=run.allocated_at_reserved_peak,
        reserved_peak_event=run.reserved_at if rounds is None else rounds.place(run.reserved_at, added),
        allocated_peak_event=run.allocated_at if rounds is None else rounds.place(run.allocated_at, added),
        live_at_reserved_peak=live_reserved,
        live_at_allocated_peak=live_allocated,
        released=run.allocator.released,
        oom=run.oom,
        oom_request=run.oom_request,
    )


class _Run:
    """A sequence of events given to an allocator, and what was highest on the way."""

    def __init__(self, settings: Settings) -> None:
        self.allocator = CachingAllocator(settings)
        self.peak_allocated = self.peak_reserved = self.allocated_at_reserved_peak = 0
        self.allocated_at = self.reserved_at = -1
        self.fed: list[Sequence[Any]] = []
        self.sizes: dict[int, int] = {}  # event index -> block bytes of that request
        self.oom: int | None = None
        self.oom_request = 0
        self._live: dict[Any, Block] = {}

    def feed(self, events: Sequence[Sequence[Any]]) -> None:
        """Let the allocator serve these after all that came before."""
        start = len(self.fed)
        self.fed += events
        if self.oom is not None:
            return
        alloc, free, live = self.allocator.alloc, self.allocator.free, self._live
        for index, event in enumerate(events, start):
            kind = event[0]
            if kind == "alloc":
                if event[2] <= 0:
                    continue
                block = alloc(event[2])
                if block is None:
                    self.oom, self.oom_request = index, event[2]
                    return
                live[event[1]] = block
                self._note(index, block)
            elif kind == "free":
                block = live.pop(event[1], None)
                if block is not None:
                    free(block)

    def feed_rounds(self, events: Sequence[Sequence[Any]], rounds: Rounds) -> None:
        """Feed the events with the last round repeated, until the allocator has come back to a layout."""
        self.feed(events[: rounds.end])
        last = events[rounds.end - rounds.length : rounds.end]
        layouts = [self._layout(rounds, 0)]
        done, left = 0, rounds.times
        while left:
            done, left = done + 1, left - 1
            self.feed(rounds.shifted(last, done))
            if layouts:
                now = self._layout(rounds, done)
                if now in layouts:
                    left %= layouts[::-1].index(now) + 1
                    layouts = []
                else:
                    layouts = [*layouts[1 - LONGEST_PERIOD :], now]
        self.feed(rounds.shifted(events[rounds.end :], done))

    def _layout(self, rounds: Rounds, number: int) -> tuple[Any, ...]:
        ids = rounds.births * number
        places = {one - ids if one >= rounds.first else one: block.address for one, block in self._live.items()}
        return (*self.allocator.state(), places)

    def _note(self, index: int, block: Block) -> None:
        self.sizes[index] = block.size
        allocated, reserved = self.allocator.allocated, self.allocator.reserved
        if allocated > self.peak_allocated:
            self.peak_allocated, self.allocated_at = allocated, index
        if reserved > self.peak_reserved:
            self.peak_reserved, self.reserved_at = reserved, index
            self.allocated_at_reserved_peak = allocated


def _live_at(
    events: Sequence[Sequence[Any]], sizes: dict[int, int], moments: tuple[int, int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the live requests (id -> block bytes) right after each of two events."""
    live: dict[int, int] = {}
    found: dict[int, dict[int, int]] = {-1: {}}
    for index, event in enumerate(events[: max(moments) + 1]):
        if event[0] == "alloc" and index in sizes:
            live[event[1]] = sizes[index]
        elif event[0] == "free":
            live.pop(event[1], None)
        if index in moments:
            found[index] = dict(live)
    return found[moments[0]], found[moments[1]]
