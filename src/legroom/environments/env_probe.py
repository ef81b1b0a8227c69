"""Step built environments for a moment and find out what lean storage would make of their observations.

How much successive observations have in common is in no space and no file; a second of random actions shows it. The
time is short, so what is extrapolated from it has a band: from the spread between windows, and from resets, of which a
few are forced so that the price of a new episode is known even where none ended. Runs in `env_child`, never in the
process of the user.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import prod
from typing import Any

import numpy as np

from legroom.environments.env_steps import Row, Streams, stored_dtype
from legroom.environments.lean_meter import Meter
from legroom.model.evidence import LeanProbe
from legroom.model.spaces import BoxSpace, Leaf
from legroom.storing import column, ring

MOST_ROWS, LEAST_ROWS = 512, 32
STEPPING_S = 0.8  # and on to LEAST_ROWS where steps are slow,
SLOW_S = 4.0  # but no longer than this,
FEWEST_ROWS = 8  # which must be enough for these: fewer say nothing
MOST_EPISODES, LEAST_EPISODES = 8, 2  # begun on purpose
EPISODES_S = 0.15
KEPT_NBYTES = 64 << 20  # of plain rows
SAMPLE_NBYTES = 64 << 20  # of observations that stand for other environments


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
