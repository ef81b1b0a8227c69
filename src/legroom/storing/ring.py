"""Observations and next observations of a replay buffer, as a ring of time segments in little memory.

`next_observations[row]` mostly is `observations[row + 1]`: both go into one stream of frames, where the store finds out
byte for byte that nothing new came. At an episode's end the terminal observation is one more frame of the stream.

Rows are written in the order of the ring. A *segment* is a store of its own for a run of rows, dropped whole once the
ring has passed over all of them, so that memory stays flat. A segment ends when beginning anew costs little beside what
it holds, and at an eighth of the ring at the latest.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from legroom.storing.budget import LARGE, Shelf, explained, fitting, load_shelf, new_shelf
from legroom.storing.column import Observations
from legroom.storing.core import Store, gather_ring
from legroom.storing.outputs import Decoded
from legroom.storing.stacks import FrameStack
from legroom.storing.stored_array import StoredArray, owned

PLAIN_UP_TO = 24  # bytes of an observation; storing it twice costs no more than an index would
MOST_SEGMENTS = 48
MOST_SEGMENTS_WITH_FILES = 32  # each has a file open
FEWEST_SEGMENTS = 8
WORTH_OF_BEGINNING = 32  # times the bytes of its first row that a segment holds before it may end
LOOKS = 256  # times per round of the ring that a segment may end: looking at its size waits for the encoder
BOTH = 2  # observations and next observations at once


@dataclass
class RingSegment:
    """A run of rows, counted from the buffer's first row ever, and where they are stored."""

    first: int
    shelf: Shelf
    first_row_bytes: int = 0


class Ring(Observations):
    """Pairs of observations, `rows` of them per environment, the oldest overwritten first.

    Args:
        made_of: see `Observations`; two such arrays are stood for.
    """

    plain_up_to = PLAIN_UP_TO

    def __init__(self, *made_of: Any) -> None:
        super().__init__(*made_of)
        self.is_number = False  # whether an observation may come without its axis, as those of a Discrete space do
        self.reads_pairs = True  # whether the same rows are asked of both sides, as SB3 does for one-step returns
        self._look_every = max(1, self.rows // LOOKS)
        self._lock = threading.RLock()
        if self.is_plain:
            self._plain = np.zeros((2, self.rows, self.n_envs, *self.item_shape), self.dtype)
        else:
            self._numbers = np.zeros((self.rows, self.n_envs), np.uint32)
        self.observations, self.next_observations = Side(self, 0), Side(self, 1)
        self.clear()

    @property
    def shelves(self) -> list[Shelf]:  # type: ignore[override]
        """What rows are stored in, oldest first."""
        return [segment.shelf for segment in self._segments]

    def clear(self) -> None:
        """Forget all rows; what was found out about stacks stays known."""
        self._begun: np.ndarray | None = None  # the observations whose next ones are still to come
        # what was decoded along with the other side, and the (side, rows, envs) that it is; gone with the next change
        self._kept: tuple[tuple[int, bytes, bytes], np.ndarray] | None = None
        self.newest = -1  # the row that was written last
        self._segments: list[RingSegment] = []
        self._places: tuple[np.ndarray, tuple[Store, ...]] | None = None
        self.count = 0  # rows ever written

    def add(self, row: int, observations: np.ndarray, next_observations: np.ndarray) -> None:
        """Write a row; where that fails, the row's former content is still there.

        Raises:
            IndexError: another row is next. The last one may be written once more.
        """
        if self.is_plain:
            self._plain[0, row], self._plain[1, row], self.newest = observations, next_observations, row
            return
        observations, next_observations = self.as_stored(observations), self.as_stored(next_observations)
        with self._lock:
            self._kept = self._begun = None
            if row != self.count % self.rows:
                self.expect(row)
            if self.finder.stack is None:
                before = self.stack
                self.finder.look(observations)
                if self.stack != before:
                    self._cut_anew()
            segment = self._segments[-1] if self._segments else None
            if segment is None or (not (self.count - segment.first) % self._look_every and self._may_end(segment)):
                segment = self._next_segment(segment)
            segment.shelf.store.append_pairs(observations, next_observations, self._numbers, row)
            if segment.first == self.count:
                segment.first_row_bytes = segment.shelf.store.resident()
            self.count += 1
            self.newest = row
            while len(self._segments) > 1 and self._segments[1].first <= self.count - self.rows:
                del self._segments[0]
                self._places = None

    def begin(self, row: int, observations: np.ndarray) -> None:
        """Take a row's observations; they are written when `finish` brings what follows them."""
        if self.is_plain:
            self._plain[0, row] = observations
            return
        with self._lock:
            if row != self.count % self.rows:
                raise ValueError(
                    f"row {row} is read-only: rows are written one after the other, by add(), and "
                    f"{self.count % self.rows} is next"
                )
            self._begun, self._kept = self.as_stored(observations).copy(), None

    def finish(self, row: int, next_observations: np.ndarray) -> None:
        """Write a row whose observations have begun it; only now the row's former content is gone."""
        if self.is_plain:
            self._plain[1, row], self.newest = next_observations, row
            return
        with self._lock:
            if self._begun is None or row != self.count % self.rows:
                raise ValueError(f"row {row} is read-only: it is written by add(), its observations first")
            self.add(row, self._begun, next_observations)

    def pairs(self, rows: np.ndarray, envs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the observations and the next observations of these rows and environments."""
        if self.is_plain:
            before, after = self._plain[0, rows, envs], self._plain[1, rows, envs]
            return before.view(Decoded), after.view(Decoded)
        shape = np.shape(rows)
        if shape != np.shape(envs) or len(shape) != 1:
            rows, envs = np.broadcast_arrays(rows, envs)
            shape, rows, envs = rows.shape, rows.ravel(), envs.ravel()
        outs = self._take(shape), self._take(shape)
        with self._lock:
            self._read_into(rows, envs, BOTH, outs)
        return outs

    def read(self, rows: np.ndarray, envs: np.ndarray, side: int, *, pairs: bool = False) -> np.ndarray:
        """Return the observations (side 0) or next observations (side 1) of these rows and environments.

        Args:
            envs: one for each of the rows.
            pairs: the other side is likely to be asked for next.

        Raises:
            IndexError: there is no such row or environment.
        """
        if self.is_plain:
            return self._plain[side, rows, envs].view(Decoded)
        rows, envs = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(envs, np.int64)
        with self._lock:
            if not pairs:
                out = self._take(rows.shape)
                self._read_into(rows, envs, side, (out, out))
                return out
            asked, (known, kept) = (rows.tobytes(), envs.tobytes()), self._kept or (None, None)
            self._kept = None
            if kept is not None and known == (side, *asked):
                return kept
            outs = self._take(rows.shape), self._take(rows.shape)
            self._read_into(rows, envs, BOTH, outs)
            self._kept = (1 - side, *asked), outs[1 - side]
            return outs[side]

    def state(self) -> dict[str, Any]:
        """Return what is stored: arrays, and stores as bytes."""
        common = {**self.stack_state(), "count": self.count}
        if self.is_plain:
            return {**common, "plain": self._plain}
        with self._lock:
            shelves = [
                {"first": s.first, "first_row_bytes": s.first_row_bytes, **s.shelf.dump()} for s in self._segments
            ]
            return {**common, "numbers": self._numbers, "shelves": shelves}

    def prepare(self, state: dict[str, Any]) -> Callable[[], None]:
        """Check what `state()` returned and return what takes it over.

        Raises:
            ValueError: it does not fit this ring or is damaged.
        """
        self.check_form(state)
        stack = FrameStack(*state["stack"])
        found: dict[str, Any] = {"count": int(state["count"]), "_begun": None, "_kept": None, "_places": None}
        if self.is_plain:
            found["_plain"] = fitting(state["plain"], self._plain.shape, self.dtype)
        else:
            found["_numbers"] = fitting(state["numbers"], self._numbers.shape, self._numbers.dtype)
            found["_segments"] = [
                RingSegment(
                    int(dump["first"]),
                    load_shelf(dump, self.options, self.n_envs, self.item_bytes, stack, quick=True),
                    int(dump["first_row_bytes"]),
                )
                for dump in state["shelves"]
            ]
            for segment in found["_segments"][:-1]:
                segment.shelf.store.seal()

        def take_over() -> None:
            self.finder.recall(stack, state["decided"])
            self.__dict__.update(found)

        return take_over

    def __getstate__(self) -> dict[str, Any]:
        ways = {"reads_pairs": self.reads_pairs, "is_number": self.is_number, "newest": self.newest}
        return {"made_of": self.made_of(), **ways, "stored": self.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["made_of"])  # type: ignore[misc]
        self.reads_pairs, self.is_number = state["reads_pairs"], state.get("is_number", False)
        self.prepare(state["stored"])()
        self.newest = state.get("newest", -1)

    def expect(self, row: int) -> None:
        """Make this row the next one to write: it is, or it was the last one and is written once more.

        Raises:
            IndexError: it is neither.
        """
        following = self.count % self.rows
        if row != following and not self.is_plain:
            if row != (self.count - 1) % self.rows:
                raise IndexError(f"row {row} is written out of order: {following} is next")
            self.count -= 1  # the last row once more: whatever else belongs to it could not be stored
        self.newest = (row - 1) % self.rows

    def _next_segment(self, last: RingSegment | None) -> RingSegment:
        eager = last is not None and last.shelf.store.resident() >= LARGE
        queues = last is not None and last.shelf.queues
        if last is not None:
            last.shelf.store.seal()
        made_of = (self.options, self.n_envs, self.item_bytes, self.stack)
        shelf = new_shelf(
            *made_of,
            eager=eager,
            queues=queues,
            page_bytes=self.page_bytes,
            plain_bytes=2 * self.plain_bytes,
            quick=True,
        )
        self._segments.append(segment := RingSegment(self.count, shelf))
        self._places = None
        return segment

    def _may_end(self, segment: RingSegment) -> bool:
        """Say whether a new segment costs little beside this one."""
        length = self.count - segment.first
        most = MOST_SEGMENTS_WITH_FILES if self.options.spills else MOST_SEGMENTS
        if self.finder.stack is None or length < max(1, self.rows // most):
            return False
        worth = segment.shelf.store.resident() >= WORTH_OF_BEGINNING * segment.first_row_bytes
        return worth or length >= max(1, self.rows // FEWEST_SEGMENTS)

    def _take(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.outputs.take((*shape, *self.item_shape), self.dtype)

    def _read_into(self, rows: np.ndarray, envs: np.ndarray, side: int, outs: tuple[np.ndarray, np.ndarray]) -> None:
        firsts, stores = self._where()
        rows, envs = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(envs, np.int64)
        if not stores:  # nothing has been written
            outs[0][...] = outs[1][...] = 0
        try:
            if stores:
                places = (self._numbers, rows, envs)
                gather_ring(stores, firsts, self.count, self.rows, self.n_envs, *places, side, *outs)
        except OSError as error:
            raise explained(error) from error
        if self._begun is not None and side != 1:
            begun = rows == self.count % self.rows
            outs[0][begun] = self._begun[envs[begun]]

    def _where(self) -> tuple[np.ndarray, tuple[Store, ...]]:
        """Return each segment's first row and store; made once per change of the segments."""
        if self._places is None:
            firsts = np.array([segment.first for segment in self._segments], np.int64)
            self._places = (firsts, tuple(segment.shelf.store for segment in self._segments))
        return self._places

    def _cut_anew(self) -> None:
        """Store the few rows written so far again, now that their frames are known."""
        if not self._segments:
            return
        alive = np.arange(max(self._segments[0].first, self.count - self.rows), self.count)
        rows, envs = (each.ravel() for each in np.meshgrid(alive % self.rows, np.arange(self.n_envs), indexing="ij"))
        old = [np.empty((len(alive), self.n_envs, *self.item_shape), self.dtype) for _ in range(2)]
        found, self.finder.stack = self.finder.stack, None  # read as they were written
        self._read_into(rows, envs, BOTH, (old[0], old[1]))
        self.finder.stack, self.count, self._segments = found, int(alive[0]), []
        self._places = None
        for observations, next_observations in zip(*old, strict=True):
            self.add(self.count % self.rows, observations, next_observations)


class Side(StoredArray):
    """One of a ring's two arrays."""

    def __init__(self, ring: Ring, side: int) -> None:
        self._ring, self._side = ring, side
        self.dtype = ring.dtype
        self.shape = (ring.rows, ring.n_envs, *ring.item_shape)

    def __setitem__(self, key: Any, observations: Any) -> None:
        """Write the next row, as the library's `add` does; where observations are kept plainly, anything."""
        if self._ring.is_plain:
            self._ring._plain[self._side][key] = observations
        elif isinstance(key, int | np.integer):
            row = int(key) + (self.shape[0] if key < 0 else 0)
            (self._ring.finish if self._side else self._ring.begin)(row, observations)
        else:
            super().__setitem__(key, observations)

    def __getitem__(self, key: Any) -> Any:
        """Return what NumPy's array would, bit for bit; `[rows, envs]` and `[rows, envs, :]` quickly."""
        if self._ring.is_plain:
            return owned(self._ring._plain[self._side][key], Decoded)
        if self._ring.count and are_pairs(key):
            try:
                return self._ring.read(key[0], key[1], self._side, pairs=self._ring.reads_pairs)
            except IndexError:  # it may count from the end
                pass
        return super().__getitem__(key)

    def decode(self, *places: np.ndarray) -> np.ndarray:
        """Return the observations of these rows and environments."""
        rows, envs = places
        return self._ring.read(rows, envs, self._side)


def are_pairs(key: Any) -> bool:
    """Say whether a key is `[rows, envs]` or `[rows, envs, :]`, as Stable-Baselines3 indexes."""
    if type(key) is not tuple or not 2 <= len(key) <= 3 or not all(isinstance(each, np.ndarray) for each in key[:2]):
        return False
    rows, envs, *rest = key
    if rest and not (isinstance(rest[0], slice) and rest[0].start is rest[0].stop is rest[0].step is None):
        return False
    return rows.ndim == 1 and rows.shape == envs.shape and rows.dtype.kind == envs.dtype.kind == "i"
