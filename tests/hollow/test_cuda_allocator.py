"""The allocator simulator against recordings of the real one, and against sequences worked out by hand."""

import gzip
import json
from pathlib import Path

import pytest

from legroom.hollow.cuda_allocator import CachingAllocator, Settings, segment_size
from legroom.hollow.replaying import replay
from legroom.units import MIB

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "truth" / "allocator"
RECORDINGS = [*sorted((HERE / "fixtures").glob("allocator_*.json.gz")), *sorted(SHARED.glob("*.json.gz"))]


def alloc(*sizes):
    return [("alloc", number, size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_reproduces_the_real_allocator_to_the_byte(path):
    record = json.loads(gzip.decompress(path.read_bytes()))
    result = replay(record["events"], Settings(**record.get("settings", {})))
    assert list(result.segments) == [event[1] for event in record["events"] if event[0] == "segment_alloc"]
    assert (result.peak_allocated, result.peak_reserved) == (record["peak_allocated"], record["peak_reserved"])
    assert (result.oom is not None) == (record.get("oom") is not None)


def test_recordings_cover_what_they_are_for():
    names = {path.name for path in RECORDINGS}
    for kind in ("default", "release_and_retry", "max_split", "out_of_memory"):
        assert f"allocator_{kind}.json.gz" in names


@pytest.mark.parametrize(
    ("size", "segment"),
    [(512, 2 * MIB), (MIB, 2 * MIB), (MIB + 512, 20 * MIB), (10 * MIB - 512, 20 * MIB), (10 * MIB, 10 * MIB),
     (21 * MIB, 22 * MIB)],
)  # fmt: skip
def test_segments_by_request(size, segment):
    assert segment_size(size) == segment


def test_cached_segments_are_given_back_before_running_out():
    events = [*alloc(30 * MIB), ("free", 0), ("alloc", 1, 40 * MIB)]
    assert replay(events).peak_reserved == 70 * MIB
    limited = replay(events, Settings(capacity=50 * MIB))
    assert (limited.oom, limited.released, limited.peak_reserved) == (None, 30 * MIB, 40 * MIB)


def test_the_cache_is_given_back_before_bytes_are_used_that_libraries_may_need():
    allocator = CachingAllocator(Settings(capacity=100 * MIB))
    allocator.capacity, allocator.spare = 60 * MIB, 40 * MIB
    first = allocator.alloc(30 * MIB)
    assert first is not None
    allocator.free(first)
    assert allocator.alloc(40 * MIB) is not None
    assert (allocator.reserved, allocator.released) == (40 * MIB, 30 * MIB)  # 70 MiB would be more than 60
    assert allocator.alloc(50 * MIB) is not None  # what is in use has a right to all of the card
    assert (allocator.reserved, allocator.capacity) == (90 * MIB, 60 * MIB)
    assert allocator.alloc(20 * MIB) is None


def test_out_of_memory_names_the_request():
    result = replay(alloc(30 * MIB, 40 * MIB), Settings(capacity=50 * MIB))
    assert (result.oom, result.oom_request, result.peak_reserved) == (1, 40 * MIB, 30 * MIB)


def test_max_split_size_keeps_large_blocks_whole():
    events = [*alloc(100 * MIB), ("free", 0), ("alloc", 1, 12 * MIB)]
    assert replay(events).peak_reserved == 100 * MIB
    assert replay(events, Settings(max_split_size_mb=64)).segments == (100 * MIB, 12 * MIB)


def test_expandable_segments_grow_by_pages_and_leave_no_holes():
    growing = [event for n in range(1, 9) for event in (("alloc", n, n * 12 * MIB), ("free", n))]
    plain, expandable = replay(growing), replay(growing, Settings(expandable_segments=True))
    assert plain.peak_reserved == sum(n * 12 * MIB for n in range(1, 9))
    assert expandable.peak_reserved == 100 * MIB  # 96 MiB in pages of 20
    assert set(expandable.segments) <= {20 * MIB, 40 * MIB}
    assert replay(alloc(1000, 3000), Settings(expandable_segments=True)).segments == (2 * MIB,)


def test_expandable_segments_unmap_free_pages_before_running_out():
    events = [*alloc(100 * MIB), ("free", 0), ("alloc", 1, 1000), ("alloc", 2, 60 * MIB)]
    result = replay(events, Settings(expandable_segments=True, capacity=101 * MIB))
    assert (result.oom, result.released) == (None, 100 * MIB)
    assert replay(alloc(100 * MIB, 20 * MIB), Settings(expandable_segments=True, capacity=110 * MIB)).oom == 1


def test_results_of_the_allocator_are_ignored_as_input():
    events = [["segment_alloc", 2 * MIB], ["alloc", 7, 100], ["segment_free", 2 * MIB], ["free", 7], ["free", 8]]
    assert replay(events).segments == (2 * MIB,)
