"""Observation arrays [rows, environments, *shape] in little memory: what rollout buffers hold instead of plain arrays.

A column reads like the array it replaces and is written row by row: `column[row] = observations`. Small observations
are kept plainly, since an index would cost more than it saves.
"""

import threading
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from legroom.storing.budget import LARGE, Options, Shelf, explained, fitting, load_shelf, new_shelf
from legroom.storing.core import WHY_NOT, say_plain
from legroom.storing.outputs import Decoded, Outputs
from legroom.storing.stacks import FrameStack, StackFinder
from legroom.storing.stored_array import StoredArray, owned

# Numbers of several bytes repeat as whole numbers, in maps for example, so a page has as many of them as of bytes: more
# to repeat, and fewer pages to write anew. 100,000 transitions of the wildfire: 472 MB of records in pages of 4 KiB,
# 293 in pages of 16 KiB, and read as fast (2026-11-16, `bench.fire_replay` of eca25f63).
NUMBERS_PER_PAGE, LARGEST_PAGE = 4096, 32768


class Observations:
    """The array that is stood for, and how it is kept.

    Args:
        rows, n_envs, shape, dtype: of the array.
        options: what the user asked for.
        outputs: where decoded batches go.
    """

    plain_up_to: int  # bytes of an observation
    shelves: Sequence[Shelf]  # what rows are stored in, oldest first
    _plain: np.ndarray  # everything, where observations are that small
    _numbers: np.ndarray  # uint32 [rows, n_envs]: the observations' places in their stores, where they are not

    def __init__(
        self, rows: int, n_envs: int, shape: tuple[int, ...], dtype: np.dtype, options: Options, outputs: Outputs
    ) -> None:
        self.rows, self.n_envs, self.item_shape, self.dtype = rows, n_envs, shape, np.dtype(dtype)
        self.options, self.outputs = options, outputs
        self.item_bytes = prod(shape) * self.dtype.itemsize
        self.plain_bytes = rows * n_envs * self.item_bytes
        self.is_plain = bool(WHY_NOT) or self.item_bytes <= self.plain_up_to
        if WHY_NOT and self.item_bytes > self.plain_up_to:
            say_plain()
        self.page_bytes = min(NUMBERS_PER_PAGE * self.dtype.itemsize, LARGEST_PAGE)  # of large frames
        self.finder = StackFinder(shape, dtype)
        self._row_shape = (n_envs, *shape)

    @property
    def stack(self) -> FrameStack:
        """How observations are cut into frames."""
        return self.finder.found

    def breakdown(self) -> dict[str, int]:
        """Return the bytes in memory by purpose, and those on disk as `spilled`."""
        if self.is_plain:
            return {"plain": self._plain.nbytes}
        parts = {"index": self._numbers.nbytes}
        for shelf in self.shelves:
            for key, value in shelf.store.nbytes().items():
                if isinstance(value, int):  # not the counts by kind of record
                    parts[key] = parts.get(key, 0) + value
        return parts

    def made_of(self) -> list[Any]:
        """Return what this was constructed with."""
        return [self.rows, self.n_envs, self.item_shape, self.dtype, self.options, self.outputs]

    def check_form(self, state: dict[str, Any]) -> None:
        """Refuse what was stored plainly where it is stored leanly here, or the other way round.

        Raises:
            ValueError: it was.
        """
        if self.is_plain != ("plain" in state):
            kept = ("leanly", "plainly")
            raise ValueError(f"observations were stored {kept[not self.is_plain]}, here they are {kept[self.is_plain]}")

    def stack_state(self) -> dict[str, Any]:
        """Return what was found out about stacks, as plain data."""
        return {"stack": self.stack.as_state(), "decided": self.finder.stack is not None}

    def as_stored(self, observations: np.ndarray) -> np.ndarray:
        """Return one observation per environment as the plain array would have stored it, in C order."""
        stored = np.ascontiguousarray(observations, self.dtype)
        if stored.shape != self._row_shape:
            stored = np.ascontiguousarray(np.broadcast_to(stored, self._row_shape))
        return stored


NEVER = np.uint32(0xFFFFFFFF)  # the number of an observation that was not written
PLAIN_UP_TO = 512  # bytes of an observation; an index of 12 bytes is then at least 2 % of it


class Column(Observations, StoredArray):
    """Observations of one rollout, written row by row, read in any order.

    Args:
        made_of: see `Observations`.
    """

    plain_up_to = PLAIN_UP_TO

    def __init__(self, *made_of: Any) -> None:
        super().__init__(*made_of)
        self.flat = False  # whether indices count environment by environment, as after SB3's swap_and_flatten
        self.patience_s = 0.0
        self._queues = False
        self._lock = threading.Lock()
        self.clear()

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape of the array this stands for."""
        return self.shape_if(self.flat)

    @property
    def n_places(self) -> int:  # type: ignore[override]
        """The axes that observations are found by."""
        return 1 if self.flat else 2

    def shape_if(self, flat: bool) -> tuple[int, ...]:
        """Return the shape before or after SB3's `swap_and_flatten`."""
        head = (self.rows * self.n_envs,) if flat else (self.rows, self.n_envs)
        return (*head, *self.item_shape)

    def clear(self) -> None:
        """Forget all rows; what was found out about stacks stays known."""
        self.flat = False
        self._decoded: np.ndarray | None = None  # everything, flat, where there is memory for it
        if self.is_plain:
            self._plain = np.zeros((self.rows, self.n_envs, *self.item_shape), self.dtype)
            self.shelves: tuple[Shelf, ...] = ()
            return
        self._numbers = np.full((self.rows, self.n_envs), NEVER)
        before = getattr(self, "shelves", ())
        self._eager = any(shelf.store.resident() >= LARGE for shelf in before)  # what was large will be again
        self.shelves = (self._new_shelf(),)
        self._written = 0

    def flatten(self) -> None:
        """From now on, index environment by environment, as SB3 does after its `swap_and_flatten`."""
        if self.is_plain and not self.flat:
            self._plain = self._plain.swapaxes(0, 1).reshape(self.rows * self.n_envs, *self.item_shape)
        self._queues = any(shelf.queues for shelf in self.shelves)  # what paid will pay again
        for shelf in self.shelves:
            shelf.store.trim()
        self.flat = True

    def decode_all(self) -> None:
        """Keep everything decoded from now on, as SB3 does, so that no later epoch decodes it again."""
        if not self.is_plain and self._decoded is None:
            decoded = np.empty(self.shape_if(flat=True), self.dtype)
            envs, rows = np.divmod(np.arange(len(decoded)), self.rows)
            self._read_into(rows, envs, decoded)
            self._decoded = decoded

    def breakdown(self) -> dict[str, int]:
        """Return the bytes in memory by purpose, and those on disk as `spilled`."""
        kept = {} if self._decoded is None else {"decoded": self._decoded.nbytes}
        return {**super().breakdown(), **kept}

    def __setitem__(self, row: Any, observations: Any) -> None:
        if self.is_plain:
            self._plain[row] = observations
            return
        if self.flat or not isinstance(row, int | np.integer):
            super().__setitem__(row, observations)
        observations = self.as_stored(observations)
        self._decoded = None
        with self._lock:
            if self.finder.stack is None:
                before = self.stack
                self.finder.look(observations)
                if self.stack != before:
                    self._cut_anew()
            is_new = self._numbers[row, 0] == NEVER
            self.shelves[0].store.append_all(observations, self._numbers[row])
            self._written += bool(is_new)

    def __getitem__(self, key: Any) -> Any:
        """Return what NumPy's array would, bit for bit; flat indices quickly, decoded for the caller alone."""
        if self.is_plain:
            return owned(self._plain[key], Decoded)
        if self._decoded is not None and self.flat:
            return owned(self._decoded[key], Decoded)
        if self.flat and isinstance(key, np.ndarray) and key.dtype.kind == "i" and key.ndim == 1:
            try:
                return self.decode(key)
            except IndexError:  # it may count from the end
                pass
        return super().__getitem__(key)

    def decode(self, *places: np.ndarray) -> np.ndarray:
        """Return the observations of these flat indices, or of these rows and environments."""
        if len(places) == 2:
            return self.read(*places)
        (index,) = places
        envs, rows = (np.zeros_like(index), index) if self.n_envs == 1 else np.divmod(index, self.rows)
        return self.read(rows, envs)

    def read(self, rows: np.ndarray, envs: np.ndarray) -> np.ndarray:
        """Return the observations of these rows and environments, one after the other."""
        out = self.outputs.take((len(rows), *self.item_shape), self.dtype, self.patience_s)
        with self._lock:
            self._read_into(rows, envs, out)
        return out

    def state(self) -> dict[str, Any]:
        """Return what is stored: arrays, and stores as bytes."""
        common = {**self.stack_state(), "flat": self.flat}
        if self.is_plain:
            return {**common, "plain": self._plain}
        shelves = [shelf.dump() for shelf in self.shelves]
        return {**common, "numbers": self._numbers, "written": self._written, "shelves": shelves}

    def prepare(self, state: dict[str, Any]) -> Callable[[], None]:
        """Check what `state()` returned and return what takes it over.

        Raises:
            ValueError: it does not fit this column or is damaged.
        """
        self.check_form(state)
        found: dict[str, Any] = {"flat": bool(state["flat"]), "_decoded": None}
        stack = FrameStack(*state["stack"])
        if self.is_plain:
            found["_plain"] = fitting(state["plain"], self.shape_if(state["flat"]), self.dtype)
        else:
            shelves = tuple(
                load_shelf(dump, self.options, self.n_envs, self.item_bytes, stack) for dump in state["shelves"]
            )
            numbers = fitting(state["numbers"], (self.rows, self.n_envs), np.dtype(np.uint32))
            numbers[int(state["written"]) :] = NEVER  # an earlier version has zeros there
            found |= {"_numbers": numbers, "shelves": shelves, "_written": int(state["written"])}

        def take_over() -> None:
            self.finder.recall(stack, state["decided"])
            self.__dict__.update(found)

        return take_over

    def __getstate__(self) -> dict[str, Any]:
        return {"made_of": self.made_of(), "stored": self.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["made_of"])  # type: ignore[misc]
        self.prepare(state["stored"])()

    def _new_shelf(self) -> Shelf:
        made_of = (self.options, self.n_envs, self.item_bytes, self.stack)
        return new_shelf(
            *made_of, eager=self._eager, queues=self._queues, page_bytes=self.page_bytes, plain_bytes=self.plain_bytes
        )

    def _read_into(self, rows: np.ndarray, envs: np.ndarray, out: np.ndarray) -> None:
        numbers, streams = self._numbers[rows, envs], envs.astype(np.uint32)
        try:
            if self._written == self.rows:
                self.shelves[0].store.read(streams, numbers, out)
                return
            written = numbers != NEVER
            found = np.empty((int(written.sum()), *self.item_shape), self.dtype)
            self.shelves[0].store.read(streams[written], numbers[written], found)
            out[written], out[~written] = found, 0
        except OSError as error:
            raise explained(error) from error

    def _cut_anew(self) -> None:
        """Store the few rows written so far again, now that their frames are known."""
        old = self.shelves[0]
        self.shelves = (self._new_shelf(),)
        envs = np.arange(self.n_envs, dtype=np.uint32)
        observations = np.empty((self.n_envs, *self.item_shape), self.dtype)
        for row in np.flatnonzero(self._numbers[:, 0] != NEVER):
            old.store.read(envs, self._numbers[row], observations)
            self.shelves[0].store.append_all(observations, self._numbers[row])
