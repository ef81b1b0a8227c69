"""Records of lean storage: what stands for a page's bytes, and the arenas that hold it.

    RAW    the page's bytes
    LZ4    the same, as an LZ4 block                       (read here, written only by the C core)
    CONST  one 32-bit word, repeated
    DELTA  the words that differ from the page's previous version
    BYTES  the same byte by byte                           (likewise)
    NARROW small numbers in few bits each                  (likewise)
    MOVE   the page's previous version moved, and what does not follow from that          (likewise)
    PATCH  an LZ4 block whose dictionary is the page's previous version    (read here, written only by the C core)

Everything compares raw 32-bit words, so that NaN and -0.0 are safe and one way serves every dtype. Records lie in
arenas, blocks of at most 1 MiB: few large blocks, because an object per page costs several times its payload in a
fragmented heap. A record may come from a file that anyone wrote: none can lead out of its page or its arena.

Mirrors _words.h, _lz4.h and the arenas of _records.h.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .moves import apply_move

Words: TypeAlias = npt.NDArray[np.uint32]

WORD = np.dtype("<u4")
MAX_PAGE_BYTES = 32768  # a delta's run of words must fit into 15 bits
ARENA_BYTES = 1 << 20
MAX_UNITS = (1 << 32) - 2  # a reference has 32 bits, all of them set mean none to the C core
MEMORY_PAGE_BYTES = 4096

RAW, LZ4, CONST, DELTA, PATCH, NARROW, BYTES, MOVE = range(8)
STANDALONE = (RAW, LZ4, CONST, NARROW)
WIDTHS = ((1, 1), (1, 2), (1, 4), (4, 8), (4, 16), (8, 8), (8, 16), (8, 32))  # bytes of a number, bits kept of it
CHANNELS = 0x80  # added to their number, where bytes of several channels take turns
FILL = 0x8000  # flag in a delta's run: one word follows, to be repeated
MIN_FILL_WORDS = 4  # shorter runs of one value cost less as part of a literal run


# ---- a page's bytes, whole or as changes ----


def decode(kind: int, payload: bytes, before: Words | None, n_words: int) -> Words:
    """Return the page of `n_words` words that a record stands for.

    Args:
        before: the page's previous version, which DELTA, BYTES, MOVE and PATCH change; it is left as it is.

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
    if kind == BYTES and before is not None:
        return apply_bytes(before, payload)
    if kind == MOVE and before is not None:
        return apply_move(before.view(np.uint8), payload).view(WORD)
    if kind == PATCH and before is not None:
        return np.frombuffer(unpack_lz4(payload, WORD.itemsize * n_words, before.tobytes()), WORD)
    if kind == NARROW:
        return unpack_narrow(payload, WORD.itemsize * n_words).view(WORD)
    raise ValueError(f"a record of kind {kind} and {len(payload)} bytes does not belong here")


def unpack_narrow(payload: bytes, n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return the `n_bytes` bytes whose numbers were kept in few bits each.

    Raises:
        ValueError: the record is malformed.
    """
    head, kept = payload[: WORD.itemsize], np.frombuffer(payload[WORD.itemsize :], np.uint8)
    unit, bits = (head[0], head[1] | head[2] << 8) if len(head) == WORD.itemsize and not head[3] else (0, 0)
    if unit > CHANNELS:
        return _unpack_channels(kept, [bits >> 4 * channel & 15 for channel in range(4)], unit - CHANNELS, n_bytes)
    if (unit, bits) not in WIDTHS or n_bytes % unit:
        raise ValueError(f"numbers of {unit} bytes in {bits} bits")
    count = n_bytes // unit
    if len(kept) != -(-count * bits // 8):
        raise ValueError("numbers in few bits, of another size")
    if bits >= 8:
        return kept.view(f"<u{bits // 8}").astype(f"<u{unit}").view(np.uint8)
    each = np.arange(0, 8, bits, dtype=np.uint8)
    return (kept[:, None] >> each & np.uint8((1 << bits) - 1)).reshape(-1)[:count].copy()


def _unpack_channels(
    kept: npt.NDArray[np.uint8], bits: list[int], n_channels: int, n_bytes: int
) -> npt.NDArray[np.uint8]:
    """Return `n_bytes` bytes of channels that take turns, of each of which so many bits were kept."""
    cycle = np.resize(bits[:n_channels], 24)
    if n_channels not in (3, 4) or any(bits[n_channels:]) or cycle.max() > 8 or cycle.reshape(3, 8).sum(1).max() > 56:
        raise ValueError(f"{n_channels} channels in {bits} bits")
    is_kept = np.arange(8) < np.resize(bits[:n_channels], n_bytes)[:, None]
    if len(kept) != -(-int(is_kept.sum()) // 8):
        raise ValueError("channels in few bits, of another size")
    spread = np.zeros((n_bytes, 8), np.uint8)
    spread[is_kept] = np.unpackbits(kept, count=int(is_kept.sum()), bitorder="little")
    return np.packbits(spread, axis=1, bitorder="little").reshape(-1)


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
        if here + 1 == len(words):
            raise ValueError("a delta that ends with a token, without a word")
        token = int(words[here])
        first, run = reached + (token & 0xFFFF), token >> 16
        n_words = 1 if run & FILL else run
        run &= ~FILL
        reached, here = first + run, here + 1 + n_words
        if reached > len(after) or here > len(words):
            raise ValueError("a delta that leads out of its page or record")
        after[first:reached] = words[here - n_words : here]
    return after


def apply_bytes(before: Words, payload: bytes) -> Words:
    """Return the page `before` with the changes of a BYTES record: how many bytes to skip, how many follow, and those.

    Raises:
        ValueError: they lead out of the page or out of the record.
    """
    after, here, reached = before.copy(), 0, 0
    page = after.view(np.uint8)
    while here < len(payload):
        skipped, here = _number(payload, here)
        run, here = _number(payload, here)
        first, reached = reached + skipped, reached + skipped + run
        if reached > len(page) or here + run > len(payload):
            raise ValueError("changed bytes that lead out of their page or record")
        page[first:reached] = np.frombuffer(payload, np.uint8, run, here)
        here += run
    return after


def _number(payload: bytes, here: int) -> tuple[int, int]:
    """Return a number of up to three bytes, 7 bits in each, the last one below 128, and where the record goes on."""
    value = 0
    for place, byte in enumerate(payload[here : here + 3]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, here + place + 1
    raise ValueError("a number that does not end")


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
            start = len(out) - offset
            source = out[start : start + n_match]  # a match may run on into what it writes: the source repeats
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


# ---- where records lie ----


class Arenas:
    """Records one after the other in blocks of at most 1 MiB, the oldest of which may have moved to a file.

    A reference counts units of `unit` bytes from the start of the first arena; every arena spans 1 MiB of addresses,
    filled or not, and arena i lies at i MiB of the file. A record's header is its kind and, from bit 3, its size.

    Args:
        fd: an open file to spill to, or -1.
        blocks: the used parts of arenas to begin with.

    Raises:
        ValueError: blocks that no arenas can have been.
    """

    def __init__(self, unit: int, fd: int, blocks: Sequence[bytes] = ()) -> None:
        self.unit, self.fd = unit, fd
        if any(len(block) > ARENA_BYTES or len(block) % unit for block in blocks) or not self._can_be(len(blocks)):
            raise ValueError("arenas that are too large or too many, or end within a record")
        self.blocks = [bytearray(block) for block in blocks]  # empty once it is in the file
        self.used = [len(block) for block in self.blocks]
        self.n_spilled = 0

    def _can_be(self, n_arenas: int) -> bool:
        """Return whether 32-bit references reach everything in so many arenas."""
        return n_arenas * ARENA_BYTES // self.unit <= MAX_UNITS

    def add(self, kind: int, payload: bytes) -> int:
        """Append a record and return its reference.

        Raises:
            MemoryError: also when references have run out.
        """
        record = (kind | len(payload) << 3).to_bytes(4, "little") + payload
        record += bytes(-len(record) % self.unit)
        if not self.blocks or self.used[-1] + len(record) > ARENA_BYTES:
            if not self._can_be(len(self.blocks) + 1):
                raise MemoryError("no reference left for another arena")
            self.blocks.append(bytearray())
            self.used.append(0)
        offset = self.used[-1]
        self.blocks[-1] += record
        self.used[-1] += len(record)
        return ((len(self.blocks) - 1) * ARENA_BYTES + offset) // self.unit

    def records(self) -> Iterator[tuple[int, int, int]]:
        """Yield reference, kind and size of each record, in order.

        Raises:
            ValueError: an arena is anything but whole records, one after the other.
            OSError: the file cannot be read.
        """
        for arena, used in enumerate(self.used):
            offset = 0
            while offset < used:
                ref = (arena * ARENA_BYTES + offset) // self.unit
                kind, payload = self.get(ref)
                yield ref, kind, len(payload)
                offset += -(-(4 + len(payload)) // self.unit) * self.unit

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
        """Return the used part of an arena, wherever it is.

        Raises:
            IndexError: there is no such arena.
            OSError: the file cannot be read.
        """
        if not 0 <= arena < len(self.used):
            raise IndexError(f"arena {arena} of {len(self.used)}")
        return self._slice(arena, 0, self.used[arena])

    def resident_bytes(self) -> int:
        return sum(map(_in_memory_pages, self.used[self.n_spilled :]))

    def spilled_bytes(self) -> int:
        return sum(self.used[: self.n_spilled])

    def spill(self, keep_bytes: int, n_stay: int) -> None:
        """Move the oldest arenas to the file until at most `keep_bytes` are in memory; the newest `n_stay` never move.

        Raises:
            OSError: some arena could not be written; all are still in memory.
        """
        until, left = self.n_spilled, self.resident_bytes()
        while left > keep_bytes and until < len(self.blocks) - n_stay:
            self._write(until)
            left -= _in_memory_pages(self.used[until])
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


def _in_memory_pages(n_bytes: int) -> int:
    """Return the bytes of the whole memory pages that so many bytes take."""
    return -(-n_bytes // MEMORY_PAGE_BYTES) * MEMORY_PAGE_BYTES
