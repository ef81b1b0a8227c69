"""Iterations that ask for the same are run again through a copy of the allocator, before it counts as settled."""

from __future__ import annotations

from legroom.backends.program.cache_growth import AllocatorReplica
from legroom.backends.program.journals import Alloc, Free
from legroom.hollow.cuda_allocator import CachingAllocator

MIB = 1 << 20


class Program:
    """Asks an allocator for blocks, and tells the twin what a journal would."""

    def __init__(self) -> None:
        self.twin, self.real, self.number = AllocatorReplica(), CachingAllocator(), 0
        self.held: dict[int, object] = {}

    def ask(self, nbytes: int, site: int = 1) -> int:
        block = self.real.alloc(nbytes)
        assert block is not None
        self.number += 1
        self.held[self.number] = block
        record = Alloc(self.number, nbytes, block.size, self.real.allocated, self.real.reserved, site, 0, 0, False)
        self.twin.allocate(record, site)
        return self.number

    def give(self, number: int) -> None:
        self.real.free(self.held.pop(number))  # type: ignore[arg-type]
        self.twin.free(Free(number, self.real.allocated, self.real.reserved, 0))


def test_a_block_that_outlives_its_iteration_stands_for_the_next_ones() -> None:
    program = Program()
    kept = program.ask(12 * MIB)
    for _ in range(4):
        new = program.ask(12 * MIB)
        program.give(kept)
        kept = new
        program.twin.ask(3)
        program.twin.step()
    assert program.twin.growth == 0
    assert program.real.reserved == 24 * MIB


def test_growth_is_foreseen_where_the_cache_is_cut_in_other_pieces() -> None:
    """What is kept comes to lie in the cached 16 MiB, so that the next 16 need a segment of their own."""
    program = Program()
    kept = program.ask(12 * MIB, site=2)
    program.give(program.ask(16 * MIB))
    program.twin.step()
    program.give(program.ask(16 * MIB))
    program.ask(12 * MIB, site=2)
    program.give(kept)
    program.twin.ask(1)
    program.twin.step()
    assert program.real.reserved == 28 * MIB
    assert program.twin.growth == 16 * MIB


def test_a_twin_that_lost_its_way_says_nothing() -> None:
    twin = AllocatorReplica()
    twin.allocate(Alloc(1, 512, 512, 512, 999, 1, 0, 0, False), 1)  # reserved bytes of another allocator
    assert twin.lost
    twin.ask(3)
    assert twin.growth == 0


def test_emptying_the_cache_is_followed() -> None:
    program = Program()
    program.give(program.ask(30 * MIB))
    program.real.empty_cache()
    program.twin.empty_cache()
    program.give(program.ask(12 * MIB))
    assert not program.twin.lost
