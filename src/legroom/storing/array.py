"""`legroom.LeanArray`: a list of equally shaped arrays in little memory, for a loop of one's own.

Frames go into *segments*, stores of their own for a run of writes. An item is a segment, a stream and a number in it,
so any item may be written again: what it was stays behind in its segment, which is dropped once no item is in it. A
segment ends when it holds an eighth of everything, so that memory stays flat where items are overwritten in a ring;
where they are overwritten in any other order, the items of the emptiest segment are moved as soon as half of what is
stored is of no use.
"""

import errno
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from legroom.errors import BadInput
from legroom.storing.budget import Options, Shelf, enforce, explained, fitting, load_shelf, new_shelf, open_shelf
from legroom.storing.core import Store, block_sums, gather, need_core
from legroom.storing.saving import UNUSABLE, DamagedFile, open_file, read_file, write_file
from legroom.storing.stacks import FrameStack, StackFinder
from legroom.storing.stored_array import StoredArray

PLAIN_UP_TO = 24  # bytes of an item; an index would cost more than it saves
SEGMENTS = 8  # a segment ends once it holds this part of all items
FEWEST = 64  # items of a segment
WORTH_OF_BEGINNING = 64  # times the bytes of its first frame that a segment holds before it may end


@dataclass
class ArraySegment:
    """A run of writes: how many there were, and how many items are still what was written."""

    shelf: Shelf
    written: int = 0
    in_use: int = 0
    first_bytes: int = 0


class LeanArray(StoredArray):
    """A list of arrays of one shape and dtype, each kept exactly, and what repeats only once.

    Made for frames that resemble the ones before: pictures, stacks of pictures, maps, masks. It is indexed as a NumPy
    array `[length, *shape]`, and what it returns is a new array; `frames[i] = frame` writes one item again, as in a
    ring.

    Args:
        shape, dtype: of one item.
        n_streams: sequences that take turns, for example the environments of a vector environment: an item is compared
            with the one before it of the same stream. `extend` deals its items out to the streams in turn.
        max_bytes: stored records beyond this (bytes, or "2GB") go to unlinked files; None: never.
        spill_dir: the directory of those files; None: the system's directory for temporary files.
        codec: "lz4", or "none" to store pages and changes as they are.

    Raises:
        BadInput: a shape or dtype that cannot be stored, or the C core is missing.

    Example:
        >>> import numpy as np
        >>> import legroom
        >>> frames = legroom.LeanArray((84, 84), np.uint8)
        >>> for step in range(1000):
        ...     frame = np.zeros((84, 84), np.uint8)
        ...     frame[step % 84] = 255
        ...     frames.append(frame)
        >>> len(frames), bool(frames[10].sum() == 84 * 255), frames[[3, 7]].shape
        (1000, True, (2, 84, 84))
        >>> frames.nbytes < 1000 * 84 * 84 / 20
        True
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        dtype: npt.DTypeLike,
        *,
        n_streams: int = 1,
        max_bytes: int | str | None = None,
        spill_dir: str | None = None,
        codec: str = "lz4",
    ) -> None:
        need_core()
        self.item_shape = (shape,) if isinstance(shape, int) else tuple(int(size) for size in shape)
        self.dtype, self.n_streams = np.dtype(dtype), n_streams
        if self.dtype.hasobject:
            raise BadInput(f"dtype {self.dtype} holds Python objects", hint="numbers are stored")
        if any(size < 1 for size in self.item_shape) or n_streams < 1:
            raise BadInput(f"items of shape {self.item_shape} in {n_streams} streams", hint="sizes of at least 1")
        self.options = Options(max_bytes, spill_dir, codec)
        self._item_bytes = prod(self.item_shape) * self.dtype.itemsize
        self._is_plain = self._item_bytes <= PLAIN_UP_TO
        self._finder = StackFinder(self.item_shape, self.dtype)
        self._lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        """Forget all items; what was found out about stacks stays known."""
        self._length = 0
        self._plain = np.empty((0, *self.item_shape), self.dtype)
        self._index = np.empty((0, 2), np.uint32)  # of each item: its segment and stream, its number there
        self._segments: list[ArraySegment | None] = []
        self._now = -1  # the segment that is written
        self._known: tuple[tuple[Store, ...], np.ndarray] | None = None
        self._path: Path | None = None  # of the file that is read as needed

    def append(self, item: npt.ArrayLike, stream: int = 0) -> None:
        """Add an item at the end.

        Raises:
            ValueError: it has another shape, or there is no such stream.
            OSError: the disk that records are spilled to is full; nothing has changed.
        """
        self._write(self._length, item, stream)

    def extend(self, items: npt.ArrayLike) -> None:
        """Add items `[k, *shape]`, of streams 0, 1, … in turn."""
        for place, item in enumerate(np.asarray(items, self.dtype)):
            self._write(self._length, item, place % self.n_streams)

    def put(self, index: int, item: npt.ArrayLike, stream: int = 0) -> None:
        """Write an item again, or the one after the last.

        Raises:
            IndexError: there is no such item.
            ValueError, OSError: as `append` does.
        """
        place = index + self._length if index < 0 else index
        if not 0 <= place <= self._length:
            raise IndexError(f"item {index} of {self._length}")
        self._write(place, item, stream)

    def gather(self, indices: npt.ArrayLike, out: np.ndarray) -> np.ndarray:
        """Write the items with these indices to `out`, one after the other, and return it.

        Raises:
            IndexError: there is no such item.
            ValueError: `out` is not a C-contiguous array of this dtype with room for just these items.
        """
        places = self._places(indices)
        if out.dtype != self.dtype or out.size != len(places) * prod(self.item_shape) or not out.flags.c_contiguous:
            raise ValueError(
                f"out is {out.dtype} {out.shape}, not C-contiguous {self.dtype} {(len(places), *self.item_shape)}"
            )
        with self._lock:
            if self._is_plain:
                np.take(self._plain, places, axis=0, out=out.reshape(-1, *self.item_shape), mode="clip")
                return out
            stores, positions = self._stores()
            where, number = np.ascontiguousarray(self._index[places].T)
            if self.n_streams == 1:
                which, streams = where, np.zeros(len(places), np.uint32)
            else:
                which, streams = np.divmod(where, np.uint32(self.n_streams))
            try:
                if len(places):
                    gather(stores, positions[which], streams, number, out)
            except OSError as error:
                raise self._named(error) from error
        return out

    def _named(self, error: OSError) -> OSError:
        """Return an error of reading, with the file and the block where there is one."""
        blocks = [block for store in self._stores()[0] for block in store.damaged()] if self._path else []
        if not blocks:
            return explained(error)
        text = f"the block from byte {blocks[0]:,} on is not as written, or the file was cut after it was opened"
        return OSError(errno.EIO, text, str(self._path))

    n_places, lends = 1, False

    def __getitem__(self, key: Any) -> Any:
        """Return what NumPy's array would, bit for bit, in memory of its own."""
        if isinstance(key, int | np.integer) and not isinstance(key, bool):
            return self.gather([int(key)], np.empty(self.item_shape, self.dtype))
        return super().__getitem__(key)

    def decode(self, *places: np.ndarray) -> np.ndarray:
        """Return the items with these indices."""
        (indices,) = places
        return self.gather(indices, np.empty((len(indices), *self.item_shape), self.dtype))

    def __setitem__(self, index: int, item: npt.ArrayLike) -> None:
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(f"item {index} of {self._length}")
        self._write(place, item, 0 if self._is_plain else int(self._index[place, 0]) % self.n_streams)

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"LeanArray(length {self._length:,}, shape {self.item_shape}, {self.dtype}, {self.nbytes:,} bytes)"

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape of the array this stands for."""
        return (self._length, *self.item_shape)

    @property
    def nbytes(self) -> int:
        """The bytes in memory; what was spilled apart, and what is read from a mapped file."""
        stored = [segment.shelf.store.nbytes() for segment in self._segments if segment is not None]
        return (
            self._plain.nbytes
            + self._index.nbytes
            + sum(each["arenas"] + each["index"] + each["current"] + each["queue"] for each in stored)
        )

    def save(self, path: str | Path) -> None:
        """Write everything to one file without pickle; what was there before stays until the new file is complete."""
        try:
            state = self.__getstate__()
        except OSError as error:
            raise self._named(error) from error
        for segment in state["segments"]:
            segment["sums"] = b"".join(block_sums(arena) for arena in segment["arenas"])
        write_file(Path(path), {"buffer": {"kind": "LeanArray"}, "state": state})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return what `save` wrote, in memory, checking every byte.

        Raises:
            BadInput: the file is missing, truncated, altered, or no array's.
        """
        return cls._from_tree(read_file(Path(path)), path)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Return what `save` wrote, read from the file as it is needed; it cannot be changed.

        The index is read and checked at once, frames when they are asked for: each block of 4 KiB is compared with its
        checksum when it is read, and up to 64 MiB of blocks stay in memory. A block that is not as written, or that is
        gone since the file was cut, raises OSError. Files of legroom 0.2 have no checksums of blocks: all of such a
        file is read and checked when it is opened.

        Raises:
            BadInput: the file is missing, truncated, altered, or no array's; where it is damaged, an OSError too.
        """
        need_core()
        tree = open_file(Path(path), unread="arenas")
        array = cls._from_tree(tree, path)
        array._path = Path(path)
        return array

    @classmethod
    def _from_tree(cls, tree: dict[str, Any], path: str | Path) -> Self:
        if tree.get("buffer") != {"kind": "LeanArray"}:
            raise BadInput("holds no LeanArray", path=path)
        array = cls.__new__(cls)
        try:
            array.__setstate__(tree["state"])
        except BadInput:
            raise
        except OSError as error:
            raise DamagedFile(f"is damaged: {error.strerror}", path=path) from error
        except UNUSABLE as error:
            raise BadInput(f"holds no LeanArray: {error}", path=path) from error
        return array

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            alive = [slot for slot, segment in enumerate(self._segments) if segment is not None]
            index = self._index[: self._length].copy()
            if len(index):  # count segments from 0 on
                index[:, 0] = np.searchsorted(alive, index[:, 0] // self.n_streams) * self.n_streams + (
                    index[:, 0] % self.n_streams
                )
            return {
                "shape": self.item_shape, "dtype": self.dtype.str, "n_streams": self.n_streams,
                "options": {"max_bytes": self.options.max_bytes, "spill_dir": self.options.spill_dir,
                            "codec": self.options.codec},
                "decided": self._finder.stack is not None, "stack": self._finder.found.as_state(),
                "length": self._length, "plain": self._plain[: self._length], "index": index,
                "segments": [{"written": each.written, "in_use": each.in_use, "first_bytes": each.first_bytes,
                              **each.shelf.dump()} for each in self._segments if each is not None],
            }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        options = dict(state["options"])
        if not Path(options["spill_dir"] or "").is_dir():  # another machine's
            options["spill_dir"] = None
        self.__init__(state["shape"], state["dtype"], n_streams=state["n_streams"], **options)  # type: ignore[misc]
        length, stack = int(state["length"]), FrameStack(*state["stack"])
        self._finder.recall(stack, state["decided"])
        n_index = 0 if self._is_plain else length
        self._plain = fitting(state["plain"], (length - n_index, *self.item_shape), self.dtype)
        self._index = fitting(state["index"], (n_index, 2), np.dtype(np.uint32))
        for dump in state["segments"]:
            is_open = dump["arenas"] and not isinstance(dump["arenas"][0], bytes)
            if is_open and "sums" not in dump:
                dump["sums"] = b"".join(block_sums(part.read()) for part in dump["arenas"])
            shelf = (open_shelf if is_open else load_shelf)(dump, self.options, self.n_streams, self._item_bytes, stack)
            written, in_use = int(dump["written"]), int(dump["in_use"])
            self._segments.append(ArraySegment(shelf, written, in_use, int(dump["first_bytes"])))
        for segment in self._segments[:-1]:
            assert segment is not None
            segment.shelf.store.seal()
        if n_index and int(self._index[:, 0].max()) >= len(self._segments) * self.n_streams:
            raise ValueError("an item of a segment that is not there")
        self._length, self._now = length, len(self._segments) - 1

    def _places(self, index: Any) -> np.ndarray:
        """Return item numbers, each from 0 on."""
        asked = np.asarray(index)
        if asked.dtype == bool and asked.shape == (self._length,):
            return np.flatnonzero(asked)
        if asked.ndim != 1 or (asked.size and asked.dtype.kind not in "iu"):
            raise IndexError("items are gathered by a list of integers or a mask of all of them")
        places = asked.astype(np.int64)
        places[places < 0] += self._length
        if places.size and not 0 <= places.min() <= places.max() < self._length:
            raise IndexError(f"items {asked.min()} to {asked.max()} of {self._length}")
        return places

    def _write(self, place: int, item: npt.ArrayLike, stream: int) -> None:
        frame = np.ascontiguousarray(item, self.dtype)
        if frame.shape != self.item_shape and not (self.item_shape == () and frame.size == 1):
            raise ValueError(f"an item of shape {frame.shape}, not {self.item_shape}")
        if self._path is not None:
            raise ValueError("this array is read from a file and cannot be changed: use LeanArray.load")
        with self._lock:
            if self._is_plain:
                self._plain = _grown(self._plain, place)
                self._plain[place] = frame.reshape(self.item_shape)
                self._length = max(self._length, place + 1)
                return
            if self.options.spills:
                enforce(self.options, (each.shelf for each in self._segments if each is not None))
            if self._finder.stack is None and stream == 0:
                before = self._finder.found
                self._finder.look(frame[None])
                if self._finder.found != before:
                    self._cut_anew()
            self._store(place, frame, stream)
            self._length = max(self._length, place + 1)

    def _store(self, place: int, frame: np.ndarray, stream: int) -> None:
        segment = self._segments[self._now] if self._now >= 0 else None
        if segment is None or self._may_end(segment):
            segment = self._next_segment()
        self._store_in(segment, place, frame, stream)

    def _store_in(self, segment: ArraySegment, place: int, frame: np.ndarray, stream: int) -> None:
        number = segment.shelf.store.append(stream, frame)
        if not segment.written:
            segment.first_bytes = segment.shelf.store.resident()
        if place < self._length:
            self._let_go(int(self._index[place, 0]) // self.n_streams)
        self._index = _grown(self._index, place)
        self._index[place] = self._now * self.n_streams + stream, number
        segment.written += 1
        segment.in_use += 1

    def _let_go(self, slot: int) -> None:
        """Note that an item is no longer in a segment."""
        segment = self._segments[slot]
        assert segment is not None
        segment.in_use -= 1
        if not segment.in_use and slot != self._now:
            self._segments[slot] = self._known = None

    def _may_end(self, segment: ArraySegment) -> bool:
        if self._finder.stack is None or segment.written % FEWEST or not segment.written:
            return False
        if segment.written < self._length // SEGMENTS:
            return False
        overwritten = segment.in_use < segment.written or self._written() > self._length
        return overwritten or segment.shelf.store.resident() >= WORTH_OF_BEGINNING * segment.first_bytes

    def _written(self) -> int:
        return sum(each.written for each in self._segments if each is not None)

    def _next_segment(self) -> ArraySegment:
        if self._now >= 0 and (last := self._segments[self._now]) is not None:
            last.shelf.store.seal()
        segment = self._new_segment()
        while self._written() > 2 * self._length + FEWEST:  # overwritten in no order: move what is left of one
            slot = min(
                (each.in_use / each.written, slot)
                for slot, each in enumerate(self._segments)
                if each is not None and each is not segment
            )[1]
            for place in np.flatnonzero(self._index[: self._length, 0] // self.n_streams == slot):
                frame, stream = self[int(place)], int(self._index[place, 0]) % self.n_streams
                self._store_in(segment, int(place), frame, stream)
            self._segments[slot] = self._known = None
        return segment

    def _new_segment(self) -> ArraySegment:
        made_of = (self.options, self.n_streams, self._item_bytes, self._finder.found)
        segment = ArraySegment(new_shelf(*made_of, plain_bytes=self._length * self._item_bytes, quick=True))
        if self._now >= 0 and (last := self._segments[self._now]) is not None and not last.in_use:
            self._segments[self._now] = None
        free = [slot for slot, each in enumerate(self._segments) if each is None]
        self._now = free[0] if free else len(self._segments)
        self._segments[self._now : self._now + 1] = [segment]
        self._known = None
        return segment

    def _cut_anew(self) -> None:
        """Store the few items written so far again, now that their frames are known."""
        frames, streams = self[:], self._index[: self._length, 0] % self.n_streams
        length, self._length = self._length, 0
        self._segments, self._now, self._known = [], -1, None
        for place in range(length):
            self._store(place, frames[place], int(streams[place]))
        self._length = length

    def _stores(self) -> tuple[tuple[Store, ...], np.ndarray]:
        """Return the stores, and of each segment its store's place among them."""
        if self._known is None:
            stores = tuple(each.shelf.store for each in self._segments if each is not None)
            alive = np.array([each is not None for each in self._segments], bool)
            self._known = stores, (np.cumsum(alive) - 1).astype(np.uint32)
        return self._known


def _grown(array: np.ndarray, place: int) -> np.ndarray:
    """Return the array with room for `place`."""
    if place < len(array):
        return array
    grown = np.zeros((max(16, place + 1, len(array) + len(array) // 2), *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown
