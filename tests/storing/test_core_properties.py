"""The C core against the NumPy reference and against plain lists: every byte comes back, under the right number.

`LEGROOM_STORAGE_CASES=100000` runs the same properties on so many cases, drawn anew; `make test-native` on a build
with sanitizers. See generated.py for what is generated.
"""

from __future__ import annotations

import errno
import os
import random
import struct
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reference
from generated import (
    ARENA_BYTES,
    AROUND,
    Dump,
    Harm,
    Layout,
    Plain,
    Sequence,
    Step,
    cases,
    harms,
    sequences,
)
from hypothesis import example, given
from hypothesis import strategies as st

core = pytest.importorskip("legroom.storing._core")
both = pytest.mark.parametrize("made_by", [core, reference], ids=["core", "reference"])
# the core with its queue: what is not yet encoded is read raw, whenever that is
queued: Any = SimpleNamespace(**{**vars(core), "Store": partial(core.Store, queueing=2)})
all_three = pytest.mark.parametrize("made_by", [core, queued, reference], ids=["core", "queued", "reference"])


@pytest.fixture(scope="module")
def spill_fds() -> Iterator[tuple[int, int]]:
    """Files to spill to, one for each implementation."""
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
        yield one.fileno(), other.fileno()


@pytest.fixture
def spill_fd(spill_fds: tuple[int, int]) -> int:
    os.ftruncate(spill_fds[0], 0)
    return spill_fds[0]


def u32(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint32)


def read(store: object, layout: Layout, places: list[tuple[int, int]]) -> list[bytes]:
    """Return the bytes of the observations at these places, read at once."""
    each = layout.n_stack * layout.frame_bytes
    out = np.empty(len(places) * each, np.uint8)
    store.read(u32([stream for stream, _ in places]), u32([number for _, number in places]), out)
    return [out[i : i + each].tobytes() for i in range(0, len(out), each)]


def check_all(store: object, plain: Plain, seed: int) -> None:
    """Read everything once, in any order."""
    places = plain.places()
    random.Random(seed).shuffle(places)
    assert [store.length(stream) for stream in range(plain.layout.n_streams)] == [len(s) for s in plain.stored]
    assert read(store, plain.layout, places) == [plain.at(*place) for place in places]


def load(made_by: ModuleType, layout: Layout, dump: Dump, fd: int) -> object:
    store = made_by.Store(**layout.arguments, fd=fd)
    store.load(dump.index, dump.arenas)
    return store


# ---- sequences: every observation comes back ----


@cases(0.6)
@given(case=sequences(), queueing=st.booleans())
def test_every_observation_comes_back(spill_fds: tuple[int, int], case: Sequence, queueing: bool) -> None:
    """Both implementations give plain numbers and bytes, also after changing places and with arenas in a file."""
    layout, plain = case.layout, Plain(case.layout)
    makers = [queued if queueing else core, reference]
    stores = [made_by.Store(**layout.arguments) for made_by in makers]
    spilled = False
    for step in case.steps:
        if step.deed == "row":  # all streams at once
            observations = np.stack([plain.follow(replace(step, stream=i)) for i in range(layout.n_streams)])
            expected, numbers = u32([plain.store(i) for i in range(layout.n_streams)]), u32([0] * layout.n_streams)
            for store in stores:
                store.append_all(observations, numbers)
                assert numbers.tolist() == expected.tolist()
        elif step.deed not in AROUND:
            observation = plain.follow(step)
            number = plain.store(step.stream)
            assert [store.append(step.stream, observation) for store in stores] == [number, number]
        elif not plain.places():
            continue
        elif step.deed == "look":
            place = random.Random(step.number).choice(plain.places())
            assert [read(store, layout, [place, place]) for store in stores] == [[plain.at(*place)] * 2] * 2
        elif step.deed == "cross":  # each goes on with what the other stored
            dumps = [Dump.of(store) for store in reversed(stores)]
            stores = [load(maker, layout, dump, -1) for maker, dump in zip(makers, dumps, strict=True)]
            spilled = False
        elif not spilled:  # each goes on with small arenas, most of them in its file
            dumps = [Dump.of(store).scattered(1 + step.number % 4) for store in stores]
            stores = [load(*parts) for parts in zip(makers, [layout] * 2, dumps, spill_fds, strict=True)]
            for store in stores:
                store.spill(step.number % 3 * 4096)
                assert store.resident() <= 2 * ARENA_BYTES  # the newest, and what waits to be the next
            spilled = True
    for store in stores:
        if len(case.steps) % 2:
            store.seal()
        check_all(store, plain, len(case.steps))


@cases(0.05)
@given(case=sequences(around=()), n_each=st.integers(1, 6), n_dropped=st.integers(0, 2), seed=st.integers(0, 0xFFFF))
def test_a_ring_gives_rows_and_what_follows_them(case: Sequence, n_each: int, n_dropped: int, seed: int) -> None:
    """`gather_ring` finds a row's store and number, and its next observation, after old stores have been dropped."""
    layout, streams = case.layout, range(case.layout.n_streams)
    for made_by in (core, queued, reference):
        plain, stores, firsts = Plain(layout), [], []
        here, after = [], []  # of each row ever, by stream
        packed = np.zeros((len(case.steps), layout.n_streams), np.uint32)
        shown = np.stack([plain.follow(Step("same", stream, 0)) for stream in streams])
        for ever, step in enumerate(case.steps):
            if ever % n_each == 0:  # a store of its own for the next rows; it begins with what the last one ended with
                stores.append(made_by.Store(**layout.arguments))
                firsts.append(ever)
            followed = np.stack([plain.follow(replace(step, stream=stream)) for stream in streams])
            stores[-1].append_pairs(shown, followed, packed, ever)
            here.append([row.tobytes() for row in shown])
            after.append([row.tobytes() for row in followed])
            shown = followed
        with pytest.raises(ValueError):
            stores[-1].append_pairs(shown, shown, packed, len(case.steps))
        n_dropped = min(n_dropped, len(stores) - 1)
        oldest, n_ever = firsts[n_dropped], len(case.steps)
        n_rows = n_ever - oldest
        table = np.empty((n_rows, layout.n_streams), np.uint32)
        for ever in range(oldest, n_ever):
            table[ever % n_rows] = packed[ever]
        asked = [(ever, stream) for ever in range(oldest, n_ever) for stream in streams]
        random.Random(seed).shuffle(asked)
        ring = (tuple(stores[n_dropped:]), np.array(firsts[n_dropped:]), n_ever, n_rows, layout.n_streams, table)
        rows, envs = np.array([ever % n_rows for ever, _ in asked]), np.array([stream for _, stream in asked])
        out, out_next = (np.empty((len(asked), layout.n_stack * layout.frame_bytes), np.uint8) for _ in range(2))
        expected, expected_next = ([column[ever][stream] for ever, stream in asked] for column in (here, after))
        made_by.gather_ring(*ring, rows, envs, 2, out, out_next)
        assert [row.tobytes() for row in out] == expected
        assert [row.tobytes() for row in out_next] == expected_next
        made_by.gather_ring(*ring, rows, envs, 1, out, out)
        assert [row.tobytes() for row in out] == expected_next
        made_by.gather_ring(*ring, rows, envs, 0, out, out)
        assert [row.tobytes() for row in out] == expected
        for row, env in ((-1, 0), (n_rows, 0), (0, -1), (0, layout.n_streams)):
            with pytest.raises(IndexError):
                made_by.gather_ring(*ring, np.array([row]), np.array([env]), 0, out[:1], out[:1])


# ---- damage: refused, or read as something, never a crash ----

SMALL = Layout("u1", (61,), page_bytes=64)
BIT = Step("bit", 0, 0)


@example(Sequence(SMALL, tuple(Step("end", 0, i) for i in range(9))), Harm("arena bit", 0, 114), True)
@example(Sequence(replace(SMALL, n_stack=2), (BIT,)), Harm("payload byte", 1, 687427950), False)
@example(Sequence(SMALL, (BIT, BIT)), Harm("payload word", 1, 160), True)
@cases(0.25)
@given(case=sequences(max_steps=5, around=()), harm=harms, of_core=st.booleans())
def test_a_damaged_dump_is_refused_or_read_as_something(
    spill_fds: tuple[int, int], case: Sequence, harm: Harm, of_core: bool
) -> None:
    """Both refuse the dump, or both read all of it, agree on what it says, and go on storing."""
    layout, plain = case.layout, Plain(case.layout)
    written = (core if of_core else reference).Store(**layout.arguments)
    for step in case.steps:
        written.append(step.stream, plain.follow(step))
    whole = Dump.of(written)
    if harm.value % 2:
        whole = whole.scattered(1 + harm.where % 3)
    index, arenas = harm.do(whole)
    said: list[list[bytes | None] | None] = []
    for made_by, fd in zip((core, reference), spill_fds, strict=True):
        store = made_by.Store(**layout.arguments, fd=fd)
        try:
            store.load(index, arenas)
        except ValueError:
            said.append(None)
            check_usable(store, layout)
            continue
        said.append(everything(store, layout))
        store.spill(0)
        assert everything(store, layout) == said[-1]
        check_usable(store, layout)
    by_core, by_reference = said
    assert by_core == by_reference
    assert by_core is None or None not in by_core  # damage that can be seen is refused before anything is read


def everything(store: object, layout: Layout) -> list[bytes | None]:
    """Return what a store says at each place, or at some of them if they are many; None where it cannot be read."""
    said = []
    for stream in range(layout.n_streams):
        numbers = range(layout.n_stack - 1, store.length(stream))
        for number in numbers if len(numbers) < 100 else [*numbers[:50], *numbers[-50:]]:
            try:
                said += read(store, layout, [(stream, number)])
            except (ValueError, OSError):
                said.append(None)
    return said


def check_usable(store: object, layout: Layout) -> None:
    """Whatever was loaded or refused, what is stored from now on comes back."""
    for seed in range(2):
        frames = [random.Random(seed + i).randbytes(layout.frame_bytes) for i in range(layout.n_stack)]
        observation = layout.observation(frames)
        try:
            number = store.append(0, observation)
        except OSError as problem:
            assert problem.errno == errno.EFBIG  # the damage was to the number of frames
            return
        assert read(store, layout, [(0, number)]) == [observation.tobytes()]


# Dumps made by hand: frames of one page of 16 words in one stream, records with references to 4 bytes.

RAW, LZ4, CONST, DELTA, PATCH, NARROW, BYTES, MOVE = range(8)
BASE = 0x80000000
NOISY_PAGE = random.Random(0).randbytes(64)
PAGE = (RAW, NOISY_PAGE)
MOST_CHANGES = 20  # in a row, of a page of 64 bytes


def made_dump(*records: tuple[int, bytes], refs: list[int] | None = None) -> Dump:
    """Return a dump in which a frame's version is each record, or what begins at each of `refs`."""
    arena, starts = b"", []
    for kind, payload in records:
        starts.append(len(arena) // 4)
        arena += (kind | len(payload) << 3).to_bytes(4, "little") + payload + bytes(-len(payload) % 4)
    used = starts if refs is None else refs
    versions = []
    for time, ref in enumerate(used):
        changes = int.from_bytes(arena[4 * ref : 4 * ref + 4], "little") & 7 in (DELTA, PATCH, BYTES, MOVE)
        versions += [time | (0 if changes else BASE), ref]
    head = [int.from_bytes(b"LRS1", "little"), 1, 64, 1, 1, 0, 64, 4]
    return Dump([*head, 1, len(arena), len(used), len(used), *versions], [arena])


def delta(*words: int) -> tuple[int, bytes]:
    return DELTA, struct.pack(f"<{len(words)}I", *words)


def narrow(unit: int, bits: int) -> bytes:
    """Return 64 bytes of numbers of `unit` bytes, of which `bits` bits are kept."""
    return bytes([unit, bits, 0, 0]) + NOISY_PAGE[: 64 // unit * bits // 8]


def channels(*bits: int) -> bytes:
    """Return 64 bytes of channels that take turns, of each of which so many bits are kept."""
    kept = sum(bits[i % len(bits)] for i in range(64))
    packed = sum(each << 4 * i for i, each in enumerate(bits))
    return bytes([0x80 + len(bits), *packed.to_bytes(3, "little")]) + NOISY_PAGE[: -(-kept // 8)]


def literals(page: bytes) -> bytes:
    """Return an LZ4 block without matches."""
    return bytes([0xF0, len(page) - 15]) + page


def move(
    shift: int = 0,
    copies: bytes = b"",
    fills: bytes = b"",
    runs: bytes = b"",
    bytes_: bytes = b"",
    sources: bytes = b"",
    stripe: tuple[int, int, int] = (0, 0, 0),
) -> tuple[int, bytes]:
    head = struct.pack("<hBBHBHH", shift, len(copies) // 2, len(fills) // 3, len(runs) // 2, *stripe)
    return MOVE, head + copies + sources + fills + runs + bytes_


SOUND = {
    "a move by nothing": made_dump(PAGE, move()),
    "a move to the right": made_dump(PAGE, move(3, runs=b"\0\3", bytes_=b"abc")),
    "a move to the left": made_dump(PAGE, move(-3, runs=b"\x3d\3", bytes_=b"abc")),
    "moves in a row": made_dump(
        PAGE,
        move(2, runs=b"\0\2", bytes_=b"ab"),
        move(-1, runs=b"\x3f\1", bytes_=b"c"),
        move(0, copies=b"\5\7", sources=b"\0\0"),
        move(40, runs=b"\0\x28", bytes_=NOISY_PAGE[:40]),
        move(40, runs=b"\0\x28", bytes_=NOISY_PAGE[20:60]),
        move(-30, runs=b"\x22\x1e", bytes_=NOISY_PAGE[:30]),
    ),
    "a move beyond the page": made_dump(PAGE, move(64, fills=b"\0\x40?")),
    "copies that change places": made_dump(PAGE, move(copies=b"\0\7\0\7", sources=b"\7\0\0\0")),
    "copies as far off as the last": made_dump(PAGE, move(copies=b"\0\7\2\x87\1\0\0\x84", sources=b"\x20\0")),
    "a move with a stripe": made_dump(PAGE, move(stripe=(2, 5, 16), bytes_=b"abcdefgh")),
    "a stripe and what lies over it": made_dump(
        PAGE, move(fills=b"\5\3?", runs=b"\6\1", stripe=(2, 5, 60), bytes_=b"abc")
    ),
    "a stripe that covers what is open": made_dump(PAGE, move(2, stripe=(2, 0, 64), bytes_=b"ab")),
    "a page": made_dump(PAGE),
    "an LZ4 block": made_dump((LZ4, b"\x1f\x07\x01\x00" + bytes([63 - 4 - 15]))),
    "an LZ4 block that ends with a match": made_dump(
        (LZ4, b"\x4f" + NOISY_PAGE[:4] + b"\x04\x00" + bytes([60 - 4 - 15]))
    ),
    **{
        f"numbers of {unit} bytes in {bits} bits": made_dump((NARROW, narrow(unit, bits)))
        for unit, bits in ((1, 1), (1, 2), (1, 4), (4, 8), (4, 16), (8, 8), (8, 16), (8, 32))
    },
    **{
        f"channels of {bits} bits": made_dump((NARROW, channels(*bits)))
        for bits in ((4, 3, 0), (8, 8, 4), (0, 8, 8), (1, 0, 0), (0, 0, 0), (7, 7, 7, 7), (8, 8, 8, 0), (0, 5, 0, 1))
    },
    "a change": made_dump(PAGE, delta(0x00010000, 5)),
    "a change of the last word": made_dump(PAGE, delta(0x0001000F, 5)),
    "a change of all words": made_dump(PAGE, delta(0x80100000, 5)),
    "runs of no words before another": made_dump(PAGE, delta(0x00000003, 0x80000001, 7, 0x00010000, 5)),
    "a change of nothing": made_dump(PAGE, delta()),
    "bytes that change": made_dump(PAGE, (BYTES, b"\x03\x02ab\x00\x01c\x39\x01d")),
    "all bytes change": made_dump(PAGE, (BYTES, b"\x00\x3e" + NOISY_PAGE[1:63])),
    "no bytes change": made_dump(PAGE, (BYTES, b"")),
    "numbers longer than they need be": made_dump(PAGE, (BYTES, b"\x83\x80\x00\x81\x00a")),
    "a patch of nothing": made_dump(PAGE, (PATCH, b"\x0f\x40\x00" + bytes([64 - 4 - 15]))),
    "a record twice": made_dump(PAGE, refs=[0, 0]),
    "a record that nobody uses": made_dump(PAGE, PAGE, (LZ4, b"?"), refs=[0]),
    "many changes": made_dump(PAGE, *[delta(0x00010000, i) for i in range(MOST_CHANGES)]),
}
UNSOUND = {
    "a move without its head": made_dump(PAGE, (MOVE, bytes(10))),
    "a move further than a page": made_dump(PAGE, move(65, fills=b"\0\x40?")),
    "a move that leaves a byte open": made_dump(PAGE, move(3, runs=b"\0\2", bytes_=b"ab")),
    "a move to the left that leaves a byte open": made_dump(PAGE, move(-3, runs=b"\x3e\2", bytes_=b"ab")),
    "a copy beyond the page": made_dump(PAGE, move(copies=b"\x3f\2", sources=b"\0\0")),
    "a copy from beyond the page": made_dump(PAGE, move(copies=b"\0\2", sources=b"\x3f\0")),
    "a copy from before the page": made_dump(PAGE, move(copies=b"\x10\2\0\x83", sources=b"\0\1")),
    "a copy without its source": made_dump(PAGE, move(copies=b"\0\2")),
    "a filling beyond the page": made_dump(PAGE, move(fills=b"\x3f\2?")),
    "new bytes beyond the page": made_dump(PAGE, move(runs=b"\x3f\2", bytes_=b"ab")),
    "new bytes of which there are fewer": made_dump(PAGE, move(runs=b"\0\3", bytes_=b"ab")),
    "new bytes of which there are more": made_dump(PAGE, move(runs=b"\0\1", bytes_=b"ab")),
    "a stripe too wide": made_dump(PAGE, move(stripe=(33, 0, 64), bytes_=NOISY_PAGE[:33])),
    "a stripe without rows": made_dump(PAGE, move(stripe=(2, 0, 0), bytes_=b"ab")),
    "a stripe beyond the page": made_dump(PAGE, move(stripe=(2, 63, 8), bytes_=b"ab")),
    "a stripe of which there is less": made_dump(PAGE, move(stripe=(2, 0, 32), bytes_=b"ab")),
    "a move before any page": made_dump(move()),
    "eight literal words, of which the record has one": made_dump(PAGE, delta(0x00080000, 5)),
    "a fill of 17 words in a page of 16": made_dump(PAGE, delta(0x80110000, 5)),
    "all 16 words skipped, then one more": made_dump(PAGE, delta(0x00010010, 5)),
    "as many words skipped as a token can": made_dump(PAGE, delta(0x8001FFFF, 5)),
    "two empty runs": made_dump(PAGE, delta(0, 0)),
    "an empty run at the end": made_dump(PAGE, delta(0x00010000, 5, 3)),
    "a token alone": made_dump(PAGE, delta(0x00000000)),
    "a change of half a word": made_dump(PAGE, (DELTA, bytes([0, 0, 1, 0, 5, 5]))),
    "bytes beyond the page": made_dump(PAGE, (BYTES, b"\x3f\x02ab")),
    "bytes skipped beyond the page": made_dump(PAGE, (BYTES, b"\x41\x00")),
    "bytes of which the record has fewer": made_dump(PAGE, (BYTES, b"\x00\x03ab")),
    "bytes without their number": made_dump(PAGE, (BYTES, b"\x00\x01a\x00")),
    "a number of bytes that does not end": made_dump(PAGE, (BYTES, b"\x80\x80\x80\x00\x00")),
    "bytes before any page": made_dump((BYTES, b"\x00\x01a")),
    "a change larger than a page": made_dump(PAGE, delta(*[0x00010000, 5] * 9)),
    "a patch larger than a page": made_dump(PAGE, (PATCH, literals(NOISY_PAGE))),
    "an LZ4 block larger than a page": made_dump((LZ4, literals(NOISY_PAGE))),
    "an LZ4 block of less than a page": made_dump((LZ4, literals(NOISY_PAGE[:60]))),
    "an LZ4 block that begins before its page": made_dump((LZ4, b"\x0f\x01\x00" + bytes([64 - 4 - 15]))),
    "a patch that begins before the page before": made_dump(PAGE, (PATCH, b"\x0f\x41\x00" + bytes([64 - 4 - 15]))),
    "numbers in more bits than are known": made_dump((NARROW, narrow(2, 8))),
    "numbers in no bits": made_dump((NARROW, bytes(4))),
    "numbers without their head": made_dump((NARROW, b"\1\1")),
    "numbers with one too many": made_dump((NARROW, narrow(1, 4) + b"?")),
    "numbers with one too few": made_dump((NARROW, narrow(4, 16)[:-1])),
    "numbers with something else in their head": made_dump((NARROW, b"\1\1\1\0" + narrow(1, 1)[4:])),
    "channels in more bits than are read at once": made_dump((NARROW, channels(8, 8, 5))),
    "a channel of nine bits": made_dump((NARROW, channels(9, 0, 0))),
    "two channels": made_dump((NARROW, channels(4, 3))),
    "five channels": made_dump((NARROW, channels(4, 3, 1, 1, 1))),
    "no channels": made_dump((NARROW, bytes([0x80, 0, 0, 0]))),
    "channels of which one has no name": made_dump((NARROW, b"\x83\x34\x10\0" + channels(4, 3, 0)[4:])),
    "channels with one too many": made_dump((NARROW, channels(4, 3, 0) + b"?")),
    "channels with one too few": made_dump((NARROW, channels(4, 3, 0)[:-1])),
    "channels with something else in their head": made_dump((NARROW, b"\x83\x34\0\1" + channels(4, 3, 0)[4:])),
    "a page of other size": made_dump((RAW, NOISY_PAGE[:60])),
    "a constant of two words": made_dump((CONST, bytes(8))),
    "a change before any page": made_dump(delta(0x00010000, 5)),
    "a change that a later page hides": made_dump(PAGE, delta(0, 0), PAGE),
    "a change in the middle of many frames": made_dump(PAGE, *[delta(0, 0), PAGE] * 60),
    "a record within a record": made_dump((RAW, bytes(32) + b"\x22" + bytes(31)), (CONST, bytes(4)), refs=[9]),
    "a record larger than a page that nobody uses": made_dump(PAGE, (RAW, bytes(68)), refs=[0]),
    "too many changes": made_dump(PAGE, *[delta(0x00010000, i) for i in range(MOST_CHANGES + 1)]),
    "the same change too often": made_dump(PAGE, delta(0x00010000, 5), refs=[0] + [17] * (MOST_CHANGES + 1)),
}


@both
@pytest.mark.parametrize("dump", SOUND.values(), ids=SOUND)
def test_a_sound_dump_is_read(made_by: ModuleType, dump: Dump) -> None:
    layout = Layout("u1", (64,))
    stores = [load(maker, layout, dump, -1) for maker in (made_by, reference)]
    assert everything(stores[0], layout) == everything(stores[1], layout)
    assert None not in everything(stores[0], layout)
    check_usable(stores[0], layout)


@both
@pytest.mark.parametrize("dump", UNSOUND.values(), ids=UNSOUND)
def test_an_unsound_dump_is_refused_before_anything_is_read(made_by: ModuleType, dump: Dump) -> None:
    fresh = made_by.Store(1, 64)
    with pytest.raises(ValueError):
        fresh.load(dump.index, dump.arenas)
    assert (fresh.length(0), fresh.n_arenas()) == (0, 0)
    check_usable(fresh, Layout("u1", (64,)))


@both
def test_a_file_that_was_changed_is_an_error(made_by: ModuleType, spill_fd: int) -> None:
    """What was spilled has been checked once; the file it is in belongs to others too."""
    store, _ = noisy(made_by, spill_fd, 13)
    store.spill(0)
    os.pwrite(spill_fd, bytes(1 << 18), 0)
    with pytest.raises(OSError):
        store.read(u32([0]), u32([0]), np.empty(NOISE.frame_bytes, np.uint8))


@pytest.mark.parametrize("at", [0, 4095, 4096, 700_001, 5_000_000])
def test_any_byte_of_a_spilled_block_that_changed_is_an_error(spill_fd: int, at: int) -> None:
    """Noise read from a damaged file would look like noise: only its checksum tells."""
    store, plain = noisy(core, spill_fd, 30)
    store.spill(0)
    check_all(store, plain, 0)
    os.pwrite(spill_fd, bytes([os.pread(spill_fd, 1, at)[0] ^ 1]), at)
    with pytest.raises(OSError):
        check_all(store, plain, 0)
    with pytest.raises(OSError):
        Dump.of(store)


# ---- arenas of real size, in a file ----

NOISE = Layout("u1", (1 << 18,), n_streams=2)


def noisy(made_by: ModuleType, fd: int, n: int) -> tuple[object, Plain]:
    """Return a store of `n` incompressible observations, 256 KiB each, and what they are."""
    store, plain = made_by.Store(**NOISE.arguments, fd=fd), Plain(NOISE)
    add_noise(store, plain, n)
    return store, plain


def add_noise(store: object, plain: Plain, n: int) -> None:
    for _ in range(n):
        so_far = sum(map(len, plain.stored))
        stream = so_far % 2
        plain.shown[stream] = [random.Random(so_far).randbytes(NOISE.frame_bytes)]
        assert store.append(stream, plain.shown[stream][0]) == plain.store(stream)


@both
def test_what_is_spilled_reads_back_and_leaves_memory(made_by: ModuleType, spill_fd: int) -> None:
    """12 observations of 256 KiB: 3 MiB of records, of which one arena of 1 MiB stays."""
    store, plain = noisy(made_by, spill_fd, 12)
    before = store.resident()
    assert before > 3 * ARENA_BYTES - 4096
    store.spill(2 * ARENA_BYTES)
    assert store.resident() <= 2 * ARENA_BYTES
    store.spill(0)
    assert store.resident() == store.nbytes()["arenas"] <= ARENA_BYTES
    assert store.nbytes()["spilled"] >= 2 * ARENA_BYTES
    check_all(store, plain, 0)
    add_noise(store, plain, 6)
    store.append(0, plain.shown[0][0])  # seen before, in an arena that is in the file
    store.spill(0)
    check_all(store, plain, 1)
    other = reference if made_by is core else core
    check_all(load(other, NOISE, Dump.of(store), -1), plain, 2)


@both
def test_a_full_disk_is_an_error_before_any_loss(made_by: ModuleType) -> None:
    fd = os.open("/dev/full", os.O_RDWR)
    try:
        store, plain = noisy(made_by, fd, 12)
        before = store.resident()
        with pytest.raises(OSError) as caught:
            store.spill(0)
        assert caught.value.errno == errno.ENOSPC
        assert store.resident() == before
        check_all(store, plain, 0)
        add_noise(store, plain, 2)
        check_all(store, plain, 1)
    finally:
        os.close(fd)


@both
def test_a_file_cut_short_is_an_error(made_by: ModuleType, spill_fd: int) -> None:
    store, plain = noisy(made_by, spill_fd, 13)
    store.spill(0)
    os.ftruncate(spill_fd, 100)
    out = np.empty(NOISE.frame_bytes, np.uint8)
    with pytest.raises(OSError):
        store.read(u32([0]), u32([0]), out)
    store.read(u32([0]), u32([6]), out)  # the thirteenth is still in memory
    assert out.tobytes() == plain.at(0, 6)


# ---- shapes of storage that must not get lost: sizes, dedup, stacks ----


@both
def test_the_same_content_is_stored_once(made_by: ModuleType) -> None:
    """Eight streams that show the same 20 pictures of 32 KiB of noise in turn cost 20 pictures, not 160."""
    pictures = [random.Random(i).randbytes(1 << 15) for i in range(20)]
    store = made_by.Store(8, 1 << 15)
    for stream in range(8):
        for picture in pictures:
            store.append(stream, picture)
    assert sum(map(len, Dump.of(store).arenas)) < 20 * (1 << 15) * 1.01


@both
def test_a_plane_of_one_scalar_costs_a_few_bytes(made_by: ModuleType) -> None:
    """A broadcast scalar that changes at every step, beside noise that never does: under 64 bytes a step."""
    frame = np.random.default_rng(0).random(2048).astype(np.float32)
    store = made_by.Store(1, frame.nbytes, page_bytes=4096)
    store.append(0, frame)
    start = sum(map(len, Dump.of(store).arenas))
    for i in range(16):
        frame[700:1000] = i
        assert store.append(0, frame) == i + 1
    assert sum(map(len, Dump.of(store).arenas)) - start < 16 * 64


@both
def test_a_stack_of_four_costs_one_frame_a_step(made_by: ModuleType) -> None:
    """Hand-counted: 4 frames, then one for each shift, none for a repeat, 4 for a reset."""
    frames = [random.Random(i).randbytes(256) for i in range(10)]
    store = made_by.Store(1, 256, 4)
    assert store.append(0, b"".join(frames[:4])) == 3
    assert store.append(0, b"".join(frames[1:5])) == 4
    assert store.append(0, b"".join(frames[1:5])) == 4
    assert store.append(0, b"".join(frames[2:6])) == 5
    assert store.append(0, b"".join(frames[6:10])) == 9
    assert store.length(0) == 10


# ---- wrong use ----


@both
def test_reading_what_is_not_there_is_an_index_error(made_by: ModuleType) -> None:
    store = made_by.Store(2, 64, 2)
    for i in range(3):
        store.append(0, bytes([i] * 64 + [i + 1] * 64))
    out = np.empty(128, np.uint8)
    store.read(u32([0]), u32([1]), out)
    for stream, number in ((0, 0), (0, 4), (0, 0xFFFFFFFF), (1, 1), (2, 1), (0xFFFFFFFF, 1)):
        with pytest.raises(IndexError):
            store.read(u32([stream]), u32([number]), out)
        with pytest.raises(IndexError):
            made_by.gather((store,), u32([0]), u32([stream]), u32([number]), out)
        with pytest.raises(IndexError):
            made_by.gather_pairs((store,), u32([0]), u32([0]), u32([1]), u32([number if stream == 0 else 9]), out, out)
    for streams, numbers, size in (([0], [1], 127), ([0], [1, 1], 128), ([0], [1], 256), ([], [], 1)):
        with pytest.raises(IndexError):
            store.read(u32(streams), u32(numbers), np.empty(size, np.uint8))
    with pytest.raises(IndexError):
        made_by.gather((store,), u32([1]), u32([0]), u32([1]), out)
    with pytest.raises(IndexError):
        made_by.gather((), u32([]), u32([]), u32([]), np.empty(0, np.uint8))
    with pytest.raises(ValueError):
        made_by.gather((store, made_by.Store(1, 64)), u32([0]), u32([0]), u32([1]), out)
    store.read(u32([]), u32([]), np.empty(0, np.uint8))


@all_three
def test_a_sealed_store_is_only_read(made_by: ModuleType, spill_fd: int) -> None:
    store, plain = noisy(made_by, spill_fd, 6)
    before = store.nbytes()
    store.seal()
    store.seal()
    assert store.nbytes()["current"] == 0
    assert store.nbytes()["index"] <= before["index"]
    for write in (
        lambda: store.append(0, bytes(NOISE.frame_bytes)),
        lambda: store.append_all(bytes(2 * NOISE.frame_bytes), u32([0, 0])),
        lambda: store.load(store.dump_index(), []),
    ):
        with pytest.raises(ValueError):
            write()
    check_all(store, plain, 0)
    store.spill(0)
    assert store.resident() == 0  # nothing is added to the newest arena any more
    check_all(store, plain, 1)
    check_all(load(made_by, NOISE, Dump.of(store), -1), plain, 2)


# ---- threads ----


@all_three
def test_readers_see_whole_observations_while_the_env_fills(made_by: ModuleType, spill_fd: int) -> None:
    """Two readers, one writer that also spills: what is read is always some stored observation, whole."""
    store = made_by.Store(1, 1 << 16, 2, fd=spill_fd)
    frames = [bytes([i]) * 100 + random.Random(i).randbytes((1 << 16) - 100) for i in range(80)]
    store.append(0, frames[0] + frames[1])
    wrong, stop = [], threading.Event()

    def look(seed: int) -> None:
        rng, out = random.Random(seed), np.empty(1 << 17, np.uint8)
        while not stop.is_set():
            number = rng.randrange(1, store.length(0))
            store.read(u32([0]), u32([number]), out)
            if out.tobytes() != frames[number - 1] + frames[number]:
                wrong.append(number)

    readers = [threading.Thread(target=look, args=(seed,)) for seed in range(2)]
    for reader in readers:
        reader.start()
    try:
        for i in range(2, len(frames)):
            assert store.append(0, frames[i - 1] + frames[i]) == i
            if i % 20 == 0:
                store.spill(0)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert wrong == []


@given(data=st.binary(max_size=100), times=st.integers(0, 130))
def test_checksums_of_blocks_are_the_references(data: bytes, times: int) -> None:
    assert core.block_sums(data * times) == reference.block_sums(data * times)
