"""Whether PyTorch's cache would still grow if what a program does now went on.

An iteration that asks for the same blocks as the one before may yet need another segment, because the cache it finds is
cut in other pieces. The requests are known and the allocator is simulated, so that can be tried without the program:
`AllocatorReplica` follows the allocator of one card in this process, and runs the last iterations again from there.

It counts only while its reserved bytes are those that the guest tells: streams, private pools and settings that
the journal does not mention make it lose its way, and then it says nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque

from legroom.backends.program.journals import Alloc, Free
from legroom.hollow.cuda_allocator import Block, CachingAllocator

MOST_INTERVALS = 24  # that are kept to be run again
MOST_EVENTS = 120_000  # of them, and of one trial
LEAST_ROUNDS, MOST_ROUNDS = 3, 40

Event = tuple[bool, int, int, int]  # whether it is a request, the number of the block, its bytes and site


class AllocatorReplica:
    """The allocator of one card as one process uses it, once more."""

    def __init__(self) -> None:
        self.lost = False
        self._allocator = CachingAllocator()
        self._blocks: dict[int, Block] = {}
        self._asked: dict[int, tuple[int, int]] = {}  # bytes and site of the blocks that are alive
        self._past: deque[list[Event]] = deque(maxlen=MOST_INTERVALS)
        self._now: list[Event] = []
        self._wanted = 0
        self.growth: int | None = None  # by which reserved memory would grow, once that was asked for

    def allocate(self, record: Alloc, site: int) -> None:
        if self.lost:
            return
        block = self._allocator.alloc(record.requested)
        if block is None or self._allocator.reserved != record.reserved:
            self._lose()
            return
        self._blocks[record.block] = block
        self._asked[record.block] = (record.requested, site)
        self._write((True, record.block, record.requested, site))

    def free(self, record: Free) -> None:
        block = self._blocks.pop(record.block, None)
        if self.lost or block is None:
            return
        self._allocator.free(block)
        self._write((False, record.block, *self._asked.pop(record.block)))

    def empty_cache(self) -> None:
        self._allocator.empty_cache()
        self._past.clear()  # what happens once is not run again
        self._now.clear()

    def step(self) -> None:
        """End an iteration."""
        self._past.append(self._now)
        self._now = []
        if self._wanted:
            self.growth, self._wanted = self._tried(self._wanted), 0

    def ask(self, intervals: int) -> None:
        """Try at the end of this iteration what the last so many, again and again, would do; `growth` then says it."""
        self.growth, self._wanted = (0, 0) if self.lost else (None, intervals)

    def _write(self, event: Event) -> None:
        self._now.append(event)
        if len(self._now) > MOST_EVENTS:
            self._lose()

    def _lose(self) -> None:
        self.lost = True
        self.growth, self._wanted = 0, 0
        self._blocks.clear()
        self._asked.clear()
        self._past.clear()
        self._now = []

    def _tried(self, intervals: int) -> int:
        window = list(self._past)[-intervals:]
        events = [event for interval in window for event in interval]
        entering = self._entering(events)
        if entering is None or not events:
            return 0
        allocator, blocks = self._allocator.copy(self._blocks)
        before = allocator.reserved
        rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, MOST_EVENTS // len(events)))
        for _ in range(rounds):
            fresh: dict[int, Block] = {}
            for is_request, number, nbytes, _site in events:
                if is_request:
                    block = allocator.alloc(nbytes)
                    if block is None:
                        return 0
                    fresh[number] = block
                else:
                    found = fresh.pop(number, None) or blocks.pop(entering.get(number, number), None)
                    if found is not None:
                        allocator.free(found)
            blocks.update(fresh)
        return allocator.reserved - before

    def _entering(self, events: list[Event]) -> dict[int, int] | None:
        """Return which block that the events leave stands for each that they found; None where these are not alike.

        A block that was made before the events and is given back in them has, in the next round, its like among those
        that they made and left: of the same size and line.
        """
        made = {number: (nbytes, site) for is_request, number, nbytes, site in events if is_request}
        left: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        for number, asked in made.items():
            if number in self._asked:
                left[asked].append(number)
        found: dict[int, int] = {}
        for is_request, number, nbytes, site in events:
            if not is_request and number not in made:
                if not left[nbytes, site]:
                    return None
                found[number] = left[nbytes, site].popleft()
        return None if any(left.values()) else found
