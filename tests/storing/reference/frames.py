"""Frames of several streams as versions of their pages: how they are written, and how they are read back.

A page gets a new *version* only when its bytes change. Versions that stand for themselves are shared by all pages with
the same content, in any stream, at any time; the others change the version before them. Frame t of a page is its last
version not after t: the last one before it that stands for itself, and the changes since.

Nothing here locks, and arguments are taken as they are: `Store` in store.py does and checks that.
"""

from __future__ import annotations

import errno
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from .colours import Palette, painted
from .geometry import Geometry
from .records import (
    CONST,
    DELTA,
    MAX_PAGE_BYTES,
    RAW,
    WORD,
    Arenas,
    Words,
    decode,
    make_delta,
)

BASE = 0x8000_0000  # flag in a version's time: it needs no earlier version
CHAIN_PAGES = 2  # pages' worth of work that applying changes may cost before a page is written anew
CHANGE_WORK_BYTES = 48  # what applying one change costs in Python beside its bytes; keeps chains short
UNKNOWN_WORK_BYTES = CHAIN_PAGES * MAX_PAGE_BYTES  # makes the next version stand for itself


@dataclass
class Versions:
    """The versions of one page of one stream, in order of time."""

    times: array[int] = field(default_factory=lambda: array("I"))  # the first frame of each, BASE set if standalone
    refs: array[int] = field(default_factory=lambda: array("I"))
    work_bytes: int = 0  # what applying the changes since the last standalone version costs

    def add(self, flagged_time: int, ref: int, work_bytes: int) -> None:
        self.refs.append(ref)
        self.times.append(flagged_time)
        self.work_bytes = work_bytes

    def last_base(self, time: int) -> int:
        """Return the index of the last standalone version not after `time`."""
        at = bisect_right(self.times, time, key=lambda flagged: flagged & ~BASE) - 1
        while not self.times[at] & BASE:
            at -= 1
        return at

    def forget_from(self, time: int) -> None:
        """Drop the versions of frames from number `time` on; their records stay behind, unused."""
        while self.times and self.times[-1] & ~BASE >= time:
            self.times.pop()
        del self.refs[len(self.times) :]
        self.work_bytes = UNKNOWN_WORK_BYTES


class Frames:
    """The frames of all streams, numbered in each, and the records that their pages' versions point to."""

    def __init__(self, geometry: Geometry, arenas: Arenas) -> None:
        n_streams, n_pages = geometry.n_streams, geometry.n_pages
        self.geometry, self.arenas = geometry, arenas
        self.pages = [[Versions() for _ in range(n_pages)] for _ in range(n_streams)]
        self.lengths = [0] * n_streams
        self.recent: list[Words | None] = [None] * n_streams  # the frames of each stream's last observation
        self.kept: list[Words | None] = [None] * n_streams  # the newest of them, as pages hold it
        self.palettes = [Palette(geometry.colours) for _ in range(n_streams)]
        self._literals: dict[bytes, int] = {}  # digest of a page's bytes -> reference of its standalone record

    def append(self, stream: int, stack: Words) -> int:
        """Store the frames of an observation, [n_stack, frame_words], and return the number of the newest.

        Raises:
            OSError: the stream is full, or a spilled record cannot be read; the frames are as they were before.
            MemoryError: likewise.
        """
        recent, length = self.recent[stream], self.lengths[stream]
        if recent is not None and np.array_equal(stack, recent):
            return length - 1
        continues = recent is not None and np.array_equal(stack[:-1], recent[1:])
        fresh = stack[-1:] if continues else stack
        if length + len(fresh) >= BASE:
            raise OSError(errno.EFBIG, "a stream holds at most 2^31 - 1 frames")
        try:
            now = self.kept[stream]
            for time, frame in enumerate(fresh, start=length):
                kept = self._coded(stream, frame, now)
                self._add_frame(self.pages[stream], time, now, kept)
                now = kept
        except BaseException:
            for versions in self.pages[stream]:
                versions.forget_from(length)
            raise
        self.recent[stream], self.kept[stream] = stack, now
        self.lengths[stream] = length + len(fresh)
        return self.lengths[stream] - 1

    def _coded(self, stream: int, frame: Words, before: Words | None) -> Words:
        """Return a frame as pages hold it."""
        if not self.geometry.colours:
            return frame
        shown = frame.view(np.uint8)[: self.geometry.frame_bytes]
        return self.palettes[stream].code(shown, before, self.geometry.kept_words)

    def _add_frame(self, pages: list[Versions], time: int, now: Words | None, frame: Words) -> None:
        """Give a version to each page whose bytes changed from frame `now` (None: there is none) to `frame`."""
        step = self.geometry.page_words
        changed: Sequence[int] | npt.NDArray[np.intp] = range(len(pages))
        if now is not None:
            changed = np.flatnonzero(np.logical_or.reduceat(now != frame, np.arange(0, len(frame), step)))
        for page in changed:
            part = slice(page * step, page * step + self.geometry.words_of(page))
            self._add_version(pages[page], time, None if now is None else now[part], frame[part])

    def _add_version(self, versions: Versions, time: int, old: Words | None, new: Words) -> None:
        """Add the cheapest version that stands for `new`: content seen before, a change, or the bytes themselves."""
        digest = _digest(new)
        ref = self._find_literal(digest, new)
        is_constant = bool(np.all(new == new[0]))
        if ref is None and old is not None and not is_constant:
            delta = make_delta(old, new)
            work_bytes = versions.work_bytes + len(delta) + CHANGE_WORK_BYTES
            if len(delta) < new.nbytes - new.nbytes // 8 and work_bytes <= CHAIN_PAGES * new.nbytes:
                versions.add(time, self.arenas.add(DELTA, delta), work_bytes)
                return
        if ref is None:
            ref = self.arenas.add(*((CONST, new[:1].tobytes()) if is_constant else (RAW, new.tobytes())))
            self._literals[digest] = ref
        versions.add(time | BASE, ref, work_bytes=0)

    def _find_literal(self, digest: bytes, page: Words) -> int | None:
        """Return the reference of a standalone record with exactly these bytes; a digest alone proves nothing."""
        ref = self._literals.get(digest)
        if ref is None:
            return None
        record = self.arenas.get(ref)
        try:
            return ref if np.array_equal(decode(*record, None, len(page)), page) else None
        except ValueError:
            return None  # a page of another length

    def remember_literal(self, page: Words, ref: int) -> None:
        """Let later pages with these bytes share the standalone record at `ref`, unless they share one already."""
        self._literals.setdefault(_digest(page), ref)

    def seal(self) -> None:
        """Give back what only `append` needs, which must not be called any more."""
        self.recent = [None] * self.geometry.n_streams
        self.kept = [None] * self.geometry.n_streams
        self._literals = {}

    def read(self, stream: int, first: int) -> Words:
        """Return the frames of the observation that begins with frame `first`, as words [n_stack, frame_words].

        Raises:
            ValueError: a record is malformed.
            OSError: the file of spilled arenas cannot be read.
        """
        geometry, kept = self.geometry, self.read_kept(stream, first)
        if not geometry.colours:
            return kept
        stack: Words = np.zeros((geometry.n_stack, geometry.frame_words), WORD)
        for frame, held in zip(stack.view(np.uint8), kept, strict=True):
            frame[: geometry.frame_bytes] = painted(held, geometry.colours, geometry.frame_bytes)
        return stack

    def read_kept(self, stream: int, first: int) -> Words:
        """Return the same as pages hold it."""
        geometry = self.geometry
        stack: Words = np.zeros((geometry.n_stack, geometry.kept_words), WORD)
        for page, versions in enumerate(self.pages[stream]):
            begin, n_words = page * geometry.page_words, geometry.words_of(page)
            at, words = versions.last_base(first), None
            for time, frame in enumerate(stack, start=first):
                while at < len(versions.times) and versions.times[at] & ~BASE <= time:
                    words = decode(*self.arenas.get(versions.refs[at]), words, n_words)
                    at += 1
                frame[begin : begin + n_words] = words
        return stack

    def index_bytes(self) -> int:
        """Return the bytes of what points to records: versions, and literals by their digest."""
        versions = (versions for pages in self.pages for versions in pages)
        tables = sum(sys.getsizeof(each.times) + sys.getsizeof(each.refs) for each in versions)
        return tables + sys.getsizeof(self._literals) + sum(map(sys.getsizeof, self._literals))

    def recent_bytes(self) -> int:
        return sum(stack.nbytes for stack in self.recent if stack is not None)


def _digest(page: Words) -> bytes:
    return blake2b(page.tobytes(), digest_size=16).digest()
