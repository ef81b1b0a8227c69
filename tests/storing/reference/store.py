"""Lossless lean storage of frames that resemble each other, in NumPy: what `_core.c` does, written to be read.

It is the oracle that the C core is tested against. Both speak one record format, so that what one saved the other
loads.

A Store keeps, for each of several streams (one per environment), a sequence of numbered frames of one size. This file
is what others call: it checks what is asked, one caller at a time. The work is done, from the bottom up, in

    records.py   what stands for a page's bytes, and where it lies
    moves.py     pictures that move
    colours.py   frames of few colours
    geometry.py  how an observation is cut into frames, pages and words
    frames.py    frames as versions of their pages
    dump.py      all of it as bytes, and back
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .dump import dump_index, load_frames
from .frames import Frames
from .geometry import Geometry, chosen_page_bytes
from .records import Arenas, Words

# The two highest bits of a row's number in a ring say which frame its next observation ends with.
NEXT_IS_FOLLOWING, NEXT_IS_SAME, NEXT_IS_A_STACK_LATER = 0, 1, 2
CODE_SHIFT = 30
BLOCK = 4096  # bytes of an arena in a file that have a checksum of their own

Buffer: TypeAlias = Any  # whatever has the buffer protocol; typing.Buffer came with Python 3.12


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
        colours: how those of a frame lie, see `stacks`; frames of few colours take a third then.

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
        eager: bool = False,  # the core's choice of memory pages; nothing here depends on it
        queueing: int = 0,  # 0 never, 1 where it pays, 2 always: whether the core encodes in a thread
        queue_bytes: int = 0,
        colours: int = 0,
        row_bytes: int = 0,  # of a picture: helps the core to find what moved
        quick: bool = False,  # the core writes fewer changes in a row
    ) -> None:
        page_bytes = chosen_page_bytes(frame_bytes, page_bytes, colours)
        self._geometry = Geometry(n_streams, frame_bytes, n_stack, outer, bool(newest_first), page_bytes, colours)
        self._fd = fd
        self._lock = threading.Lock()
        self._sealed = False
        self._frames = Frames(self._geometry, Arenas(self._geometry.unit_bytes, fd))

    def append(self, stream: int, observation: Buffer) -> int:
        """Store an observation and return the number of its newest frame.

        The same bytes as the stream's last observation get the same number again. One that continues it by one frame
        costs that frame; anything else costs all its frames.

        Raises:
            ValueError: there is no such stream, the observation has another size, or the store is sealed.
            OSError: the stream is full, or a spilled record cannot be read; the store is as it was before.
            MemoryError: likewise.
        """
        given, geometry = _bytes_of(observation), self._geometry
        if not 0 <= stream < geometry.n_streams or len(given) != geometry.observation_bytes:
            raise ValueError(
                f"stream {stream} of {geometry.n_streams}, {len(given)} bytes instead of {geometry.observation_bytes}"
            )
        with self._lock:
            self._refuse_sealed()
            return self._frames.append(stream, geometry.frames(given))

    def append_all(self, observations: Buffer, numbers: Buffer) -> None:
        """Store one observation for every stream, in order, and write their numbers to `numbers`, which is uint32.

        Raises:
            ValueError: there is not one observation and one number for every stream, or the store is sealed.
            OSError, MemoryError: the streams before the one that failed have their observation, others are as before.
        """
        given, found, geometry = _bytes_of(observations), _bytes_of(numbers).view(np.uint32), self._geometry
        if len(given) != geometry.n_streams * geometry.observation_bytes or len(found) != geometry.n_streams:
            raise ValueError("one observation and one uint32 per stream are needed")
        with self._lock:
            self._refuse_sealed()
            for stream, observation in enumerate(given.reshape(geometry.n_streams, -1)):
                found[stream] = self._frames.append(stream, geometry.frames(observation))

    def append_pairs(self, observations: Buffer, next_observations: Buffer, numbers: Buffer, row: int) -> None:
        """Store a ring's row: an observation and what follows it for every stream.

        Their places go to `numbers[row]`, which is uint32 [rows, streams] and changes only once all of them are stored:
        the observation's number, and in the two highest bits how far the next one's is from it.

        Raises:
            ValueError: there are not two observations for every stream, no such row, or the store is sealed.
            OSError, MemoryError: as `append_all`.
        """
        n = self._geometry.n_streams
        found = np.empty((2, n), np.uint32)
        places = _bytes_of(numbers).view(np.uint32)
        sides = [_bytes_of(observations), _bytes_of(next_observations)]
        if any(len(side) != n * self._geometry.observation_bytes for side in sides) or not 0 <= row < len(places) // n:
            raise ValueError("two observations per stream and a row of numbers are needed")
        for side, numbers_of in zip(sides, found, strict=True):
            self.append_all(side, numbers_of)
        distance = found[1] - found[0]
        codes = np.where(distance == 1, NEXT_IS_FOLLOWING, np.where(distance == 0, NEXT_IS_SAME, NEXT_IS_A_STACK_LATER))
        places[n * row : n * (row + 1)] = found[0] | codes.astype(np.uint32) << CODE_SHIFT

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
        lengths = np.array(self._frames.lengths, np.int64)
        if np.any(numbers >= lengths[streams]) or np.any(numbers < self._geometry.n_stack - 1):
            raise IndexError("no such observation")

    def _observation(self, stream: int, number: int) -> npt.NDArray[np.uint8]:
        try:
            stack = self._frames.read(stream, number - self._geometry.n_stack + 1)
        except ValueError as problem:
            raise OSError(errno.EIO, f"a stored record cannot be read back: {problem}") from problem
        return self._geometry.observation(stack)

    def length(self, stream: int) -> int:
        """Return how many frames a stream has.

        Raises:
            IndexError: there is no such stream.
        """
        if not 0 <= stream < self._geometry.n_streams:
            raise IndexError(f"stream {stream} of {self._geometry.n_streams}")
        return self._frames.lengths[stream]

    def nbytes(self) -> dict[str, int]:
        """Return the bytes by purpose: arenas in memory, index, current frames, arenas in the file."""
        with self._lock:
            return {
                "arenas": self._frames.arenas.resident_bytes(),
                "index": self._frames.index_bytes(),
                "current": self._frames.recent_bytes(),
                "queue": 0,
                "spilled": self._frames.arenas.spilled_bytes(),
            }

    def resident(self) -> int:
        """Return the bytes of arenas in memory."""
        with self._lock:
            return self._frames.arenas.resident_bytes()

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
            self._frames.arenas.spill(keep_bytes, n_stay=0 if self._sealed else 1)

    def seal(self) -> None:
        """Give back what only writing needs: from now on the store is only read, spilled and dumped."""
        with self._lock:
            self._sealed = True
            self._frames.seal()

    def trim(self) -> None:
        """Give back memory that was taken ahead of time: none is, here."""

    def _refuse_sealed(self) -> None:
        if self._sealed:
            raise ValueError("this store is sealed: it is only read from now on")

    def n_arenas(self) -> int:
        """Return how many arenas there are, in memory and in the file."""
        with self._lock:
            return len(self._frames.arenas.used)

    def dump_arena(self, arena: int) -> bytes:
        """Return the used part of an arena.

        Raises:
            IndexError: there is no such arena.
            OSError: the file cannot be read.
        """
        with self._lock:
            return self._frames.arenas.dump(arena)

    def dump_index(self) -> bytes:
        """Return everything that is not in the arenas: sizes, lengths, and the versions of each page."""
        with self._lock:
            return dump_index(self._frames)

    def load(self, index: bytes, arenas: Sequence[bytes]) -> None:
        """Take over what another store of the same sizes dumped; appending goes on from there.

        Raises:
            ValueError: this store is not fresh, or anything in the dump does not fit the rest; the store stays fresh.
        """
        with self._lock:
            self._refuse_sealed()
            if self._frames.arenas.used:
                raise ValueError("a dump is loaded into a fresh store only")
            self._frames = load_frames(self._geometry, self._fd, index, arenas)


def block_sums(arena: Buffer) -> bytes:
    """Return a uint32 checksum of each 4 KiB, as `hash_bytes` in `_words.h` computes it."""
    data = _bytes_of(arena)
    whole = len(data) // BLOCK * BLOCK
    parts = [data[:whole].reshape(-1, BLOCK), data[whole:].reshape(1, -1)]
    return b"".join(_hashes(part).tobytes() for part in parts if part.size)


def _hashes(rows: npt.NDArray[np.uint8]) -> Words:
    k, size = np.uint64(0x9E3779B97F4A7C15), rows.shape[1]
    lanes = [
        np.full(len(rows), size, np.uint64) * k ^ np.uint64(seed) for seed in (0, 0x1234567, 0x89ABCDEF, 0x13579BDF)
    ]
    in_fours = np.ascontiguousarray(rows[:, : size // 32 * 32]).view(np.uint64).reshape(len(rows), -1, 4)
    for step in range(in_fours.shape[1]):
        for lane, shift in enumerate((29, 31, 33, 27)):
            mixed = (lanes[lane] ^ in_fours[:, step, lane]) * k
            lanes[lane] = mixed ^ mixed >> np.uint64(shift)
    a, b, c, d = lanes
    for word in np.ascontiguousarray(rows[:, size // 32 * 32 : size // 4 * 4]).view(np.uint32).T.astype(np.uint64):
        a = (a ^ word) * k
        a ^= a >> np.uint64(29)
    for lane_of, turn in ((b, 1), (c, 7), (d, 13)):
        a = (a ^ (lane_of << np.uint64(turn) | lane_of >> np.uint64(64 - turn))) * k
        a ^= a >> np.uint64(32)
    return (a >> np.uint64(32)).astype(np.uint32)


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
    wanted, environments, starts = (_bytes_of(column).view(np.int64) for column in (rows, envs, firsts))
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
    written = ever >= 0
    for target, asked in ((out, after if side == 1 else here), (out_next, after))[: 2 if side == 2 else 1]:
        found = np.zeros((len(wanted), stores[0]._geometry.observation_bytes), np.uint8)
        read = np.empty((int(written.sum()), found.shape[1]), np.uint8)
        gather(stores, which[written], streams[written], asked[written], read)
        found[written] = read
        _bytes_of(target)[:] = found.reshape(-1)


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
    if any(store._geometry.cut != geometry.cut for store in stores):
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
