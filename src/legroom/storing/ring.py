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
from legroom.storing.core import Store, gather_ring
from legroom.storing.observations import Observations
from legroom.storing.outputs import Decoded
from legroom.storing.stacks import Stack

PLAIN_UP_TO = 24  # bytes of an observation; storing it twice costs no more than an index would
MOST_SEGMENTS = 48
MOST_SEGMENTS_WITH_FILES = 32  # each has a file open
FEWEST_SEGMENTS = 8
WORTH_OF_BEGINNING = 32  # times the bytes of its first row that a segment holds before it may end
LOOKS = 256  # times per round of the ring that a segment may end: looking at its size waits for the encoder
BOTH = 2  # observations and next observations at once


@dataclass
class Segment:
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
        # (rows, envs, side, array) decoded along with the other side
        self._kept: tuple[np.ndarray, np.ndarray, int, np.ndarray] | None = None
        self._segments: list[Segment] = []
        self._places: tuple[np.ndarray, tuple[Store, ...]] | None = None
        self.count = 0  # rows ever written

    def add(self, row: int, observations: np.ndarray, next_observations: np.ndarray) -> None:
        """Write a row; where that fails, the row's former content is still there.

        Raises:
            IndexError: another row is next. The last one may be written once more.
        """
        if self.is_plain:
            self._plain[0, row], self._plain[1, row] = observations, next_observations
            return
        observations, next_observations = self.as_stored(observations), self.as_stored(next_observations)
        with self._lock:
            if row != self.count % self.rows:
                self._check_order(row)
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
            while len(self._segments) > 1 and self._segments[1].first <= self.count - self.rows:
                del self._segments[0]
                self._places = None

    def begin(self, row: int, observations: np.ndarray) -> None:
        """Take a row's observations; they are written when `finish` brings what follows them."""
        if self.is_plain:
            self._plain[0, row] = observations
            return
        with self._lock:
            self._check_order(row)
            self._begun = self.as_stored(observations).copy()

    def finish(self, row: int, next_observations: np.ndarray) -> None:
        """Write a row whose observations have begun it; only now the row's former content is gone."""
        if self.is_plain:
            self._plain[1, row] = next_observations
            return
        with self._lock:
            if self._begun is None:
                raise IndexError(f"row {row} has no observations yet")
            self.add(row, self._begun, next_observations)
            self._begun = None

    def read(self, rows: np.ndarray, envs: np.ndarray, side: int) -> np.ndarray:
        """Return the observations (side 0) or next observations (side 1) of these rows and environments."""
        if self.is_plain:
            found: np.ndarray = self._plain[side, rows, envs]
            return found.view(Decoded)
        with self._lock:
            if self._kept is not None and self._kept[0] is rows and self._kept[1] is envs and self._kept[2] == side:
                kept, self._kept = self._kept[3], None
                return kept
            self._kept = None
            shape, places = np.shape(rows), (rows, envs)
            if shape != np.shape(envs) or len(shape) != 1:
                here, there = np.broadcast_arrays(rows, envs)
                shape, places = here.shape, (here.ravel(), there.ravel())
            outs = [self._take(shape) for _ in range(2 if self.reads_pairs else 1)]
            self._read_into(*places, side, outs)
            if self.reads_pairs:
                self._kept = (rows, envs, 1 - side, outs[1 - side])
                return outs[side]
            return outs[0]

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
        stack = Stack(*state["stack"])
        found: dict[str, Any] = {"count": int(state["count"]), "_begun": None, "_kept": None, "_places": None}
        if self.is_plain:
            found["_plain"] = fitting(state["plain"], self._plain.shape, self.dtype)
        else:
            found["_numbers"] = fitting(state["numbers"], self._numbers.shape, self._numbers.dtype)
            found["_segments"] = [
                Segment(
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
        ways = {"reads_pairs": self.reads_pairs, "is_number": self.is_number}
        return {"made_of": self.made_of(), **ways, "stored": self.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["made_of"])  # type: ignore[misc]
        self.reads_pairs, self.is_number = state["reads_pairs"], state.get("is_number", False)
        self.prepare(state["stored"])()

    def _check_order(self, row: int) -> None:
        following = self.count % self.rows
        if row != following:
            if row != (self.count - 1) % self.rows:
                raise IndexError(f"row {row} is written out of order: {following} is next")
            self.count -= 1  # the last row once more: whatever else belongs to it could not be stored

    def _next_segment(self, last: Segment | None) -> Segment:
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
        self._segments.append(segment := Segment(self.count, shelf))
        self._places = None
        return segment

    def _may_end(self, segment: Segment) -> bool:
        """Say whether a new segment costs little beside this one."""
        length = self.count - segment.first
        most = MOST_SEGMENTS_WITH_FILES if self.options.spills else MOST_SEGMENTS
        if self.finder.stack is None or length < max(1, self.rows // most):
            return False
        worth = segment.shelf.store.resident() >= WORTH_OF_BEGINNING * segment.first_row_bytes
        return worth or length >= max(1, self.rows // FEWEST_SEGMENTS)

    def _take(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.outputs.take((*shape, *self.item_shape), self.dtype)

    def _read_into(self, rows: np.ndarray, envs: np.ndarray, side: int, outs: list[np.ndarray]) -> None:
        firsts, stores = self._where()
        rows, envs = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(envs, np.int64)
        side = side if len(outs) == 1 else BOTH
        try:
            gather_ring(
                stores, firsts, self.count, self.rows, self.n_envs, self._numbers, rows, envs, side, outs[0], outs[-1]
            )
        except OSError as error:
            raise explained(error) from error

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
        self._read_into(rows, envs, 0, old)
        self.finder.stack, self.count, self._segments = found, int(alive[0]), []
        self._places = None
        for observations, next_observations in zip(*old, strict=True):
            self.add(self.count % self.rows, observations, next_observations)


class Side:
    """One of a ring's two arrays, indexed as Stable-Baselines3 indexes them."""

    def __init__(self, ring: Ring, side: int) -> None:
        self._ring, self._side = ring, side
        self.dtype = ring.dtype
        self.shape = (ring.rows, ring.n_envs, *ring.item_shape)

    def __setitem__(self, row: int, observations: np.ndarray) -> None:
        (self._ring.finish if self._side else self._ring.begin)(row, observations)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return the observations of `[rows, envs]`, `[rows, envs, :]` or `[row]`."""
        if isinstance(index, tuple):
            rows, envs, *rest = index
            found = self._ring.read(rows, envs, self._side)
            return found[(..., *rest)] if rest and rest != [slice(None)] else found
        rows = np.arange(self._ring.rows)[index]
        return self._ring.read(rows[..., None], np.arange(self._ring.n_envs), self._side)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        everything = self[np.arange(min(self._ring.count, self._ring.rows))].view(np.ndarray)
        return everything if dtype is None else everything.astype(dtype, copy=False)
