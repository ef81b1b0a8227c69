"""Predict lean storage that spills: beyond `memory.max_bytes` the oldest records go to disk, their index does not.

Whether observations compress as well as a probe promised is the least certain figure of a prediction. A limit makes it
certain: what it does not let into memory is on disk, whatever the environment shows.

Mirrors `storing.budget`: one limit for all parts of the observations together, enforced at every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from legroom.backends.sb3.stored import observation_nbytes
from legroom.model.footprint import Item, Place
from legroom.model.run import Run
from legroom.units import MIB, format_size

# What stays in memory of spilled records (versions of pages, places of rows, hashes), of their bytes, and for each
# store beside: arenas that are still written to, tables. Noise of 28 KB to 1.8 MB per observation, 8 to 55 times the
# limit: 0.7 % and 8 MiB to 2.2 % and 4 MiB (2026-11-16, `python -m bench.spill`).
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
