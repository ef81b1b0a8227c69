"""Predict what observations take in lean storage: from a probe of the environment, or at most.

How much successive observations have in common is in no run file. Without a probe only structure is certain: each
frame is stored once, with at most LEAN_OVERHEAD around it, and no copy is made. With one (`lean_probe`), the
bytes of first observations, steps and new episodes are known, and the band comes from the spread of what was measured
and from how often episodes may begin. A prediction never exceeds the structural bound.

Mirrors `storing.column`, `storing.ring` and `storing.outputs`; nothing of them is imported, since they need NumPy.

Whether observations compress as well as a probe promised is the least certain figure of a prediction. A limit
(`memory.max_bytes`) makes it certain: beyond it the oldest records go to disk, their index does not. It is one limit
for all parts of the observations together, enforced at every step (`storing.budget`).
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.stored import (
    batch_samples,
    observation_leaves,
    observation_nbytes,
    pass_samples,
    replay_rows,
    rollout_rows,
    written_rows,
)
from legroom.model.evidence import ColumnGrowth, Evidence, LeanProbe
from legroom.model.footprint import Item, Known, Place
from legroom.model.plan import Price
from legroom.model.run import Run
from legroom.model.spaces import DTYPES
from legroom.storing.core import WHY_NOT
from legroom.units import MIB, format_size

# Observations up to these sizes are kept in plain arrays: storing.column.PLAIN_UP_TO and storing.ring.PLAIN_UP_TO.
ROLLOUT_PLAIN_UP_TO, REPLAY_PLAIN_UP_TO = 512, 24
LEAN_OVERHEAD = 1.03  # headers, versions of pages and table of contents where nothing repeats; `make bench-storage`
NUMBER_NBYTES = 4  # a row's place in the store
VERSION_NBYTES = 12  # of a page: 8, in a list that may be a third empty
STORE_NBYTES = 8192  # a store with next to nothing in it: one or two touched pages, and its tables
PAGE_NBYTES = 4096
WASTE = 0.01  # of the records: ends of arenas that the next record did not fit into
# A store of several pages per frame that is or was so large takes huge memory pages (storing.budget.LARGE).
HUGE_NBYTES, HUGE_FROM, SINGLE_PAGE_NBYTES = 2 << 20, 8 << 20, 16384
# Segments of the ring: storing.ring's MOST_SEGMENTS, FEWEST_SEGMENTS and WORTH_OF_BEGINNING.
MOST_SEGMENTS, FEWEST_SEGMENTS, WORTH_OF_BEGINNING = 48, 8, 32
# Rows that wait to be encoded (storing/_queue.h): so much, or two of every environment, where that pays, and at most
# a share of what plain arrays would take. A rollout's are encoded before it is learnt from, when a run takes most.
QUEUE_NBYTES, MOST_QUEUE_NBYTES, SMALLEST_QUEUED, QUEUE_SHARE = 128 << 10, 4 << 20, 1024, 128
EPISODE_ERROR = 0.25  # of a declared "typical" episode
ENOUGH_EPISODES = 3  # to say how much their lengths vary
REGULAR = 0.1  # standard deviation of the lengths, of their mean, below which episodes are taken for alike
LEAST_STEP_ERROR = 0.05  # of a step: a second of random actions stands for a whole run
LARGE_NBYTES, ALIKE_SHARE = 16 << 10, 0.5  # of an observation: where lean storage is free
NONE_SEEN = 3  # where no episode ended in n steps, the rate is below 3/n with 95 % certainty


@dataclass(frozen=True)
class Estimate:
    """Bytes of one part of the observations, ± error, and how that is known."""

    nbytes: int
    error: int
    why: str
    known: Known


@dataclass(frozen=True)
class EpisodeCount:
    """How many episodes begin while so many rows are written."""

    expected: float
    low: float
    high: float


def is_kept_plainly(run: Run, nbytes: int) -> bool:
    """Return whether lean storage keeps observations of this size in plain arrays."""
    limit = ROLLOUT_PLAIN_UP_TO if algorithm_of(run).family == "on-policy" else REPLAY_PLAIN_UP_TO
    return bool(WHY_NOT) or nbytes <= limit


def lean_rollout(run: Run, evidence: Evidence, key: str, nbytes: int) -> Estimate:
    """Return what a rollout's observations under `key`, of `nbytes` each, take in lean storage."""
    rows, envs = rollout_rows(run) or 0, run.env.n_envs
    slots, shape = rows * envs, f"{rows:,} steps x {envs:,} envs"
    bound = _bound(run, nbytes, slots)
    probe = evidence.lean
    growth = _growth(probe, "rollout", key, nbytes)
    if probe is None or growth is None:
        return _unprobed(run, bound, f"{shape} x {format_size(nbytes)}")
    episodes = count_episodes(run, probe, rows)
    begun = growth.first + (envs - 1) * growth.another
    records = begun + max(growth.step * (slots - envs) + growth.reset * episodes.expected, 0.0)
    error = _error(growth, slots, episodes) + envs * growth.another_error + STORE_NBYTES + WASTE * records
    beside = NUMBER_NBYTES * slots + envs * growth.current
    most = beside + records + error + _not_full(growth, records + error)
    return _between(beside + records - error, beside + records, most, bound, f"{shape}: {_why(growth, probe)}")


def lean_replay(run: Run, evidence: Evidence, key: str, nbytes: int, rows: int) -> Estimate:
    """Return what a replay buffer's observations under `key` take in lean storage, next observations included.

    Args:
        rows: those the run gets to write.
    """
    ring, envs = replay_rows(run) or 0, run.env.n_envs
    probe = evidence.lean
    growth = _growth(probe, "replay", key, nbytes)
    typical = rows * envs / run.env.episode_steps if run.env.episode_steps else 0.0
    if probe is None or growth is None:
        segment = min(max(ring // MOST_SEGMENTS, 2 * WORTH_OF_BEGINNING), max(ring // FEWEST_SEGMENTS, 1))
        stored = rows + (segment if rows == ring else 0)
        bound = _bound(run, nbytes, stored * envs + int(typical), segments=rows // segment + 2)
        return _unprobed(run, bound, f"{format_size(nbytes)} each, next observations among them")
    episodes = count_episodes(run, probe, rows)
    begun = growth.first + (envs - 1) * growth.another
    row = max(envs * growth.step + episodes.expected / rows * growth.reset, 0.0)
    segment = _segment_rows(ring, begun + envs * growth.step, row)
    # A segment is dropped once the ring has passed over all of it: between none and one more than needed are there.
    passed = segment / 2 if rows == ring else 0.0
    segments = rows / segment + 0.5
    records = segments * begun + row * (rows + passed)
    error = _error(growth, rows * envs, episodes) + segments * envs * growth.another_error + STORE_NBYTES
    error += passed * row + begun + segments * PAGE_NBYTES / 2 + WASTE * records + _queue(run, nbytes)
    newest = begun + row * min(segment, rows)  # grows in huge pages, while those before it were cut to their size
    beside = NUMBER_NBYTES * rows * envs + envs * growth.current + segments * PAGE_NBYTES / 2
    most = beside + records + error + _not_full(growth, newest + error / segments)
    bound = _bound(run, nbytes, int((rows + 2 * passed) * envs + 2 * episodes.high), segments=math.ceil(segments) + 1)
    return _between(beside + records - error, beside + records, most, bound, _why(growth, probe))


def _queue(run: Run, nbytes: int) -> int:
    if not SMALLEST_QUEUED <= nbytes <= MOST_QUEUE_NBYTES // 4 or run.memory.max_bytes is not None:
        return 0
    useful = max(QUEUE_NBYTES, min(2 * run.env.n_envs * nbytes, MOST_QUEUE_NBYTES))
    return min(useful, 2 * (replay_rows(run) or 0) * run.env.n_envs * nbytes // QUEUE_SHARE)


def stored_nbytes(run: Run, evidence: Evidence) -> int:
    """Return the most that observations in lean storage are counted with: the upper ends of all their parts."""
    rollout, ring = rollout_rows(run), replay_rows(run)
    counted = 0
    for key, (elements, dtype) in observation_leaves(run).items():
        nbytes = elements * DTYPES[dtype]
        if is_kept_plainly(run, nbytes):
            continue
        if rollout is not None:
            found = lean_rollout(run, evidence, key, nbytes)
        else:
            found = lean_replay(run, evidence, key, nbytes, written_rows(run, ring or 1))
        counted += found.nbytes + found.error
    return min(counted, run.memory.max_bytes or counted)


def count_episodes(run: Run, probe: LeanProbe, rows: int) -> EpisodeCount:
    """Return how many episodes begin within `rows` steps of every environment, by what was declared or seen.

    Environments that were started together also end together, so the most is what all do at once.
    """
    low, rate, high = episode_rates(run, probe)
    envs = run.env.n_envs
    expected = envs * (rows - 1) * rate  # the first row is paid for, whether an episode begins with it or not
    varying = probe.episode_std / probe.episode_mean if probe.episodes >= ENOUGH_EPISODES else 1.0
    scatter = 2 * varying * math.sqrt(expected)
    fewest = min(envs * math.floor((rows - 1) * low), max(expected - scatter, 0.0))
    return EpisodeCount(expected, fewest, max(envs * math.ceil((rows - 1) * high), expected + scatter))


def episode_rates(run: Run, probe: LeanProbe) -> tuple[float, float, float]:
    """Return episodes per step of one environment: the least, the expected, the most."""
    if run.env.episode_steps:
        rate = 1 / run.env.episode_steps
        return rate * (1 - EPISODE_ERROR), rate, rate * (1 + EPISODE_ERROR)
    least = 1 / probe.time_limit if probe.time_limit else 0.0
    if not probe.episodes:
        most = max(least, NONE_SEEN / max(probe.steps, 1))
        return least, (least + most) / 2, most
    rate = max(probe.episodes / probe.steps, least)
    error = 2 * math.sqrt(probe.episodes) / probe.steps  # as if ends came by chance
    if probe.episodes >= ENOUGH_EPISODES:
        by_length, varying = 1 / probe.episode_mean, probe.episode_std / probe.episode_mean
        if varying < REGULAR:  # the last ones, unfinished, are of that length too
            rate, error = by_length, varying * by_length
        else:
            error = min(error, 2 * varying / math.sqrt(probe.episodes) * rate + abs(by_length - rate))
    return max(rate - error, least), rate, rate + error


def storage_price(run: Run, evidence: Evidence) -> Price:
    """Return what lean storage costs a run: free where a probe found its observations large and mostly alike.

    Then a read touches less memory than copying does, and SB3's copy of a rollout is spared. Bytes are the same
    whatever else the machine does, which the times of a second are not. Storing and reading in SB3's own loops took
    0.05 to 0.89 times as long in eight such buffers (`bench.lean_prediction` of d63e92e7), 0.46 to 1.01 in four others
    and 1.2 times as long of small vectors (2026-11-18, 2 cores).
    """
    probe = evidence.lean
    if probe is None or not probe.columns:
        return "slower"
    plain = sum(one.item_nbytes for one in probe.columns.values())
    _, rate, _ = episode_rates(run, probe)
    lean = sum(one.step + one.reset * rate for one in probe.columns.values())
    return "free" if plain >= LARGE_NBYTES and lean <= ALIKE_SHARE * plain else "slower"


def decoded_batches(run: Run) -> tuple[int, int]:
    """Return the bytes of one decoded (micro-)batch of observations, and how many of them are kept for reuse.

    A loop that still holds one minibatch while it makes the next needs two; a single one per update is let go before,
    and so is a micro-batch of a replay buffer. Those of a rollout are decoded ahead of time, like its minibatches.
    """
    samples = pass_samples(run)
    if algorithm_of(run).family == "off-policy":
        held = hyper(run, "gradient_steps") != 1 and samples == batch_samples(run)
        return 2 * samples * observation_nbytes(run), 2 if held else 1
    made = (rollout_rows(run) or 1) * run.env.n_envs * int(hyper(run, "n_epochs") or 1) / samples
    return samples * observation_nbytes(run), 2 if made > 1 else 1


def _growth(probe: LeanProbe | None, kind: str, key: str, nbytes: int) -> ColumnGrowth | None:
    """Return what was measured, if it was measured of such observations: a variant of a run may stack more frames."""
    growth = probe.columns.get(key) if probe is not None and probe.kind == kind else None
    return growth if growth is not None and growth.item_nbytes == nbytes else None


def _bound(run: Run, nbytes: int, slots: int, segments: int = 1) -> int:
    """Return what `slots` observations take at most: every frame once, and what is kept of the last ones."""
    stack = run.env.frame_stack or 1
    frame = nbytes / stack
    last = run.env.n_envs * (frame + (nbytes if stack > 1 else 0))
    records = slots * (frame * LEAN_OVERHEAD + NUMBER_NBYTES + VERSION_NBYTES)
    return int(records + last + segments * STORE_NBYTES + (HUGE_NBYTES if records > HUGE_FROM else 0))


def _unprobed(run: Run, bound: int, shape: str) -> Estimate:
    stack = run.env.frame_stack or 1
    each = f", each frame of the stack of {stack} once" if stack > 1 else ""
    why = f"at most {shape}{each}; what repeats is stored once (measured where the env can be stepped)"
    return Estimate(bound, 0, why, Known.ARITHMETIC)


def _between(low: float, nbytes: float, high: float, bound: int, why: str) -> Estimate:
    """Return the estimate with its band, both cut to what is possible; an item's error is the same on both sides."""
    low, high = max(low, 0.0), min(high, bound)
    low = min(low, high)
    lopsided = high - nbytes > 2 * (nbytes - low) or nbytes - low > 2 * (high - nbytes)
    if lopsided or high == bound:
        nbytes = (low + high) / 2
    return Estimate(int(nbytes), math.ceil(max(high - nbytes, nbytes - low)), why, Known.MEASURED)


def _error(growth: ColumnGrowth, slots: int, episodes: EpisodeCount) -> float:
    unsure = max(episodes.high - episodes.expected, episodes.expected - episodes.low)
    step = max(growth.step_error, LEAST_STEP_ERROR * growth.step)
    return step * slots + abs(growth.reset) * unsure + growth.reset_error * episodes.expected


def _segment_rows(ring: int, first_row: float, row: float) -> int:
    """Return the rows of one segment of the ring: until it is worth 32 beginnings, but 8 to 48 in a ring."""
    first_row = max(first_row, STORE_NBYTES / 2)
    worth = math.inf if row <= 0 else (WORTH_OF_BEGINNING - 1) * first_row / row
    return max(1, int(min(max(worth, ring // MOST_SEGMENTS), ring // FEWEST_SEGMENTS)))


def _not_full(growth: ColumnGrowth, records: float) -> int:
    """Return by how much a store may exceed its records: memory pages that are not full, huge ones in a large store."""
    has_pages = growth.item_nbytes > growth.n_stack * SINGLE_PAGE_NBYTES
    return HUGE_NBYTES if has_pages and records > HUGE_FROM else PAGE_NBYTES


def _why(growth: ColumnGrowth, probe: LeanProbe) -> str:
    step, reset = (format_size(max(round(each), 0)) for each in (growth.step, growth.reset))
    seen = f"{probe.episodes:,} episodes of about {probe.episode_mean:,.0f} steps ended"
    if not probe.episodes:
        seen = "no episode ended"
        if probe.time_limit:
            seen += f", they are cut off after {probe.time_limit:,}"
    stack = f", stacks of {growth.n_stack}" if growth.n_stack > 1 else ""
    return (
        f"{step} a step and {reset} more where an episode begins{stack}, "
        f"as in {probe.steps:,} random steps of the env ({seen})"
    )


# What stays in memory of spilled records (versions of pages, places of rows, hashes), of their bytes, and for each
# store beside: arenas that are still written to, tables. Noise of 28 KB to 1.8 MB per observation, 8 to 55 times the
# limit: 0.7 % and 8 MiB to 2.2 % and 4 MiB (2026-11-16, `bench.spill` of d63e92e7).
INDEX_SHARE, INDEX_SHARE_ERROR = 0.014, 0.008
OPEN_NBYTES, OPEN_ERROR = 8 * MIB, 5 * MIB


def within_limit(run: Run, items: Iterable[Item]) -> Iterator[Item]:
    """Yield the observations in lean storage with no more in memory than the run's limit lets in, the rest on disk."""
    stored = list(items)
    limit = run.memory.max_bytes
    high = sum(item.nbytes + item.error for item in stored)
    if limit is None or high <= limit:
        yield from stored
        return
    total = sum(item.nbytes for item in stored)
    for item in stored:
        share = (item.nbytes + item.error) * limit // high
        nbytes = min(item.nbytes, share)
        why = f"{item.why}; no more than memory.max_bytes = {format_size(limit)} stay in memory"
        yield replace(item, nbytes=nbytes, error=min(item.error, share - nbytes), why=why)
    current = 2 * run.env.n_envs * observation_nbytes(run)
    error = int(INDEX_SHARE_ERROR * high) + OPEN_ERROR
    yield Item(
        "storage.index of spilled", int(INDEX_SHARE * high) + OPEN_NBYTES + current, Place.HOST,
        "where each record is on disk, and what is still written to", stored[0].phases, error=error,
    )  # fmt: skip
    spilled, error = max(total - limit, 0), high - max(total, limit)
    yield Item("storage.spilled", spilled, Place.DISK, "records beyond memory.max_bytes", stored[0].phases, error=error)
