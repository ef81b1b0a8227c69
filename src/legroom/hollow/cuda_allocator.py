"""Simulate PyTorch's CUDA caching allocator: a sequence of requests in, reserved segments and peaks out.

What a GPU run needs is not the sum of its tensors but what this allocator takes from the driver: it rounds, keeps
separate pools for small and large requests, splits segments and never gives them back on its own. The order of
requests decides how well the cache fits them, so a prediction has to replay the order and not only add up sizes.

Mirrors c10/cuda/CUDACachingAllocator.cpp of torch 2.13-2.14 for one device. Not modelled: blocks that several streams
use (`record_stream`), garbage_collection_threshold and
roundup_power2_divisions (off by default). Expandable segments follow the source but could not be held against a real
run here (2026-11); everything else reproduces recorded runs of the real allocator to the byte (`bench/vram.py`,
tests/hollow/fixtures).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20
MIN_BLOCK_BYTES = 512  # kMinBlockSize: every size is a multiple of it
SMALL_REQUEST_BYTES = MIB  # kSmallSize: requests up to this come from the small pool
SMALL_SEGMENT_BYTES = 2 * MIB  # kSmallBuffer
LARGE_SEGMENT_BYTES = 20 * MIB  # kLargeBuffer
OWN_SEGMENT_BYTES = 10 * MIB  # kMinLargeAlloc: from here on a request gets a segment of its own size
ROUND_SEGMENT_BYTES = 2 * MIB  # kRoundLarge
NON_SPLIT_ROUNDING_BYTES = LARGE_SEGMENT_BYTES  # max_non_split_rounding_mb
_NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class Settings:
    """What PYTORCH_CUDA_ALLOC_CONF can say, and how much the device has for segments (None: without end)."""

    expandable_segments: bool = False
    max_split_size_mb: int | None = None
    capacity: int | None = None


DEFAULT_SETTINGS = Settings()


def round_size(nbytes: int) -> int:
    """Return the bytes a request takes up: a multiple of 512, at least 512."""
    return max(MIN_BLOCK_BYTES, -(-nbytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES)


def segment_size(size: int) -> int:
    """Return the segment taken from the driver for a rounded request that no cached block can serve."""
    if size <= SMALL_REQUEST_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size // ROUND_SEGMENT_BYTES) * ROUND_SEGMENT_BYTES


class Block:
    """A piece of a segment; `prev`/`next` are its neighbours in the same segment, by address."""

    __slots__ = ("address", "allocated", "mapped", "next", "pool", "prev", "size", "small")

    def __init__(self, address: int, size: int, pool: _Pool, mapped: bool = True) -> None:
        self.address, self.size, self.pool, self.small, self.mapped = address, size, pool, pool.small, mapped
        self.allocated = False
        self.prev: Block | None = None
        self.next: Block | None = None


def _link(one: Block | None, other: Block | None) -> None:
    """Make two blocks neighbours; None stands for the end of a segment."""
    if one is not None:
        one.next = other
    if other is not None:
        other.prev = one


class _Pool:
    """The free blocks of one pool, ordered by size and then address (best fit, ties to the lower address)."""

    def __init__(self, small: bool) -> None:
        self.small = small
        self.free: list[tuple[int, int]] = []  # (size, address), sorted
        self.at: dict[int, Block] = {}  # address -> free block
        self.tail: Block | None = None  # the unmapped end of the expandable segment

    def insert(self, block: Block) -> None:
        insort(self.free, (block.size, block.address))
        self.at[block.address] = block

    def remove(self, block: Block) -> None:
        del self.free[bisect_left(self.free, (block.size, block.address))]
        del self.at[block.address]


class CachingAllocator:
    """The allocator of one device: requests are served one by one, as the program makes them."""

    def __init__(self, settings: Settings = DEFAULT_SETTINGS) -> None:
        self.expandable = settings.expandable_segments
        mb = settings.max_split_size_mb
        self.max_split = _NO_LIMIT if mb is None else mb * MIB
        self.capacity = _NO_LIMIT if settings.capacity is None else settings.capacity
        self.spare = 0  # bytes beyond the capacity that a request may take, once the cache was given back
        self._pools: dict[Any, tuple[_Pool, _Pool]] = {}
        self._kept: set[Any] = set()  # private pools that are in use
        self.next_address = 1 << 50
        self.allocated = self.reserved = self.released = 0
        self.segments: list[int] = []

    def alloc(self, nbytes: int, place: tuple[Any, int] = (None, 0)) -> Block | None:
        """Serve a request; None where the device has no room for it, even after all that is cached was given back.

        Args:
            place: a private pool, as CUDA graphs have them, and a stream: free blocks serve one place only.
        """
        size = round_size(nbytes)
        pools = self._pools.get(place)
        if pools is None:
            pools = self._pools[place] = (_Pool(small=False), _Pool(small=True))
        pool = pools[size <= SMALL_REQUEST_BYTES]
        block = self._served(pool, size)
        if not block and self.spare:
            self.capacity += self.spare
            block = self._served(pool, size)
            self.capacity -= self.spare
        if not block:
            return None
        self._split(pool, block, size)
        block.allocated = True
        self.allocated += block.size
        return block

    def _served(self, pool: _Pool, size: int) -> Block | None:
        return (
            self._take_cached(pool, size)
            or self._grow(pool, size)
            or (self._release_oversized(pool, size) and self._grow(pool, size))
            or (self.empty_cache() and self._grow(pool, size))
            or None
        )

    def free(self, block: Block) -> None:
        self.allocated -= block.size
        block.allocated = False
        self._merge(block.pool, block)

    def state(self) -> tuple[Any, ...]:
        """Return what decides how requests will be served, but for the blocks that are in use."""
        pools = [pool for pair in self._pools.values() for pool in pair]
        free = tuple((*pool.free, 0 if pool.tail is None else pool.tail.address) for pool in pools)
        return self.reserved, self.next_address, free

    def copy(self, taken: dict[int, Block]) -> tuple[CachingAllocator, dict[int, Block]]:
        """Return an allocator in the same state, and its blocks for those that are taken (all of them, by number)."""
        other = CachingAllocator()
        other.__dict__.update(self.__dict__)
        other.segments = []
        pools = {place: (_Pool(small=False), _Pool(small=True)) for place in self._pools}
        like = {own: new for place in pools for own, new in zip(self._pools[place], pools[place])}
        made: dict[Block, Block] = {}
        for block in (*taken.values(), *(block for pool in like for block in pool.at.values())):
            made[block] = Block(block.address, block.size, like[block.pool], block.mapped)
            made[block].allocated = block.allocated
        for block, new in made.items():
            new.prev = made[block.prev] if block.prev is not None else None
            new.next = made[block.next] if block.next is not None else None
        for own, new_pool in like.items():
            new_pool.free = list(own.free)
            new_pool.at = {address: made[block] for address, block in own.at.items()}
            new_pool.tail = made[own.tail] if own.tail is not None else None
        other._pools = pools
        return other, {number: made[block] for number, block in taken.items()}

    def keep(self, private: Any) -> None:
        """Begin to use a private pool: what it has taken is not given back."""
        self._kept.add(private)

    def let_go(self, private: Any) -> None:
        """End the use of a private pool: its segments are given back with the rest of the cache."""
        self._kept.discard(private)

    def _take_cached(self, pool: _Pool, size: int) -> Block | None:
        at = bisect_left(pool.free, (size, 0))
        if at == len(pool.free):
            return None
        if self.expandable:
            # a block that can grow counts as large as it can become, so the smaller neighbours are preferred
            while at + 1 < len(pool.free) and self._reach(pool, at + 1) < self._reach(pool, at):
                at += 1
        found, address = pool.free[at]
        if size < self.max_split <= found:
            return None  # oversized blocks are kept whole for oversized requests
        if size >= self.max_split and found >= size + NON_SPLIT_ROUNDING_BYTES:
            return None
        del pool.free[at]
        return pool.at.pop(address)

    @staticmethod
    def _reach(pool: _Pool, at: int) -> int:
        size, address = pool.free[at]
        after = pool.at[address].next
        return size + (after.size if after is not None and not after.mapped else 0)

    def _grow(self, pool: _Pool, size: int) -> Block | None:
        """Take a new segment (or more pages of the expandable one) from the driver; None when it has no more."""
        if self.expandable:
            return self._expand(pool, size)
        nbytes = segment_size(size)
        if self.reserved + nbytes > self.capacity:
            return None
        self._reserve(nbytes)
        block = Block(self.next_address, nbytes, pool)
        self.next_address += nbytes + ROUND_SEGMENT_BYTES  # never adjacent: segments do not merge
        return block

    def _reserve(self, nbytes: int) -> None:
        self.reserved += nbytes
        self.segments.append(nbytes)

    def _expand(self, pool: _Pool, size: int) -> Block | None:
        page = SMALL_SEGMENT_BYTES if pool.small else LARGE_SEGMENT_BYTES
        if pool.tail is None:
            # the address space is reserved once, larger than the device, and mapped page by page
            pool.tail = Block(self.next_address, _NO_LIMIT // 4, pool, mapped=False)
            self.next_address += _NO_LIMIT // 2
        block = self._first_room(pool, size)
        while block is not None and (not block.mapped or block.size < size):
            hole = block if not block.mapped else block.next
            have = 0 if not block.mapped else block.size
            assert hole is not None
            nbytes = min(-(-(size - have) // page) * page, hole.size)
            if self.reserved + nbytes > self.capacity:
                return None
            self._reserve(nbytes)
            block = self._map(pool, hole, nbytes)
        if block is not None:
            pool.remove(block)
        return block

    def _first_room(self, pool: _Pool, size: int) -> Block | None:
        """Return the lowest run of free and unmapped blocks that has `size` bytes of address space."""
        block = pool.tail
        holes = []
        while block is not None:
            if not block.mapped:
                holes.append(block)
            block = block.prev
        for hole in reversed(holes):
            start = hole.prev if hole.prev is not None and not hole.prev.allocated else hole
            room, block = 0, start
            while block is not None and not block.allocated and room < size:
                room += block.size
                block = block.next
            if room >= size:
                return start
        return None

    def _map(self, pool: _Pool, hole: Block, nbytes: int) -> Block:
        """Map the first `nbytes` of an unmapped block, merge them with free neighbours, and return the result."""
        if nbytes < hole.size:
            mapped = Block(hole.address, nbytes, pool)
            _link(hole.prev, mapped)
            _link(mapped, hole)
            hole.address += nbytes
            hole.size -= nbytes
        else:
            mapped = hole
            mapped.mapped = True
        return self._merge(pool, mapped)

    def _split(self, pool: _Pool, block: Block, size: int) -> None:
        remaining = block.size - size
        if pool.small or self.expandable:
            if remaining < MIN_BLOCK_BYTES:
                return
        elif size >= self.max_split or remaining <= SMALL_REQUEST_BYTES:
            return
        rest = Block(block.address + size, remaining, pool)
        _link(rest, block.next)
        _link(block, rest)
        block.size = size
        pool.insert(rest)

    def _merge(self, pool: _Pool, block: Block) -> Block:
        """Join a free block with its free neighbours, put it into the pool and return it."""
        before, after = block.prev, block.next
        if before is not None and not before.allocated and before.mapped:
            pool.remove(before)
            block.address = before.address
            block.size += before.size
            _link(before.prev, block)
        if after is not None and not after.allocated and after.mapped:
            pool.remove(after)
            block.size += after.size
            _link(block, after.next)
        pool.insert(block)
        return block

    def _release_oversized(self, pool: _Pool, size: int) -> bool:
        """Give back just enough oversized cached segments for `size`; only with max_split_size_mb."""
        if self.max_split == _NO_LIMIT or self.expandable:
            return False
        wanted = max(size, self.max_split)
        at = bisect_left(pool.free, (wanted, 0))
        if at < len(pool.free):
            self._release(pool, pool.at[pool.free[at][1]])
            return True
        got = 0
        while got < wanted and pool.free and pool.free[-1][0] >= self.max_split:
            largest = pool.at[pool.free[-1][1]]
            got += largest.size
            self._release(pool, largest)
        return got >= wanted

    def empty_cache(self) -> bool:
        """Give back every cached segment that is free as a whole, then say that it is worth trying again."""
        used = [pools for (private, _), pools in self._pools.items() if private not in self._kept]
        for pool in itertools.chain(*used):
            for block in list(pool.at.values()):
                if self.expandable:
                    self._unmap(pool, block)
                elif block.prev is None and block.next is None:
                    self._release(pool, block)
        return True

    def _release(self, pool: _Pool, block: Block) -> None:
        pool.remove(block)
        self.reserved -= block.size
        self.released += block.size

    def _unmap(self, pool: _Pool, block: Block) -> None:
        """Give back the whole pages inside a free block of the expandable segment."""
        page = SMALL_SEGMENT_BYTES if pool.small else LARGE_SEGMENT_BYTES
        base = 1 << 50  # segments start here, plus multiples of _NO_LIMIT // 2, both multiples of 2 MiB pages
        offset = (block.address - base) % (_NO_LIMIT // 2)
        low, high = -(-offset // page) * page, (offset + block.size) // page * page
        if low >= high:
            return
        pool.remove(block)
        self.reserved -= high - low
        self.released += high - low
        before, after = low - offset, offset + block.size - high
        hole = Block(block.address + before, high - low, pool, mapped=False)
        left = [Block(block.address, before, pool)] if before else []
        right = [Block(hole.address + hole.size, after, pool)] if after else []
        for part in (*left, *right):
            pool.insert(part)
        row = [block.prev, *left, hole, *right, block.next]
        for at in range(len(row) - 1):
            _link(row[at], row[at + 1])
        self._join_holes(pool, hole)

    @staticmethod
    def _join_holes(pool: _Pool, hole: Block) -> None:
        after = hole.next
        if after is not None and not after.mapped:
            hole.size += after.size
            _link(hole, after.next)
            if pool.tail is after:
                pool.tail = hole
        before = hole.prev
        if before is not None and not before.mapped:
            before.size += hole.size
            _link(before, hole.next)
            if pool.tail is hole:
                pool.tail = before
