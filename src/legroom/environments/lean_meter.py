"""Measure what lean storage takes of observations as they come.

The very classes that training uses are fed (`storing.column` for rollouts, `storing.ring` for replay); a few rows are
also kept as they are, to be stored once more in another way. Records are counted after every row, so that steps and
beginnings of episodes can be told apart. What the index takes is computed from the versions of pages that a row added:
its lists and its table are enlarged now and then by half or to the double, which has nothing to do with the row that
happens to need it.

Nothing is timed: a second on a machine that is busy with other things told more about the others
(`backends.sb3.bill.lean.storage_price`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, prod, sqrt
from typing import Any, Literal

import numpy as np

from legroom.model.evidence import ColumnGrowth
from legroom.storing.budget import Options, new_shelf
from legroom.storing.column import Column
from legroom.storing.core import Store
from legroom.storing.outputs import Outputs
from legroom.storing.ring import Ring
from legroom.storing.stacks import Stack, StackFinder

WINDOWS = 8  # whose spread is the error of a step
ROLLOUT_ROWS = 4096  # more than a probe ever writes
REPLAY_ROWS = 1 << 20  # so that no segment ends while it is measured: `backends.sb3.bill.lean` does that by arithmetic
# A version of a page is 8 bytes. While a store is written to, its lists are up to a third empty, and the table of what
# is stored once has 16 to 32 bytes per entry, unless that is over a 64th of the records.
VERSION_NBYTES, VERSION_ERROR = 10, 2
SEALED_VERSION_NBYTES = 8
TABLE_NBYTES, TABLE_ERROR, TABLE_SHARE = 24, 8, 1 / 64
SINGLE_PAGE_NBYTES = 16384  # of a frame; larger ones are cut
SMALL_FRAME_NBYTES = 2048  # storing/_records.h
SETTLED_SHARE = 0.8  # of a literal, what changes take on average where they may not exceed one
OTHER_BEGINNINGS, FEW_ROWS = 8, 16  # tried, to see whether the same stack is always found


@dataclass(frozen=True)
class _Mark:
    """How much is in a store: bytes of records, literals among them, frames of each environment."""

    nbytes: int
    literals: int
    frames: np.ndarray


@dataclass(frozen=True)
class _Entry:
    """What one row did: the store before it, after its observation and after what followed.

    A rollout has nothing that followed: the two are the same.
    """

    begun: int
    before: _Mark
    between: _Mark
    after: _Mark


class Meter:
    """One part of the observations in lean storage, and its first `kept` rows in a plain array.

    Args:
        shape, dtype: of one observation as it is stored.
    """

    def __init__(
        self, kind: Literal["rollout", "replay"], shape: tuple[int, ...], dtype: np.dtype, n_envs: int, kept: int
    ) -> None:
        self.shape, self.dtype, self.n_envs, self.kept = shape, dtype, n_envs, kept
        self.item_nbytes = prod(shape) * dtype.itemsize
        self.store: Column | Ring
        if kind == "rollout":
            self.store = Column(ROLLOUT_ROWS, n_envs, shape, dtype, Options(), Outputs(2))
        else:
            self.store = Ring(REPLAY_ROWS, n_envs, shape, dtype, Options(), Outputs(4))
        self.plain = np.zeros((kept, n_envs, *shape), dtype)
        self.rows = 0
        self._log: list[_Entry] = []

    def add(self, now: np.ndarray, after: np.ndarray, begun: int) -> None:
        """Store one row: observations, and for replay what followed; `begun` of them begin an episode."""
        row, found = self.rows, self.store.stack
        if row < self.kept:
            self.plain[row] = now
        before = self._mark() if row else None
        between = self._add_leanly(row, now, after)
        self.rows += 1
        if self.store.stack != found:
            self._log.clear()  # all rows have just been stored again, now as frames
        elif before is not None:
            end = self._mark()
            self._log.append(_Entry(begun, before, between or end, end))

    def _add_leanly(self, row: int, now: np.ndarray, after: np.ndarray) -> _Mark | None:
        if isinstance(self.store, Column):
            self.store[row] = now
            return None
        self.store.add(row, now, now)  # which takes no more than the observation
        between = self._mark()
        self.store.add(row, now, after)  # the last row may be written once more
        return between

    def growth(self, samples: Sequence[np.ndarray], openings: Sequence[np.ndarray]) -> ColumnGrowth:
        """Return the bytes that environments, steps and episodes take.

        Args:
            samples: observations of environments that have nothing to do with each other, at least two.
            openings: the same, at the beginning of their episodes, as in a run's first rollout.
        """
        first, another = self._beginnings(samples)
        opening_first, opening_another = self._beginnings(openings)
        current = self.store.shelves[-1].store.nbytes()["current"] / self.n_envs
        begun = np.array([entry.begun for entry in self._log])
        times = _version_times(self.store.shelves[-1].store)
        opened = np.array([self._added(entry.before, entry.between, times) for entry in self._log])
        stepped = np.array([self._added(entry.between, entry.after, times) for entry in self._log])
        if isinstance(self.store, Column):  # a row is either a step or a beginning
            is_step = (begun == 0) if (begun == 0).any() else np.ones(len(begun), bool)
            stepped, opened, begun = opened[is_step], opened[~is_step], begun[~is_step]
            opened = opened - stepped.mean(axis=0)
        opened = opened[begun > 0, 0] / begun[begun > 0]
        steps, index_error = stepped[:, 0] / self.n_envs, stepped[:, 1].mean() / self.n_envs
        # with other first observations, another stack might have been found; and the store may still be learning
        found = [float(steps.mean()), *map(self._step_with, self._other_stacks())]
        found.append(found[0] - self._saved_once_settled() / (len(self._log) * self.n_envs))
        return ColumnGrowth(
            item_nbytes=self.item_nbytes,
            n_stack=self.store.stack.n_stack,
            first=first,
            another=another,
            another_error=max(abs(another - opening_another), abs(first - opening_first)),
            current=current,
            step=(min(found) + max(found)) / 2,
            step_error=_error_of_mean(steps) + float(index_error) + (max(found) - min(found)) / 2,
            reset=float(opened.mean()) if len(opened) else 0.0,
            reset_error=_error_of_mean(opened) if len(opened) else 0.0,
        )

    def _added(self, before: _Mark, after: _Mark, times: Sequence[np.ndarray]) -> tuple[float, float]:
        """Return the bytes added between two marks, records and index, and by how much the index may differ."""
        nbytes, literals = after.nbytes - before.nbytes, after.literals - before.literals
        versions = sum(
            np.searchsorted(times[env], after.frames[env]) - np.searchsorted(times[env], before.frames[env])
            for env in range(self.n_envs)
        )
        if isinstance(self.store, Ring):  # segments that are no longer written to have neither slack nor table
            return nbytes + SEALED_VERSION_NBYTES * versions, 0.0
        table = min(TABLE_NBYTES * literals, TABLE_SHARE * nbytes)
        return nbytes + VERSION_NBYTES * versions + table, VERSION_ERROR * versions + table * TABLE_ERROR / TABLE_NBYTES

    def _beginnings(self, observations: Sequence[np.ndarray]) -> tuple[float, float]:
        """Return the bytes of the first observation in a fresh store, and of each further environment's."""

        def fresh(count: int) -> float:
            page_bytes = self.store.page_bytes
            store = new_shelf(Options(), count, self.item_nbytes, self.store.stack, page_bytes=page_bytes).store
            store.append_all(np.ascontiguousarray(observations[:count], self.dtype), np.empty(count, np.uint32))
            return float(_mark(store, 0).nbytes + store.nbytes()["index"])

        first = fresh(1)
        return first, (fresh(len(observations)) - first) / (len(observations) - 1)

    def _other_stacks(self) -> set[Stack]:
        """Return what would have been taken for a stack, had the run begun with other observations."""
        rows, found = min(self.kept, self.rows), set()
        for start in range(0, rows, max(1, rows // OTHER_BEGINNINGS)):
            finder = StackFinder(self.shape, self.dtype)
            # within a few changes: where nothing changes for long, it is not stacks that beginnings differ in
            for row in range(start, min(start + FEW_ROWS, rows)):
                if finder.stack is None:
                    finder.look(self.plain[row])
            found.add(finder.stack or self.store.stack)
        return found - {self.store.stack}

    def _saved_once_settled(self) -> float:
        """Return how many bytes of changes a store that has seen much would have spared.

        A change is written only if it is smaller than a literal usually is, and what a literal usually takes is learnt
        from the literals themselves, beginning with a whole page: a sixteenth of the difference with each. Small pages
        begin with the first literal.
        """
        if self.item_nbytes / self.store.stack.n_stack <= SMALL_FRAME_NBYTES:
            return 0.0
        store = self.store.shelves[-1].store
        kinds = {kind: entry for kind, entry in store.nbytes().items() if isinstance(entry, tuple)}
        (literals, literal_nbytes), (changes, change_nbytes) = (
            np.sum([kinds[kind] for kind in group if kind in kinds] or [(0, 0)], axis=0)
            for group in (("raw", "lz4"), ("delta", "bytes", "move", "patch"))
        )
        if not literals or not changes:
            return 0.0
        largest = max(self.store.page_bytes, SINGLE_PAGE_NBYTES)
        usual, page = literal_nbytes / literals, min(self.item_nbytes / self.store.stack.n_stack, largest)
        is_settled = literals > 16 * log(max(page / usual, 1.0)) + 16
        return 0.0 if is_settled else max(change_nbytes - SETTLED_SHARE * usual * changes, 0.0)

    def _step_with(self, stack: Stack) -> float:
        """Return the bytes of a step when observations are cut into these frames."""
        made_of = (Options(), self.n_envs, self.item_nbytes, stack)
        store = new_shelf(*made_of, page_bytes=self.store.page_bytes, quick=isinstance(self.store, Ring)).store
        numbers, rows = np.empty(self.n_envs, np.uint32), min(self.kept, self.rows)
        store.append_all(self.plain[0], numbers)
        before = _mark(store, self.n_envs)
        for row in range(1, rows):
            store.append_all(self.plain[row], numbers)
        added, _ = self._added(before, _mark(store, self.n_envs), _version_times(store))
        return added / max(rows - 1, 1) / self.n_envs

    def _mark(self) -> _Mark:
        return _mark(self.store.shelves[-1].store, self.n_envs)


def _mark(store: Store, n_envs: int) -> _Mark:
    """Return what is in the store; bytes of records are exact where the core counts them, else whole memory pages."""
    parts: Mapping[str, Any] = store.nbytes()
    kinds = {kind: entry for kind, entry in parts.items() if isinstance(entry, tuple)}  # (how many, bytes)
    return _Mark(
        nbytes=sum(nbytes for _, nbytes in kinds.values()) if kinds else parts["arenas"],
        literals=sum(kinds[kind][0] for kind in ("raw", "lz4") if kind in kinds),
        frames=np.array([store.length(env) for env in range(n_envs)]),
    )


def _version_times(store: Store) -> list[np.ndarray]:
    """Return of each stream, sorted, the number of the frame with which each version of each page came."""
    words = np.frombuffer(store.dump_index(), "<u4")
    n_streams, frame_nbytes, layout, page_nbytes, n_arenas = (int(words[place]) for place in (1, 2, 5, 6, 8))
    n_pages = -(-(-(-frame_nbytes // 4) * 4) // page_nbytes) + (layout > 1)  # a table of colours is one more
    at, times = 9 + n_arenas + n_streams, []
    for _ in range(n_streams):
        of_pages = []
        for _ in range(n_pages):
            count = int(words[at])
            of_pages.append(words[at + 1 : at + 1 + 2 * count : 2] & 0x7FFFFFFF)  # the highest bit: stands for itself
            at += 1 + 2 * count
        times.append(np.sort(np.concatenate(of_pages)))
    return times


def _error_of_mean(values: np.ndarray) -> float:
    """Return by how much the mean of a longer time may differ: what windows, or the two halves, tell."""
    if len(values) < 2:
        return float(abs(values.sum()))
    half = len(values) // 2
    drift = abs(values[half:].mean() - values[:half].mean())
    means = np.array([part.mean() for part in np.array_split(values, min(WINDOWS, len(values)))])
    return float(max(drift, 2 * means.std(ddof=1) / sqrt(len(means))))
