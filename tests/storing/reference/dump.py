"""The index of a store as bytes, and back: what the C core and the NumPy reference exchange beside plain arenas.

All numbers are 32-bit, little-endian, after four bytes of MAGIC: the sizes of the store, how many arenas there are and
the used bytes of each, the length of each stream; then for each page of each stream how many versions it has, and of
each its time and its record's reference.

A dump may come from anywhere, so everything in it is checked before the first observation is read from it, down to
every record: what is loaded can be read, in a time that its size accounts for. Mirrors _dump.h, and refuses exactly
what that refuses.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from .frames import BASE, UNKNOWN_WORK_BYTES, Frames, Versions
from .geometry import Geometry
from .records import STANDALONE, WORD, Arenas, Words, decode

MAGIC, OLD_MAGIC = b"LRS2", b"LRS1"  # the old one knows no NARROW records


def dump_index(frames: Frames) -> bytes:
    """Return everything that is not in the arenas: sizes, lengths, and the versions of each page."""
    used = frames.arenas.used
    parts = [MAGIC, np.array([*frames.geometry.head, len(used), *used, *frames.lengths], WORD).tobytes()]
    for pages in frames.pages:
        for versions in pages:
            table = np.array([versions.times, versions.refs], WORD).T
            parts += [len(table).to_bytes(4, "little"), table.tobytes()]
    return b"".join(parts)


def load_frames(geometry: Geometry, fd: int, index: bytes, arenas: Sequence[bytes]) -> Frames:
    """Return the frames that a store of these sizes dumped; appending goes on from there.

    Raises:
        ValueError: anything in the dump does not fit the rest.
    """
    words, sizes = _IndexWords(index), [len(arena) for arena in arenas]
    if words.take(len(geometry.head)) != geometry.head:
        raise ValueError(f"the dump is of a store of other sizes than {geometry}")
    if words.take(1) != [len(sizes)] or words.take(len(sizes)) != sizes:
        raise ValueError("other arenas than announced")
    frames = Frames(geometry, Arenas(geometry.unit_bytes, fd, arenas))
    frames.lengths = words.take(geometry.n_streams)
    if any(length != 0 and not geometry.n_stack <= length < BASE for length in frames.lengths):
        raise ValueError("a stream that ends within its first observation")
    refs, checked = _all_records(frames.arenas, geometry.page_bytes), set[tuple[int, bool, int]]()
    for pages, length in zip(frames.pages, frames.lengths, strict=True):
        for page in range(geometry.n_pages):
            pages[page] = words.take_versions(length)
            _check_records(frames, pages[page], geometry.words_of(page), refs, checked)
    words.end()
    for stream, length in enumerate(frames.lengths):
        if length:  # cut to what is shown: padding may be anything in a dump
            shown = geometry.observation(frames.read(stream, length - geometry.n_stack))
            recent = frames.recent[stream] = geometry.frames(shown)
            held = frames.read_kept(stream, length - geometry.n_stack) if geometry.colours else recent
            frames.kept[stream] = held[-1]
    return frames


def _all_records(arenas: Arenas, page_bytes: int) -> set[int]:
    """Return the references of all records, used or not.

    Raises:
        ValueError: something in the arenas is no record, or one that no store writes.
    """
    refs = set()
    for ref, kind, size in arenas.records():
        if size > page_bytes:
            raise ValueError(f"a record of kind {kind} and {size} bytes where pages have {page_bytes}")
        refs.add(ref)
    return refs


def _most_changes(n_words: int) -> int:
    """Return a number of changes in a row that no store exceeds.

    Each counts more than CHANGE_WORK_BYTES towards CHAIN_PAGES pages here, and at least a quarter of a page or ten
    times as many bytes in the C core.
    """
    return 16 + WORD.itemsize * n_words // 16


def _check_records(
    frames: Frames, versions: Versions, n_words: int, refs: set[int], checked: set[tuple[int, bool, int]]
) -> None:
    """Decode each record once, so that none can fail later, and remember the literals.

    Whether a change is well formed does not depend on what it changes: a page of zeros will do.

    Raises:
        ValueError: a record is malformed, or stands alone where it should not, or the reverse; or so many changes
            follow each other that reading the last would take long.
    """
    zeros: Words = np.zeros(n_words, WORD)
    n_changes = 0
    for flagged, ref in zip(versions.times, versions.refs, strict=True):
        is_base = bool(flagged & BASE)
        n_changes = 0 if is_base else n_changes + 1
        if n_changes > _most_changes(n_words):
            raise ValueError(f"{n_changes} changes in a row")
        if (ref, is_base, n_words) in checked:
            continue
        if ref not in refs:
            raise ValueError(f"no record begins at {ref}")
        kind, payload = frames.arenas.get(ref)
        if is_base != (kind in STANDALONE):
            raise ValueError(f"a record of kind {kind} in the wrong place")
        page = decode(kind, payload, zeros, n_words)
        if is_base:
            frames.remember_literal(page, ref)
        checked.add((ref, is_base, n_words))


class _IndexWords:
    """The words of an index, taken one after the other; running out of them is a ValueError."""

    def __init__(self, index: bytes) -> None:
        if index[: len(MAGIC)] not in (MAGIC, OLD_MAGIC) or len(index) % WORD.itemsize:
            raise ValueError("not an index of lean storage")
        self._words, self._at = np.frombuffer(index, WORD), 1

    def end(self) -> None:
        if self._at != len(self._words):
            raise ValueError("the index goes on after its last page")

    def take(self, count: int) -> list[int]:
        return [int(word) for word in self._take(count)]

    def take_versions(self, length: int) -> Versions:
        """Return the versions of a page, their times checked against the stream's length."""
        (count,) = self.take(1)
        table = self._take(2 * count).reshape(count, 2)
        times = table[:, 0] & ~np.uint32(BASE)
        if (count == 0) != (length == 0):
            raise ValueError("a page without versions, or versions of an empty stream")
        if count and (
            times[0] != 0 or not table[0, 0] & BASE or times[-1] >= length or np.any(times[1:] <= times[:-1])
        ):
            raise ValueError("versions that do not begin with frame 0, standing alone, and go on in order")
        return Versions(array("I", table[:, 0].tolist()), array("I", table[:, 1].tolist()), UNKNOWN_WORK_BYTES)

    def _take(self, count: int) -> Words:
        if count > len(self._words) - self._at:
            raise ValueError("the index ends too early")
        self._at += count
        return self._words[self._at - count : self._at]
