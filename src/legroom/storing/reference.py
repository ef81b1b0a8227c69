"""Lossless lean storage of frames that resemble each other, in NumPy: what `_core.c` does, written to be read.

It has two uses. It is the oracle that the C core is tested against, and it stands in for the core where no compiler was
at hand: slower, a little larger, the same bytes back. Both speak one record format, so that what one saved the other
loads.

A Store keeps, for each of several streams (one per environment), a sequence of numbered frames of one size. A frame is
cut into pages; a page gets a new *version* only when its bytes change. A version points to a record in an arena, a
block of at most 1 MiB: few large blocks, because an object per page costs several times its payload in a fragmented
heap.

    RAW    the page's bytes
    LZ4    the same, as an LZ4 block                       (read here, written only by the C core)
    CONST  one 32-bit word, repeated
    DELTA  the words that differ from the page's previous version
    PATCH  an LZ4 block whose dictionary is the page's previous version    (read here, written only by the C core)

The first three stand for themselves and are shared by all versions with the same content, in any stream, at any time.
Frame t of a page is its last version not after t: the last one before it that stands for itself, and the changes since.
Everything compares raw 32-bit words, so that NaN and -0.0 are safe and one way serves every dtype.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Buffer: TypeAlias = Any  # whatever has the buffer protocol; typing.Buffer came with Python 3.12
Words: TypeAlias = npt.NDArray[np.uint32]

WORD = np.dtype("<u4")
ARENA_BYTES = 1 << 20
MEMORY_PAGE_BYTES = 4096
MIN_PAGE_BYTES, MAX_PAGE_BYTES = 64, 32768  # a delta's run of words must fit into 15 bits
DEFAULT_PAGE_BYTES = 4096
SINGLE_PAGE_BYTES = 8192  # where the store may choose, frames up to this size are one page
SMALL_FRAME_BYTES = 2048  # frames up to this size have records at multiples of 4 bytes, others of 8
MAGIC = b"LRS1"

RAW, LZ4, CONST, DELTA, PATCH = range(5)
STANDALONE = (RAW, LZ4, CONST)
BASE = 0x8000_0000  # flag in a version's time: it needs no earlier version
FILL = 0x8000  # flag in a delta's run: one word follows, to be repeated
MIN_FILL_WORDS = 4  # shorter runs of one value cost less as part of a literal run
CHAIN_PAGES = 2  # pages' worth of work that applying changes may cost before a page is written anew
CHANGE_WORK_BYTES = 48  # what applying one change costs in Python beside its bytes; keeps chains short


# ---- records: a page's bytes, whole or as changes ----


def decode(kind: int, payload: bytes, before: Words | None, n_words: int) -> Words:
    """Return the page of `n_words` words that a record stands for.

    Args:
        before: the page's previous version, which DELTA and PATCH change; it is left as it is.

    Raises:
        ValueError: the record is malformed, or a change without anything before it.
    """
    if kind == RAW and len(payload) == WORD.itemsize * n_words:
        return np.frombuffer(payload, WORD)
    if kind == CONST and len(payload) == WORD.itemsize:
        return np.full(n_words, np.frombuffer(payload, WORD)[0], WORD)
    if kind == LZ4:
        return np.frombuffer(unpack_lz4(payload, WORD.itemsize * n_words), WORD)
    if kind == DELTA and before is not None:
        return apply_delta(before, payload)
    if kind == PATCH and before is not None:
        return np.frombuffer(unpack_lz4(payload, WORD.itemsize * n_words, before.tobytes()), WORD)
    raise ValueError(f"a record of kind {kind} and {len(payload)} bytes does not belong here")


def make_delta(old: Words, new: Words) -> bytes:
    """Return tokens (skipped words in the low, run of changed words in the high 16 bits), each followed by its words.

    A run of at least MIN_FILL_WORDS equal words has FILL set and is followed by that word once: a scalar that an
    observation repeats over a whole plane then costs eight bytes.
    """
    at = np.flatnonzero(old != new)
    values = new[at]
    # Pieces of neighbouring changed words of one value; the long ones become fills, short ones that touch go together.
    breaks = np.flatnonzero((np.diff(at) != 1) | (values[1:] != values[:-1])) + 1
    starts, ends = np.append(0, breaks), np.append(breaks, len(at))
    is_fill = ends - starts >= MIN_FILL_WORDS
    keeps = np.ones(len(starts), bool)
    keeps[1:] = (at[breaks] != at[breaks - 1] + 1) | is_fill[1:] | is_fill[:-1]
    starts, is_fill = starts[keeps], is_fill[keeps]
    ends = np.append(starts[1:], len(at))

    parts, reached = [], 0
    for start, end, fill in zip(starts.tolist(), ends.tolist(), is_fill.tolist(), strict=True):
        first, run = int(at[start]), end - start
        token = (first - reached) | (run | (FILL if fill else 0)) << 16
        parts += [token.to_bytes(4, "little"), values[start : start + 1 if fill else end].tobytes()]
        reached = first + run
    return b"".join(parts)


def apply_delta(before: Words, payload: bytes) -> Words:
    """Return the page `before` with the changes of a DELTA record.

    Raises:
        ValueError: the tokens lead out of the page or out of the record.
    """
    if len(payload) % WORD.itemsize:
        raise ValueError("a delta that is no whole number of words")
    words, after = np.frombuffer(payload, WORD), before.copy()
    here = reached = 0
    while here < len(words):
        token = int(words[here])
        first, run = reached + (token & 0xFFFF), token >> 16
        n_words = 1 if run & FILL else run
        run &= ~FILL
        reached, here = first + run, here + 1 + n_words
        if reached > len(after) or here > len(words):
            raise ValueError("a delta that leads out of its page or record")
        after[first:reached] = words[here - n_words : here]
    return after


def unpack_lz4(block: bytes, n_bytes: int, dictionary: bytes = b"") -> bytes:
    """Return the `n_bytes` bytes that an LZ4 block stands for; its matches may reach back into the dictionary.

    Raises:
        ValueError: the block is malformed or stands for another number of bytes.
    """
    out = bytearray(dictionary)
    full, here = len(dictionary) + n_bytes, 0
    try:
        while here < len(block):
            token = block[here]
            n_literals, here = _lz4_length(token >> 4, block, here + 1)
            out += block[here : here + n_literals]
            here += n_literals
            if here == len(block):
                break  # the last sequence has no match
            offset = block[here] | block[here + 1] << 8
            n_match, here = _lz4_length(token & 15, block, here + 2)
            n_match += 4
            if not 0 < offset <= len(out) or len(out) + n_match > full:
                raise ValueError("an LZ4 match that leads out of its page")
            source = out[-offset:]  # a match may run on into what it writes: the source repeats
            out += (source * (n_match // offset + 1))[:n_match]
    except IndexError:
        raise ValueError("an LZ4 block that ends too early") from None
    if here != len(block) or len(out) != full:
        raise ValueError("an LZ4 block of another size")
    return bytes(out[len(dictionary) :])


def _lz4_length(length: int, block: bytes, here: int) -> tuple[int, int]:
    """Return a length that 15 continues in further bytes, 255 each but the last, and where the block goes on."""
    if length == 15:
        while block[here] == 255:
            length, here = length + 255, here + 1
        length, here = length + block[here], here + 1
    return length, here


# ---- where things are ----


@dataclass(frozen=True)
class Geometry:
    """The sizes of a store: an observation is `n_stack` frames, in bytes [outer][n_stack][frame_bytes / outer]."""

    n_streams: int
    frame_bytes: int
    n_stack: int
    outer: int
    newest_first: bool
    page_bytes: int

    def __post_init__(self) -> None:
        sizes_fit = (
            1 <= self.n_streams <= 1 << 24
            and 1 <= self.frame_bytes <= 1 << 31
            and 1 <= self.n_stack <= 1 << 16
            and self.outer >= 1
            and self.frame_bytes % self.outer == 0
            and 0 < self.page_bytes <= MAX_PAGE_BYTES
            and self.page_bytes % 8 == 0
        )
        if not sizes_fit:
            raise ValueError(f"sizes out of range: {self}")

    @cached_property
    def observation_bytes(self) -> int:
        return self.n_stack * self.frame_bytes

    @cached_property
    def frame_words(self) -> int:
        """Words of a frame; the last one is padded with zero bytes."""
        return -(-self.frame_bytes // WORD.itemsize)

    @cached_property
    def page_words(self) -> int:
        return self.page_bytes // WORD.itemsize

    @cached_property
    def n_pages(self) -> int:
        return -(-self.frame_words // self.page_words)

    @property
    def unit_bytes(self) -> int:
        """Records start at multiples of this."""
        return 4 if self.frame_bytes <= SMALL_FRAME_BYTES else 8

    @property
    def head(self) -> list[int]:
        """The sizes in the order in which an index begins."""
        sizes = [self.n_streams, self.frame_bytes, self.n_stack, self.outer, int(self.newest_first), self.page_bytes]
        return [*sizes, self.unit_bytes]

    def words_of(self, page: int) -> int:
        """Return the words of one page: all alike, but for the last, which may be shorter."""
        return min(self.page_words, self.frame_words - page * self.page_words)

    def frames(self, observation: npt.NDArray[np.uint8]) -> Words:
        """Return an observation as words [n_stack, frame_words], the oldest frame first."""
        parts = observation.reshape(self.outer, self.n_stack, -1).swapaxes(0, 1)
        padded = np.zeros((self.n_stack, self.frame_words * WORD.itemsize), np.uint8)
        ordered = parts[::-1] if self.newest_first else parts
        padded[:, : self.frame_bytes] = ordered.reshape(self.n_stack, self.frame_bytes)
        return padded.view(WORD)

    def observation(self, frames: Words) -> npt.NDArray[np.uint8]:
        """Return what `frames` was made from, as bytes [outer, n_stack, frame_bytes / outer]."""
        parts = frames.view(np.uint8)[:, : self.frame_bytes].reshape(self.n_stack, self.outer, -1)
        return (parts[::-1] if self.newest_first else parts).swapaxes(0, 1)


@dataclass
class Versions:
    """The versions of one page of one stream, in order of time."""

    times: array[int] = field(default_factory=lambda: array("I"))  # the first frame of each, BASE set if standalone
    refs: array[int] = field(default_factory=lambda: array("I"))
    work_bytes: int = 0  # what applying the changes since the last standalone version costs

    def last_base(self, time: int) -> int:
        """Return the index of the last standalone version not after `time`."""
        at = bisect_right(self.times, time, key=lambda flagged: flagged & ~BASE) - 1
        while not self.times[at] & BASE:
            at -= 1
        return at


class Arenas:
    """Records one after the other in blocks of at most 1 MiB, the oldest of which may have moved to a file.

    A reference counts units of `unit` bytes from the start of the first arena; every arena spans 1 MiB of addresses,
    filled or not, and arena i lies at i MiB of the file. A record's header is its kind and, from bit 3, its size.
    """

    def __init__(self, unit: int, fd: int, blocks: Sequence[bytes] = ()) -> None:
        self.unit, self.fd = unit, fd
        self.blocks = [bytearray(block) for block in blocks]  # empty once it is in the file
        self.used = [len(block) for block in self.blocks]
        self.n_spilled = 0

    def add(self, kind: int, payload: bytes) -> int:
        """Append a record and return its reference.

        Raises:
            MemoryError: also when references have run out.
        """
        record = (kind | len(payload) << 3).to_bytes(4, "little") + payload
        record += bytes(-len(record) % self.unit)
        if not self.blocks or self.used[-1] + len(record) > ARENA_BYTES:
            if (len(self.blocks) + 1) * ARENA_BYTES // self.unit > 1 << 32:
                raise MemoryError("no reference left for another arena")
            self.blocks.append(bytearray())
            self.used.append(0)
        offset = self.used[-1]
        self.blocks[-1] += record
        self.used[-1] += len(record)
        return ((len(self.blocks) - 1) * ARENA_BYTES + offset) // self.unit

    def get(self, ref: int) -> tuple[int, bytes]:
        """Return kind and payload of a record.

        Raises:
            ValueError: there is no whole record at this reference.
            OSError: the file cannot be read.
        """
        arena, offset = divmod(ref * self.unit, ARENA_BYTES)
        if arena >= len(self.used) or offset + 4 > self.used[arena]:
            raise ValueError(f"reference {ref} leads out of the arenas")
        head = int.from_bytes(self._slice(arena, offset, 4), "little")
        size = head >> 3
        if offset + 4 + size > self.used[arena]:
            raise ValueError(f"the record at {ref} leads out of its arena")
        return head & 7, self._slice(arena, offset + 4, size)

    def _slice(self, arena: int, offset: int, size: int) -> bytes:
        if arena >= self.n_spilled:
            return bytes(self.blocks[arena][offset : offset + size])
        found = os.pread(self.fd, size, arena * ARENA_BYTES + offset)
        if len(found) != size:
            raise OSError(errno.EIO, "a spilled arena is shorter than what was written")
        return found

    def dump(self, arena: int) -> bytes:
        """Return the used part of an arena, wherever it is."""
        if not 0 <= arena < len(self.used):
            raise IndexError(f"arena {arena} of {len(self.used)}")
        return self._slice(arena, 0, self.used[arena])

    def resident_bytes(self) -> int:
        return sum(-(-used // MEMORY_PAGE_BYTES) * MEMORY_PAGE_BYTES for used in self.used[self.n_spilled :])

    def spill(self, keep_bytes: int, n_stay: int) -> None:
        """Move the oldest arenas to the file until at most `keep_bytes` are in memory; the newest `n_stay` never move.

        Raises:
            OSError: some arena could not be written; all are still in memory.
        """
        until, left = self.n_spilled, self.resident_bytes()
        while left > keep_bytes and until < len(self.blocks) - n_stay:
            self._write(until)
            left -= -(-self.used[until] // MEMORY_PAGE_BYTES) * MEMORY_PAGE_BYTES
            until += 1
        for arena in range(self.n_spilled, until):
            self.blocks[arena] = bytearray()
        self.n_spilled = until

    def _write(self, arena: int) -> None:
        block, done = self.blocks[arena], 0
        while done < len(block):
            written = os.pwrite(self.fd, block[done:], arena * ARENA_BYTES + done)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done += written


# ---- the store ----


class Store:
    """Frames of one size in several streams, stored once where they repeat.

    Args:
        n_streams: one per environment.
        frame_bytes: bytes of one frame, whatever its dtype.
        n_stack, outer: an observation is `n_stack` frames, seen as bytes [outer][n_stack][frame_bytes / outer].
        newest_first: the newest frame of a stack stands first instead of last.
        page_bytes: bytes of a page; 0 leaves the choice to the store.
        compress: accepted for the C core's sake; compressed records are never written here.
        fd: an open file that arenas may be spilled to.

    Raises:
        ValueError: sizes that cannot be.
    """

    def __init__(
        self,
        n_streams: int,
        frame_bytes: int,
        n_stack: int = 1,
        outer: int = 1,
        newest_first: bool = False,
        page_bytes: int = 0,
        compress: bool = True,
        fd: int = -1,
    ) -> None:
        if page_bytes == 0:
            page_bytes = -(-frame_bytes // 8) * 8 if frame_bytes <= SINGLE_PAGE_BYTES else DEFAULT_PAGE_BYTES
        elif page_bytes < MIN_PAGE_BYTES:
            raise ValueError(f"pages of {page_bytes} bytes instead of at least {MIN_PAGE_BYTES}")
        self._geometry = Geometry(n_streams, frame_bytes, n_stack, outer, bool(newest_first), page_bytes)
        self._fd = fd
        self._lock = threading.Lock()
        self._start_empty()

    def _start_empty(self) -> None:
        self._sealed = False
        n_streams, n_pages = self._geometry.n_streams, self._geometry.n_pages
        self._arenas = Arenas(self._geometry.unit_bytes, self._fd)
        self._pages = [[Versions() for _ in range(n_pages)] for _ in range(n_streams)]
        self._lengths = [0] * n_streams
        self._recent: list[Words | None] = [None] * n_streams  # the frames of each stream's last observation
        self._literals: dict[bytes, int] = {}  # digest of a page's bytes -> reference of its standalone record

    def append(self, stream: int, observation: Buffer) -> int:
        """Store an observation and return the number of its newest frame.

        The same bytes as the stream's last observation get the same number again. One that continues it by one frame
        costs that frame; anything else costs all its frames.

        Raises:
            ValueError: there is no such stream, the observation has another size, or the store is sealed.
            MemoryError: the store is as it was before.
        """
        given, geometry = _bytes_of(observation), self._geometry
        if not 0 <= stream < geometry.n_streams or len(given) != geometry.observation_bytes:
            raise ValueError(
                f"stream {stream} of {geometry.n_streams}, {len(given)} bytes instead of {geometry.observation_bytes}"
            )
        with self._lock:
            self._refuse_sealed()
            return self._append(stream, geometry.frames(given))

    def append_all(self, observations: Buffer, numbers: Buffer) -> None:
        """Store one observation for every stream, in order, and write their numbers to `numbers`, which is uint32.

        Raises:
            ValueError: there is not one observation and one number for every stream, or the store is sealed.
            MemoryError: the streams before the one that failed have their observation, the others are as before.
        """
        given, found, geometry = _bytes_of(observations), _bytes_of(numbers).view(np.uint32), self._geometry
        if len(given) != geometry.n_streams * geometry.observation_bytes or len(found) != geometry.n_streams:
            raise ValueError("one observation and one uint32 per stream are needed")
        with self._lock:
            self._refuse_sealed()
            for stream, observation in enumerate(given.reshape(geometry.n_streams, -1)):
                found[stream] = self._append(stream, geometry.frames(observation))

    def _append(self, stream: int, frames: Words) -> int:
        recent, length = self._recent[stream], self._lengths[stream]
        if recent is not None and np.array_equal(frames, recent):
            return length - 1
        continues = recent is not None and np.array_equal(frames[:-1], recent[1:])
        fresh = frames[-1:] if continues else frames
        if length + len(fresh) >= BASE:
            raise OSError(errno.EFBIG, "a stream holds at most 2^31 - 1 frames")
        try:
            now = None if recent is None else recent[-1]
            for time, frame in enumerate(fresh, start=length):
                self._add_frame(self._pages[stream], time, now, frame)
                now = frame
        except BaseException:
            self._forget_from(self._pages[stream], length)
            raise
        self._recent[stream] = frames
        self._lengths[stream] = length + len(fresh)
        return self._lengths[stream] - 1

    def _add_frame(self, pages: list[Versions], time: int, now: Words | None, frame: Words) -> None:
        """Give a version to each page whose bytes changed from frame `now` (None: there is none) to `frame`."""
        step = self._geometry.page_words
        changed: Sequence[int] | npt.NDArray[np.intp] = range(len(pages))
        if now is not None:
            changed = np.flatnonzero(np.logical_or.reduceat(now != frame, np.arange(0, len(frame), step)))
        for page in changed:
            part = slice(page * step, (page + 1) * step)
            self._add_version(pages[page], time, None if now is None else now[part], frame[part])

    def _add_version(self, versions: Versions, time: int, old: Words | None, new: Words) -> None:
        """Add the cheapest version that stands for `new`: content seen before, a change, or the bytes themselves."""
        digest = blake2b(new.tobytes(), digest_size=16).digest()
        ref = self._find_literal(digest, new)
        is_constant = bool(np.all(new == new[0]))
        if ref is None and old is not None and not is_constant:
            delta = make_delta(old, new)
            work_bytes = versions.work_bytes + len(delta) + CHANGE_WORK_BYTES
            if len(delta) < new.nbytes - new.nbytes // 8 and work_bytes <= CHAIN_PAGES * new.nbytes:
                versions.refs.append(self._arenas.add(DELTA, delta))
                versions.times.append(time)
                versions.work_bytes = work_bytes
                return
        if ref is None:
            ref = self._arenas.add(*((CONST, new[:1].tobytes()) if is_constant else (RAW, new.tobytes())))
            self._literals[digest] = ref
        versions.refs.append(ref)
        versions.times.append(time | BASE)
        versions.work_bytes = 0

    def _find_literal(self, digest: bytes, page: Words) -> int | None:
        """Return the reference of a standalone record with exactly these bytes; a digest alone proves nothing."""
        ref = self._literals.get(digest)
        if ref is None:
            return None
        kind, payload = self._arenas.get(ref)
        try:
            return ref if np.array_equal(decode(kind, payload, None, len(page)), page) else None
        except ValueError:
            return None  # a page of another length

    def _forget_from(self, pages: list[Versions], length: int) -> None:
        """Drop the versions of frames from number `length` on, after a failure; their records stay behind, unused."""
        for versions in pages:
            while versions.times and versions.times[-1] & ~BASE >= length:
                versions.times.pop()
            del versions.refs[len(versions.times) :]
            versions.work_bytes = CHAIN_PAGES * MAX_PAGE_BYTES  # unknown now: let the next version stand for itself

    def read(self, streams: Buffer, numbers: Buffer, out: Buffer) -> None:
        """Write observation `numbers[i]` of stream `streams[i]` to the i-th place in `out`; both are uint32.

        Raises:
            IndexError: no such observation, or an output of another size.
            OSError: a record cannot be read back.
        """
        gather((self,), np.zeros(_bytes_of(streams).size // 4, np.uint32), streams, numbers, out)

    def _check(self, streams: Words, numbers: Words) -> None:
        """Raise IndexError unless all these observations exist."""
        if np.any(streams >= self._geometry.n_streams):
            raise IndexError("no such stream")
        lengths = np.array(self._lengths, np.int64)
        if np.any(numbers >= lengths[streams]) or np.any(numbers < self._geometry.n_stack - 1):
            raise IndexError("no such observation")

    def _observation(self, stream: int, number: int) -> npt.NDArray[np.uint8]:
        try:
            frames = self._frames(stream, number - self._geometry.n_stack + 1)
        except ValueError as problem:
            raise OSError(errno.EIO, f"a stored record cannot be read back: {problem}") from problem
        return self._geometry.observation(frames)

    def _frames(self, stream: int, first: int) -> Words:
        """Return the frames of the observation that begins with frame `first`, as words [n_stack, frame_words]."""
        geometry = self._geometry
        frames: Words = np.empty((geometry.n_stack, geometry.frame_words), WORD)
        for page, versions in enumerate(self._pages[stream]):
            begin, n_words = page * geometry.page_words, geometry.words_of(page)
            at, words = versions.last_base(first), None
            for time, frame in enumerate(frames, start=first):
                while at < len(versions.times) and versions.times[at] & ~BASE <= time:
                    kind, payload = self._arenas.get(versions.refs[at])
                    words = decode(kind, payload, words, n_words)
                    at += 1
                frame[begin : begin + n_words] = words
        return frames

    def length(self, stream: int) -> int:
        """Return how many frames a stream has.

        Raises:
            IndexError: there is no such stream.
        """
        if not 0 <= stream < self._geometry.n_streams:
            raise IndexError(f"stream {stream} of {self._geometry.n_streams}")
        return self._lengths[stream]

    def nbytes(self) -> dict[str, int]:
        """Return the bytes by purpose: arenas in memory, index, current frames, arenas in the file."""
        with self._lock:
            versions = [versions for pages in self._pages for versions in pages]
            index = sum(sys.getsizeof(each.times) + sys.getsizeof(each.refs) for each in versions)
            literals = sys.getsizeof(self._literals) + sum(map(sys.getsizeof, self._literals))
            return {
                "arenas": self._arenas.resident_bytes(),
                "index": index + literals,
                "current": sum(frames.nbytes for frames in self._recent if frames is not None),
                "spilled": sum(self._arenas.used[: self._arenas.n_spilled]),
            }

    def resident(self) -> int:
        """Return the bytes of arenas in memory."""
        with self._lock:
            return self._arenas.resident_bytes()

    def spill(self, keep_bytes: int) -> None:
        """Move the oldest arenas to the file until at most `keep_bytes` are in memory.

        The one that records are being added to stays; a sealed store has none.

        Raises:
            ValueError: there is no file.
            OSError: the file cannot be written (disk full); nothing has moved.
        """
        if self._fd < 0:
            raise ValueError("this store has no file to spill to")
        with self._lock:
            self._arenas.spill(keep_bytes, n_stay=0 if self._sealed else 1)

    def seal(self) -> None:
        """Give back what only writing needs: from now on the store is only read, spilled and dumped."""
        with self._lock:
            self._sealed = True
            self._recent = [None] * self._geometry.n_streams
            self._literals = {}

    def _refuse_sealed(self) -> None:
        if self._sealed:
            raise ValueError("this store is sealed: it is only read from now on")

    # ---- dumps: all numbers are 32-bit, little-endian ----

    def n_arenas(self) -> int:
        """Return how many arenas there are, in memory and in the file."""
        with self._lock:
            return len(self._arenas.used)

    def dump_arena(self, arena: int) -> bytes:
        """Return the used part of an arena.

        Raises:
            IndexError: there is no such arena.
            OSError: the file cannot be read.
        """
        with self._lock:
            return self._arenas.dump(arena)

    def dump_index(self) -> bytes:
        """Return everything that is not in the arenas: sizes, lengths, and the versions of each page."""
        with self._lock:
            words = [*self._geometry.head, len(self._arenas.used), *self._arenas.used, *self._lengths]
            parts = [np.array(words, WORD).tobytes()]
            for pages in self._pages:
                for versions in pages:
                    table = np.array([versions.times, versions.refs], WORD).T
                    parts += [len(table).to_bytes(4, "little"), table.tobytes()]
            return MAGIC + b"".join(parts)

    def load(self, index: bytes, arenas: Sequence[bytes]) -> None:
        """Take over what another store of the same sizes dumped; appending goes on from there.

        Raises:
            ValueError: this store is not fresh, or anything in the dump does not fit the rest; the store stays fresh.
        """
        with self._lock:
            self._refuse_sealed()
            if self._arenas.used:
                raise ValueError("a dump is loaded into a fresh store only")
            try:
                self._load(index, arenas)
            except BaseException:
                self._start_empty()
                raise

    def _load(self, index: bytes, arenas: Sequence[bytes]) -> None:
        geometry, words = self._geometry, _IndexWords(index)
        if words.take(7) != geometry.head:
            raise ValueError(f"the dump is of a store of other sizes than {geometry}")
        unit, sizes = geometry.unit_bytes, [len(arena) for arena in arenas]
        if words.take(1) != [len(sizes)] or words.take(len(sizes)) != sizes:
            raise ValueError("other arenas than announced")
        if any(size > ARENA_BYTES or size % unit for size in sizes) or len(sizes) * ARENA_BYTES // unit > 1 << 32:
            raise ValueError("arenas that are too large or too many, or end within a record")
        self._arenas = Arenas(unit, self._fd, arenas)
        self._lengths = words.take(geometry.n_streams)
        if any(length != 0 and not geometry.n_stack <= length < BASE for length in self._lengths):
            raise ValueError("a stream that ends within its first observation")
        checked: set[tuple[int, int, int]] = set()
        for pages, length in zip(self._pages, self._lengths, strict=True):
            for page, versions in enumerate(pages):
                versions.times, versions.refs = words.take_versions(length)
                versions.work_bytes = CHAIN_PAGES * MAX_PAGE_BYTES  # unknown: let the next version stand for itself
                self._check_records(versions, geometry.words_of(page), checked)
        words.end()
        for stream, length in enumerate(self._lengths):
            if length:
                self._recent[stream] = self._frames(stream, length - geometry.n_stack)

    def _check_records(self, versions: Versions, n_words: int, checked: set[tuple[int, int, int]]) -> None:
        """Decode each record once, so that none can fail later, and remember the literals.

        Whether a change is well formed does not depend on what it changes: a page of zeros will do.
        """
        zeros: Words = np.zeros(n_words, WORD)
        for flagged, ref in zip(versions.times, versions.refs, strict=True):
            is_base = flagged & BASE
            if (ref, is_base, n_words) in checked:
                continue
            kind, payload = self._arenas.get(ref)
            if bool(is_base) != (kind in STANDALONE):
                raise ValueError(f"a record of kind {kind} in the wrong place")
            page = decode(kind, payload, zeros, n_words)
            if is_base:
                self._literals.setdefault(blake2b(page.tobytes(), digest_size=16).digest(), ref)
            checked.add((ref, is_base, n_words))


def gather(stores: Sequence[Store], which: Buffer, streams: Buffer, numbers: Buffer, out: Buffer) -> None:
    """Write observation `numbers[i]` of stream `streams[i]` of store `which[i]` to the i-th place in `out`.

    Raises:
        IndexError: no such observation, or an output of another size.
        ValueError: the stores differ in their sizes.
        OSError: a record cannot be read back.
    """
    for store, rows, streams_there, numbers_there, places in _by_store(stores, which, streams, numbers, out):
        with store._lock:
            store._check(streams_there, numbers_there)
            for row, stream, number in zip(rows, streams_there.tolist(), numbers_there.tolist(), strict=True):
                places[row] = store._observation(stream, number)


def gather_pairs(
    stores: Sequence[Store],
    which: Buffer,
    streams: Buffer,
    numbers: Buffer,
    nexts: Buffer,
    out: Buffer,
    out_next: Buffer,
) -> None:
    """Write observations `numbers[i]` and `nexts[i]` of stream `streams[i]` of store `which[i]` to two outputs.

    Raises:
        IndexError, ValueError, OSError: as `gather` does.
    """
    gather(stores, which, streams, numbers, out)
    gather(stores, which, streams, nexts, out_next)


def gather_ring(
    stores: Sequence[Store],
    firsts: Buffer,
    count: int,
    n_rows: int,
    n_envs: int,
    numbers: Buffer,
    rows: Buffer,
    envs: Buffer,
    side: int,
    out: Buffer,
    out_next: Buffer,
) -> None:
    """Write rows of a ring, of which `count` were ever written, to `out` and, for side 2, what follows to `out_next`.

    Args:
        firsts: int64, the first row ever that each store holds.
        numbers: uint32 [n_rows, n_envs], each row's number, in its two highest bits the way to the next one's.
        rows, envs: int64, what to read.
        side: 0 the observations, 1 the next observations, 2 both.

    Raises:
        IndexError, ValueError, OSError: as `gather` does.
    """
    wanted, environments, starts = (np.asarray(_bytes_of(column)).view(np.int64) for column in (rows, envs, firsts))
    for asked, limit in ((wanted, n_rows), (environments, n_envs)):
        if ((asked < 0) | (asked >= limit)).any():
            raise IndexError("no such row or environment")
    packed = _bytes_of(numbers).view(np.uint32).reshape(n_rows, n_envs)[wanted, environments]
    position = count % n_rows
    ever = wanted + (count - position) - np.where(wanted >= position, n_rows, 0)
    which = (starts.searchsorted(ever, side="right") - 1).astype(np.uint32)
    streams, here = environments.astype(np.uint32), packed & np.uint32(0x3FFFFFFF)
    n_stack = stores[0]._geometry.n_stack
    after = here + np.array([1, 0, n_stack, n_stack], np.uint32)[packed >> 30]
    if side == 2:
        gather_pairs(stores, which, streams, here, after, out, out_next)
    else:
        gather(stores, which, streams, after if side == 1 else here, out)


def _by_store(
    stores: Sequence[Store], which: Buffer, streams: Buffer, numbers: Buffer, out: Buffer
) -> Iterator[tuple[Store, npt.NDArray[np.intp], Words, Words, npt.NDArray[np.uint8]]]:
    """Yield each store that is asked for, the places of its observations, and what is asked."""
    asked, streams, numbers = (_bytes_of(column).view(np.uint32) for column in (which, streams, numbers))
    places = _bytes_of(out)
    if not len(asked) == len(streams) == len(numbers):
        raise IndexError("columns of different lengths")
    if not stores or np.any(asked >= len(stores)):
        raise IndexError("no such store")
    geometry = stores[0]._geometry
    if any(store._geometry.head[1:] != geometry.head[1:] for store in stores):
        raise ValueError("stores of different sizes")
    if len(places) != len(asked) * geometry.observation_bytes:
        raise IndexError(f"an output of {len(places)} bytes for {len(asked)} x {geometry.observation_bytes}")
    shaped = places.reshape(len(asked), geometry.outer, geometry.n_stack, geometry.frame_bytes // geometry.outer)
    for index, store in enumerate(stores):
        rows = np.flatnonzero(asked == index)
        if len(rows):
            yield store, rows, streams[rows], numbers[rows], shaped


def _bytes_of(buffer: Buffer) -> npt.NDArray[np.uint8]:
    """Return any contiguous buffer as bytes that share its memory.

    Raises:
        ValueError: it is not contiguous.
    """
    view = memoryview(buffer)
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


class _IndexWords:
    """The words of an index, taken one after the other; running out of them is a ValueError."""

    def __init__(self, index: bytes) -> None:
        if index[:4] != MAGIC or len(index) % WORD.itemsize:
            raise ValueError("not an index of lean storage")
        self._words, self._at = np.frombuffer(index, WORD), 1

    def end(self) -> None:
        if self._at != len(self._words):
            raise ValueError("the index goes on after its last page")

    def take(self, count: int) -> list[int]:
        return [int(word) for word in self._take(count)]

    def take_versions(self, length: int) -> tuple[array[int], array[int]]:
        """Return times and references of a page's versions, checked against the stream's length."""
        (count,) = self.take(1)
        table = self._take(2 * count).reshape(count, 2)
        times = table[:, 0] & ~np.uint32(BASE)
        if (count == 0) != (length == 0):
            raise ValueError("a page without versions, or versions of an empty stream")
        if count and (
            times[0] != 0 or not table[0, 0] & BASE or times[-1] >= length or np.any(times[1:] <= times[:-1])
        ):
            raise ValueError("versions that do not begin with frame 0, standing alone, and go on in order")
        return array("I", table[:, 0].tolist()), array("I", table[:, 1].tolist())

    def _take(self, count: int) -> Words:
        if count > len(self._words) - self._at:
            raise ValueError("the index ends too early")
        self._at += count
        return self._words[self._at - count : self._at]
