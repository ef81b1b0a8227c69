"""What the property tests of storage generate: layouts, sequences of changing observations, damaged dumps.

A *case* is one generated sequence, checked whole. Hypothesis draws its structure (sizes, what happens at each step), so
that a failing case shrinks to a short one; the bulk of the bytes follows from a number it draws.
"""

from __future__ import annotations

import os
import random
import struct
from dataclasses import dataclass
from math import prod

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from legroom.storing.stacks import IN_PIXELS, IN_PLANES, PARTS

ARENA_BYTES = 1 << 20
DTYPES = ("bool", "u1", "i2", "f2", "i4", "f4", "i8", "f8", "c8")
# By size of the float: quiet and signalling NaN with payloads, both zeros, an infinity, a denormal.
SPECIALS = {
    2: (0x7E01, 0x7C01, 0xFFFF, 0x8000, 0x0000, 0x7C00, 0x0001),
    4: (0x7FC00001, 0x7F800001, 0xFFFFFFFF, 0x80000000, 0x00000000, 0xFF800000, 0x00000001),
    8: (0x7FF8000000000001, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF, 1 << 63, 0, 0xFFF0000000000000, 1),
}

# ---- how many cases ----

GIVEN_CASES = os.environ.get("LEGROOM_STORAGE_CASES")
CASES = int(GIVEN_CASES or 2000)


def cases(share: float) -> settings:
    """Return settings for a property that gets this share of all cases.

    The few of a usual test run are the same every time; a given number is drawn anew (`--hypothesis-seed` repeats it).
    """
    return settings(
        max_examples=max(1, round(share * CASES)),
        deadline=None,
        derandomize=GIVEN_CASES is None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


# ---- layouts ----


@dataclass(frozen=True)
class Layout:
    """Sizes of a store, from a frame's dtype and shape; frames are stacked along `axis`."""

    dtype: str
    shape: tuple[int, ...]
    axis: int = 0
    n_stack: int = 1
    newest_first: bool = False
    n_streams: int = 1
    page_bytes: int = 0
    compress: bool = True
    colours: int = 0

    @property
    def itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    @property
    def frame_bytes(self) -> int:
        return prod(self.shape) * self.itemsize

    @property
    def arguments(self) -> dict[str, int]:
        return dict(
            n_streams=self.n_streams,
            frame_bytes=self.frame_bytes,
            n_stack=self.n_stack,
            outer=prod(self.shape[: self.axis]),
            newest_first=self.newest_first,
            page_bytes=self.page_bytes,
            compress=self.compress,
            colours=self.colours,
        )

    def observation(self, frames: list[bytes]) -> np.ndarray:
        """Return frames, the oldest first, as the array an environment would give."""
        arrays = [np.frombuffer(frame, self.dtype).reshape(self.shape) for frame in frames]
        return np.concatenate(arrays[::-1] if self.newest_first else arrays, axis=self.axis)


MAX_STREAMS = 3


def layouts() -> st.SearchStrategy[Layout]:
    """Return a strategy for sizes: half of them a few bytes around whole pages, the others of any dtype and shape."""
    common = dict(
        n_stack=st.sampled_from((1, 1, 2, 3, 4)),
        newest_first=st.booleans(),
        n_streams=st.integers(1, MAX_STREAMS),
        compress=st.sampled_from((True, True, True, False)),
    )
    small, large = (
        st.sampled_from((61, 64, 67, 125, 126, 127, 128, 129, 191, 193, 318, 320, 322)),
        st.integers(4093, 4099),
    )
    return st.one_of(
        st.builds(Layout, st.just("u1"), st.tuples(small), page_bytes=st.sampled_from((64, 128, 0)), **common),
        st.builds(Layout, st.just("u1"), st.tuples(large), page_bytes=st.just(4096), **common),
        st.builds(_shaped, st.sampled_from(DTYPES), SHAPES, st.integers(0, 2), page_bytes=PAGES, **common),
        st.builds(_picture, PICTURES, st.integers(0, 2), page_bytes=st.sampled_from((1024, 0)), **common),
    )


SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=3)
PAGES = st.sampled_from((64, 64, 128, 4096, 0))
PICTURES = st.sampled_from(((20, 24, 3), (3, 20, 24), (37, 29, 3), (3, 37, 29), (2, 1, 3), (3, 16, 64)))


def _shaped(dtype: str, shape: list[int], axis: int, **common: int) -> Layout:
    return Layout(dtype, tuple(shape), axis % len(shape), **common)


def _picture(shape: tuple[int, ...], axis: int, **common: int) -> Layout:
    return Layout("u1", shape, axis, **common, colours=IN_PLANES if shape[0] == PARTS else IN_PIXELS)


# ---- sequences ----


@dataclass(frozen=True)
class Step:
    """Something that happens to one stream, once or several times; what a number means is up to the deed."""

    deed: str
    stream: int
    number: int
    times: int = 1


def _filled(frame: bytearray, start: int, stop: int, word: int) -> None:
    """Set whole words of a frame to one value; the last may be cut."""
    frame[4 * start : 4 * stop] = (word.to_bytes(4, "little") * (stop - start))[: len(frame) - 4 * start]


def _pixels(layout: Layout, frame: bytearray) -> list[bytes]:
    count = len(frame) // 3
    if layout.colours == IN_PLANES:
        return [bytes(frame[part * count + i] for part in range(3)) for i in range(count)]
    return [bytes(frame[3 * i : 3 * i + 3]) for i in range(count)]


def _painted(layout: Layout, frame: bytearray, pixels: list[bytes]) -> None:
    """Write pixels where the layout has them; bytes beyond the last one stay."""
    parts = zip(*pixels, strict=True) if layout.colours == IN_PLANES else pixels
    frame[: 3 * len(pixels)] = b"".join(map(bytes, parts))


def _change(layout: Layout, deed: str, number: int, past: list[bytes], others: list[bytes]) -> bytes:
    """Return the frame that follows `past`, which has at least one frame."""
    frame, rng = bytearray(past[-1]), random.Random(number)
    size, words = len(frame), -(-len(frame) // 4)
    match deed:
        case "bit":
            frame[number % size] ^= 1 << number % 8
        case "end":
            frame[-1 - number % min(size, 4)] ^= 0xFF
        case "words":  # every second, third, fourth word: gaps of one word are cheaper kept than skipped
            for start in range(4 * (number % 3), size, 4 * (2 + number % 3)):
                frame[start] ^= 0x55
        case "constant":
            _filled(frame, 0, words, rng.choice((0, 0x01010101, 0x80000000, rng.getrandbits(32))))
        case "fill":
            start = rng.randrange(words)
            middle, stop = sorted(rng.randint(start, words) for _ in range(2))
            _filled(frame, start, middle, rng.getrandbits(2))
            _filled(frame, middle, stop, rng.getrandbits(32))
        case "scroll":
            by = rng.randint(1, min(size, 40))
            frame = frame[by:] + (frame[:by] if number % 2 else rng.randbytes(by))
        case "count":
            for start in range(0, size - 3, 4 if number % 2 else 32):
                word = int.from_bytes(frame[start : start + 4], "little") + 1
                frame[start : start + 4] = (word & 0xFFFFFFFF).to_bytes(4, "little")
        case "noise":
            frame[:] = rng.randbytes(size)
        case "part":
            start = rng.randrange(size)
            stop = rng.randint(start, size)
            frame[start:stop] = rng.randbytes(stop - start)
        case "texture":
            tile = rng.randbytes(rng.randint(3, 24))
            frame[:] = (tile * (size // len(tile) + 1))[:size]
        case "channels":  # bytes of three or four kinds that take turns, each below a limit of its own
            limits = [rng.randint(0, 8) for _ in range(3 + number % 2)]
            frame[:] = bytes(rng.getrandbits(8) & (1 << limits[i % len(limits)]) - 1 for i in range(size))
        case "colours":  # of a picture, few or too many for a table
            colours = [rng.randbytes(3) for _ in range(rng.choice((1, 4, 20, 60, 200, 256, 400)))]
            _painted(layout, frame, [rng.choice(colours) for _ in range(size // 3)])
        case "repaint":
            pixels = _pixels(layout, frame)
            for _ in range(rng.randint(1, 9) if pixels else 0):
                pixels[rng.randrange(len(pixels))] = rng.choice((rng.choice(pixels), rng.randbytes(3)))
            _painted(layout, frame, pixels)
        case "specials":
            each = {1: 4, 16: 8}.get(layout.itemsize, layout.itemsize)
            for _ in range(3):
                start = rng.randrange(0, size, each)
                frame[start : start + each] = rng.choice(SPECIALS[each]).to_bytes(each, "little")[: size - start]
        case "earlier":
            frame[:] = past[number % len(past)]
        case "back":
            frame[:] = past[-2] if len(past) > 1 else past[-1]
        case "other":
            frame[:] = others[number % len(others)]
        case "same":
            pass
        case _:
            raise AssertionError(deed)
    return bytes(frame)


CHANGES = (
    *("bit", "end", "words", "constant", "fill", "scroll", "count", "noise", "part", "texture", "channels", "specials"),
    *("colours", "colours", "repaint", "repaint"),
    *("earlier", "back", "back", "other", "same"),
)
WHOLE = ("again", "episode", "restart", "leap", "row")  # deeds that concern a whole observation
AROUND = ("cross", "spill", "look")  # deeds that leave the observations alone


@dataclass(frozen=True)
class Sequence:
    """A layout and what happens, in order."""

    layout: Layout
    steps: tuple[Step, ...]


def sequences(max_steps: int = 20, around: tuple[str, ...] = AROUND) -> st.SearchStrategy[Sequence]:
    """Return a strategy for a layout and the steps of its streams."""
    deeds = st.sampled_from((*CHANGES, *CHANGES, *WHOLE, *around))
    times = st.sampled_from((1, 1, 1, 2, 9))
    steps = st.builds(Step, deeds, st.integers(0, MAX_STREAMS - 1), st.integers(0, 0xFFFF), times)
    return st.builds(_sequence, layouts(), st.lists(steps, min_size=1, max_size=max_steps))


def _sequence(layout: Layout, steps: list[Step]) -> Sequence:
    """Return the steps one by one: each time with the number after the last."""
    return Sequence(
        layout,
        tuple(
            Step(step.deed, step.stream % layout.n_streams, step.number + i)
            for step in steps
            for i in range(1 if step.deed in AROUND else step.times)
        ),
    )


class Plain:
    """The same sequence in plain lists: what must come back, and under which number."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.stored: list[list[bytes]] = [[] for _ in range(layout.n_streams)]  # the frames of each stream by number
        self.shown: list[list[bytes]] = [[] for _ in range(layout.n_streams)]  # the stack each stream shows now
        self.past: list[list[bytes]] = [[bytes(layout.frame_bytes)] for _ in range(layout.n_streams)]

    def follow(self, step: Step) -> np.ndarray:
        """Return the observation that a stream gives after a step."""
        layout, past = self.layout, self.past[step.stream]
        shown = self.shown[step.stream] or [past[0]] * layout.n_stack
        new = _change(
            layout,
            step.deed if step.deed in CHANGES else "texture" if step.number % 2 else "part",
            step.number,
            past,
            [stream[-1] for stream in self.past],
        )
        if step.deed == "again":
            pass
        elif step.deed == "episode":  # older frames are blank
            shown = [bytes(layout.frame_bytes)] * (layout.n_stack - 1) + [new]
        elif step.deed == "restart":  # older frames repeat the first
            shown = [new] * layout.n_stack
        elif step.deed == "leap":  # two frames at once: nothing lines up
            between = _change(layout, "count", step.number, [new], [new])
            shown = [*shown, new, between][-layout.n_stack :]
        else:
            shown = [*shown, new][-layout.n_stack :]
        self.past[step.stream].append(shown[-1])
        self.shown[step.stream] = shown
        return layout.observation(shown)

    def store(self, stream: int) -> int:
        """Store what a stream shows by the rules of `Store.append` and return its number."""
        stored, shown, n_stack = self.stored[stream], self.shown[stream], self.layout.n_stack
        before = stored[-n_stack:]
        if before and shown == before:
            pass
        elif before and shown[:-1] == before[1:]:
            stored.append(shown[-1])
        else:
            stored.extend(shown)
        return len(stored) - 1

    def places(self) -> list[tuple[int, int]]:
        """Return all (stream, number) that can be read."""
        first = self.layout.n_stack - 1
        return [(stream, number) for stream, stored in enumerate(self.stored) for number in range(first, len(stored))]

    def at(self, stream: int, number: int) -> bytes:
        """Return the bytes of an observation."""
        return self.layout.observation(self.stored[stream][number - self.layout.n_stack + 1 : number + 1]).tobytes()


# ---- dumps, parsed independently of both implementations ----


@dataclass
class Dump:
    """What a store dumps: an index of 32-bit words, and arenas of records."""

    words: list[int]
    arenas: list[bytes]

    @classmethod
    def of(cls, store: object) -> Dump:
        index = store.dump_index()
        words = list(struct.unpack(f"<{len(index) // 4}I", index))
        return cls(words, [store.dump_arena(i) for i in range(store.n_arenas())])

    @property
    def index(self) -> bytes:
        return struct.pack(f"<{len(self.words)}I", *self.words)

    @property
    def unit(self) -> int:
        return self.words[7]

    def lengths_at(self) -> int:
        """Return where in the index the lengths of the streams begin."""
        return 9 + self.words[8]

    def version_places(self) -> list[int]:
        """Return where in the index each version's time stands; its reference follows."""
        places, at = [], self.lengths_at() + self.words[1]
        while at < len(self.words):
            places += range(at + 1, at + 1 + 2 * self.words[at], 2)
            at += 1 + 2 * self.words[at]
        return places

    def records(self) -> list[tuple[int, int, int]]:
        """Return (arena, offset, padded size) of each record."""
        found = []
        for number, arena in enumerate(self.arenas):
            offset = 0
            while offset < len(arena):
                size = 4 + (int.from_bytes(arena[offset : offset + 4], "little") >> 3)
                size += -size % self.unit
                found.append((number, offset, size))
                offset += size
        return found

    def scattered(self, n_each: int) -> Dump:
        """Return the same content with `n_each` records to an arena, so that small cases have arenas to spill."""
        arenas: list[bytes] = []
        moved: dict[int, int] = {}
        for i, (arena, offset, size) in enumerate(self.records()):
            if i % n_each == 0:
                arenas.append(b"")
            place = (len(arenas) - 1) * ARENA_BYTES + len(arenas[-1])
            moved[(arena * ARENA_BYTES + offset) // self.unit] = place // self.unit
            arenas[-1] += self.arenas[arena][offset : offset + size]
        words = list(self.words)
        for at in self.version_places():
            words[at + 1] = moved[words[at + 1]]
        words[8 : self.lengths_at()] = [len(arenas), *map(len, arenas)]
        return Dump(words, arenas)


# ---- damage ----

VALUES = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFFFE,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFF8,
    0xFFFFFFFF,
)
HARMS = (
    *("index bit", "index word", "index end", "more index", "length", "base flag", "time", "ref", "wrong ref"),
    *("arena bit", "arena bit", "arena end", "fewer arenas", "more arenas", "header", "payload word", "payload byte"),
)


@dataclass(frozen=True)
class Harm:
    """One way a dump is damaged: what, where, and how much."""

    what: str
    where: int
    value: int

    def do(self, dump: Dump) -> tuple[bytes, list[bytes]]:
        """Return the index and the arenas of a damaged dump."""
        words, arenas, index = list(dump.words), list(dump.arenas), bytearray(dump.index)
        versions, records = dump.version_places(), dump.records()
        version = versions[self.where % len(versions)]
        number, offset, size = records[self.where % len(records)]
        arena = bytearray(arenas[number])
        value = VALUES[self.value % len(VALUES)] if self.value % 3 else self.value
        inside = offset + self.value % size
        match self.what:
            case "index bit":
                index[self.where % len(index)] ^= 1 << self.value % 8
            case "index word":
                words[self.where % len(words)] = value
            case "index end":
                del index[self.where % len(index) :]
            case "more index":
                index += bytes(1 + self.value % 12)
            case "length":
                words[dump.lengths_at() + self.where % words[1]] = self.value % 8
            case "base flag":
                words[version] ^= 0x80000000
            case "time":
                words[version] = words[version] & 0x80000000 | value & 0x7FFFFFFF
            case "ref":
                words[version + 1] = value
            case "wrong ref":
                other = records[self.value % len(records)]
                words[version + 1] = (other[0] * ARENA_BYTES + other[1]) // dump.unit
            case "arena bit":
                arena[self.value % len(arena)] ^= 1 << self.where % 8
            case "arena end":
                del arena[self.value % len(arena) :]
                if self.where % 2:
                    words[9 + number] = len(arena)
            case "fewer arenas":
                del arenas[number]
                if self.where % 2:
                    words[8] -= 1
                    del words[9 + number]
            case "more arenas":
                arenas.append(bytes(self.value % 64))
            case "header":
                head = int.from_bytes(arena[offset : offset + 4], "little")
                head = head & ~7 | self.value & 7 if self.value % 2 else head & 7 | (value << 3 & 0xFFFFFFFF)
                arena[offset : offset + 4] = head.to_bytes(4, "little")
            case "payload word":
                arena[inside & ~3 : (inside & ~3) + 4] = value.to_bytes(4, "little")
            case "payload byte":
                arena[inside] = (0x00, 0x0F, 0xF0, 0xFF, self.where & 0xFF)[self.value % 5]
        if number < len(arenas) and self.what != "fewer arenas":
            arenas[number] = bytes(arena)
        if words != dump.words:
            index = bytearray(struct.pack(f"<{len(words)}I", *words))
        return bytes(index), arenas


harms = st.builds(Harm, st.sampled_from(HARMS), st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF))
