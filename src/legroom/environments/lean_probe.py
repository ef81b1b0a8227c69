"""Step built environments for a moment and find out what lean storage would make of their observations.

How much successive observations have in common is in no space and no file; a second of random actions shows it. The
time is short, so what is extrapolated from it has a band: from the spread between windows, and from resets, of which a
few are forced so that the price of a new episode is known even where none ended. Runs in `env_child`, never in the
process of the user.

The very classes that training uses are fed (`storing.column` for rollouts, `storing.ring` for replay); a few rows are
also kept as they are, to be stored once more in another way. Records are counted after every row, so that steps and
beginnings of episodes can be told apart. What the index takes is computed from the versions of pages that a row added:
its lists and its table are enlarged now and then by half or to the double, which has nothing to do with the row that
happens to need it.

Nothing is timed: a second on a machine that is busy with other things told more about the others
(`backends.sb3.bill.lean.storage_price`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log, prod, sqrt
from typing import Any, Literal

import numpy as np

from legroom.environments.env_steps import Row, Streams, stored_dtype
from legroom.model.evidence import ColumnGrowth, LeanProbe
from legroom.model.spaces import BoxSpace, Leaf
from legroom.storing import column, ring
from legroom.storing.budget import Options, new_shelf
from legroom.storing.column import Column
from legroom.storing.core import Store
from legroom.storing.outputs import Outputs
from legroom.storing.ring import Ring
from legroom.storing.stacks import FrameStack, StackFinder

MOST_ROWS, LEAST_ROWS = 512, 32
STEPPING_S = 0.8  # and on to LEAST_ROWS where steps are slow,
SLOW_S = 4.0  # but no longer than this,
FEWEST_ROWS = 8  # which must be enough for these: fewer say nothing
MOST_EPISODES, LEAST_EPISODES = 8, 2  # begun on purpose
EPISODES_S = 0.15
KEPT_NBYTES = 64 << 20  # of plain rows
SAMPLE_NBYTES = 64 << 20  # of observations that stand for other environments
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


class TooSlowError(Exception):
    """Stepping takes too long to learn anything."""


def probe(envs: Sequence[Any], leaves: Mapping[str, Leaf], task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a `LeanProbe` as plain data.

    Args:
        envs: built environments; they are reset.
        leaves: the parts of the observation by key.
        task: kind, frame_stack, normalize; see `sb3_env`.

    Raises:
        TooSlowError: see there. Whatever the environments raise is passed on.
    """
    kind, frame_stack = task["kind"], task["frame_stack"]
    small = column.PLAIN_UP_TO if kind == "rollout" else ring.PLAIN_UP_TO
    lean = {key: leaf for key, leaf in leaves.items() if _stored_nbytes(leaf, task) > small}
    if not lean:
        return asdict(LeanProbe(kind, {}, steps=0, episodes=0))
    streams = Streams(envs, lean, frame_stack=frame_stack, normalize=task["normalize"], originals=kind == "replay")
    each = sum(prod(shape) * dtype.itemsize for shape, dtype in map(streams.stored, lean))
    kept = max(2, min(MOST_ROWS, KEPT_NBYTES // (each * len(envs))))
    meters = {key: Meter(kind, *streams.stored(key), len(envs), kept) for key in lean}
    feed = _Feed(kind, streams, meters)
    feed.live()
    samples, openings = feed.other_episodes(frame_stack)
    growths = {
        key: meter.growth([sample[key] for sample in samples], [opening[key] for opening in openings])
        for key, meter in meters.items()
    }
    lengths = feed.lengths
    return asdict(
        LeanProbe(
            kind,
            growths,
            feed.steps,
            episodes=len(lengths),
            episode_mean=float(np.mean(lengths)) if lengths else 0.0,
            episode_std=float(np.std(lengths)) if lengths else 0.0,
            time_limit=streams.time_limit,
        )
    )


def _stored_nbytes(leaf: Leaf, task: Mapping[str, Any]) -> int:
    stacked = task["frame_stack"] if isinstance(leaf, BoxSpace) else 1
    return prod(leaf.shape) * stored_dtype(leaf, task["normalize"] is not None).itemsize * stacked


class _Feed:
    """Takes rows from the environments to the meters."""

    def __init__(self, kind: str, streams: Streams, meters: Mapping[str, Meter]) -> None:
        self.kind, self.streams, self.meters = kind, streams, meters
        self.last: Row | None = None
        self.steps = 0
        self.lengths: list[int] = []

    def live(self) -> None:
        """Step until there is enough, and count the episodes that end by themselves."""
        began, busy = time.perf_counter(), time.thread_time()
        self._take(self.streams.begin(seeded=True))
        for rows in range(1, MOST_ROWS):
            self._take(self.streams.step())
            elapsed = time.perf_counter() - began
            # on a machine that is busy with other things, twice the time makes up for it
            if rows >= LEAST_ROWS and (time.thread_time() - busy > STEPPING_S or elapsed > 2 * STEPPING_S):
                break
            if elapsed > SLOW_S:
                break
        if rows < FEWEST_ROWS:
            raise TooSlowError(f"{rows} steps took {elapsed:.1f} s")
        self.steps, self.lengths = self.streams.steps, list(self.streams.lengths)

    def other_episodes(self, frame_stack: int) -> tuple[list[dict[str, np.ndarray]], list[dict[str, np.ndarray]]]:
        """Begin a few more episodes; return observations from the midst of episodes, and those they began with."""
        samples = self._each()
        openings: list[dict[str, np.ndarray]] = []
        enough = max(2, min(8, SAMPLE_NBYTES // sum(part.nbytes for part in samples[0].values())))
        began = time.perf_counter()
        for number in range(MOST_EPISODES):
            if number >= LEAST_EPISODES and time.perf_counter() - began > EPISODES_S:
                break
            self._take(self.streams.begin(), cut=True)
            openings += self._each() if len(openings) < enough else []
            for _ in range(min(frame_stack, 8)):  # until a stack has no frames of zeros any more
                self._take(self.streams.step())
            samples += self._each() if len(samples) < enough else []
        return samples[:enough], openings[:enough]

    def _take(self, row: Row, *, cut: bool = False) -> None:
        """Store a row; what is stored of a transition is known only with the row after it."""
        if self.kind == "rollout":
            for key, meter in self.meters.items():
                meter.add(row.now[key], row.after[key], row.begun)
        elif self.last is not None and not cut:
            for key, meter in self.meters.items():
                meter.add(self.last.now[key], row.after[key], self.last.begun)
        self.last = row

    def _each(self) -> list[dict[str, np.ndarray]]:
        assert self.last is not None
        now = self.last.now
        return [{key: np.array(part[env]) for key, part in now.items()} for env in range(len(self.streams.envs))]


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

    def _other_stacks(self) -> set[FrameStack]:
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

    def _step_with(self, stack: FrameStack) -> float:
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
