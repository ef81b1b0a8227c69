"""Memory snapshots that other people recorded on physical GPUs, replayed through the simulated allocator.

    python -m bench.real_gpus

`bench/data/real_gpu` has the snapshots reduced to facts: events `[action, address, bytes, stream]` in order, and the
segments at the end. What was there before the first event follows from undoing the events. The simulator has to choose
the recorded address for every allocation and to take the recorded segments from the driver.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from bench.results import write_section
from legroom.hollow.cuda_allocator import MIB, SMALL_SEGMENT_BYTES, Block, CachingAllocator, _Pool, round_size

DATA = Path(__file__).parent / "data" / "real_gpu"
HERE = (None, 0)  # no private pool, the default stream
Place = tuple[int, int]  # address, bytes


def main() -> int:
    rows: list[list[object]] = []
    for path in sorted(DATA.glob("*.json.gz")):
        recorded = json.loads(gzip.decompress(path.read_bytes()))
        right, allocations, taken, segments = replay(recorded)
        same = "yes" if (right, taken) == (allocations, segments) else "no"
        name = path.name.removesuffix(".json.gz")
        rows.append([name, recorded["source"], f"{right:,} of {allocations:,}", f"{taken:,} of {segments:,}", same])
    exact = sum(row[-1] == "yes" for row in rows)
    rows.append([f"{len(rows)} snapshots", "", "", "", f"{exact} of {len(rows)}"])
    columns = ("snapshot", "recorded by", "same address", "same segment", "all the same")
    write_section("Real GPUs: allocations replayed", columns, rows, "python -m bench.real_gpus")
    return 0


def replay(recorded: dict[str, Any]) -> tuple[int, int, int, int]:
    """Return the right addresses, the allocations, the segments taken when recorded so, and those recorded."""
    events = recorded["events"]
    allocator, blocks = at_the_start(recorded)
    right = allocations = segments = taken = 0
    expected = -1
    for action, address, nbytes, _ in events:
        if action == "segment_alloc":
            allocator.next_address, expected = address, len(allocator.segments) + 1
            segments += 1
        elif action == "segment_free":
            pool = next((pool for pool in allocator._pools[HERE] if address in pool.at), None)
            if pool is not None and pool.at[address].prev is pool.at[address].next is None:
                allocator._release(pool, pool.at[address])
        elif action == "alloc":
            allocations += 1
            before = len(allocator.segments)
            block = allocator.alloc(nbytes)
            assert block is not None
            right += block.address == address
            if len(allocator.segments) > before:
                taken += len(allocator.segments) == expected
            expected = -1
            blocks[address] = block
        elif action == "free_completed" and address in blocks:
            allocator.free(blocks.pop(address))
    return right, allocations, taken, segments


def at_the_start(recorded: dict[str, Any]) -> tuple[CachingAllocator, dict[int, Block]]:
    """Return the allocator as it was before the first event, and its blocks in use by address."""
    segments: dict[int, int] = {address: nbytes for address, nbytes, *_ in recorded["segments_at_end"]}
    used = {
        address: requested
        for *_, blocks in recorded["segments_at_end"]
        for address, _, requested, state in blocks
        if state != "inactive"
    }
    for action, address, nbytes, _ in reversed(recorded["events"]):
        if action == "segment_alloc":
            segments.pop(address, None)
        elif action == "segment_free":
            segments[address] = nbytes
        elif action == "alloc":
            used.pop(address, None)
        elif action == "free_completed":
            used[address] = nbytes
    allocator, blocks = CachingAllocator(), {}
    pools = allocator._pools[HERE] = (_Pool(small=False), _Pool(small=True))
    for start, nbytes in segments.items():
        pool = pools[nbytes == SMALL_SEGMENT_BYTES]
        inside = sorted((address, size) for address, size in used.items() if start <= address < start + nbytes)
        before: Block | None = None
        for address, size, is_used in cut(start, start + nbytes, inside, pool.small):
            block = Block(address, size, pool)
            block.prev, block.allocated = before, is_used
            if before is not None:
                before.next = block
            if is_used:
                blocks[address] = block
                allocator.allocated += size
            else:
                pool.insert(block)
            before = block
        allocator.reserved += nbytes
    return allocator, blocks


def cut(start: int, end: int, used: list[Place], small: bool) -> list[tuple[int, int, bool]]:
    """Return the blocks of a segment: address, size and whether it is in use.

    A block of the large pool that would leave up to 1 MiB is not split, so a gap of that size belongs to the block
    before it.
    """
    found: list[tuple[int, int, bool]] = []
    at = start
    for position, (address, requested) in enumerate(used):
        if address > at:
            found.append((at, address - at, False))
        size = round_size(requested)
        following = used[position + 1][0] if position + 1 < len(used) else end
        if not small and following - address - size <= MIB:
            size = following - address
        found.append((address, size, True))
        at = address + size
    return [*found, (at, end - at, False)] if at < end else found


if __name__ == "__main__":
    sys.exit(main())
