"""How far predictions of host memory were off on this machine, and what that says about the next one's band.

Every training that ends knows what was predicted and what it took. The latest of these pairs are kept in one small file
beside what else was measured here. A band that held too often is narrowed by them, one that did not hold is widened:
by the errors of runs that were predicted in the same way, in units of their own bands. Few runs can only widen.

Other processes that have the same libraries loaded make a measured PSS smaller; what that can explain is no error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from legroom.machine.cache import cache_folder, read_json, write_json
from legroom.model.footprint import Peak

FILE = "history.json"
VARIABLE = "LEGROOM_HISTORY"  # "off": nothing is kept, and bands are as they come
MOST = 300  # runs that are kept
ENOUGH = 20  # runs of one way of predicting from which on a band may become narrower
LEVEL = 0.95  # of runs that are to lie inside
NARROWEST, WIDEST = 0.6, 3.0
MARGIN = 1.1
SHARED_LIBRARIES = 90_000_000  # pages of torch and SB3 that a neighbour may take its share of


@dataclass(frozen=True)
class PastRun:
    """One training that has ended: what was said of its host memory, and what it took, in bytes.

    Args:
        way: how it was predicted; errors of one way say nothing about another.
        scale: what the band had been stretched by.
        seen_by: the command or callback that measured it.
    """

    name: str
    way: str
    predicted: int
    low: int
    high: int
    measured: int
    scale: float = 1.0
    seen_by: str = ""
    when: float = 0.0

    @property
    def inside(self) -> bool:
        return self.low <= self.measured <= self.high

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1 if self.measured else 0.0

    @property
    def stretch(self) -> float:
        """Return by how much the unscaled band would have had to be stretched to end where the truth was."""
        if self.measured >= self.predicted:
            beyond, half = self.measured - self.predicted, self.high - self.predicted
        else:
            beyond, half = self.predicted - self.measured, self.predicted - self.low
            beyond -= min(SHARED_LIBRARIES, max(beyond - half, 0))
        return self.scale * beyond / half if half > 0 else 1.0


def past_runs() -> list[PastRun]:
    """Return what is kept, the oldest first; what is damaged is left out."""
    if os.environ.get(VARIABLE) == "off":
        return []
    content = read_json(cache_folder() / FILE)
    found = content.get("runs") if isinstance(content, dict) else None
    return [run for each in found if (run := _read(each)) is not None] if isinstance(found, list) else []


def remember_run(name: str, way: str, peak: Peak, measured: int, *, scale: float, seen_by: str) -> PastRun:
    """Keep one more run; the oldest give way."""
    run = PastRun(name, way, peak.nbytes, peak.low, peak.high, measured, round(scale, 3), seen_by, round(time.time()))
    if os.environ.get(VARIABLE) != "off":
        kept = [*past_runs(), run][-MOST:]
        write_json(cache_folder() / FILE, {"runs": [asdict(each) for each in kept]})
    return run


def band_scale(way: str, runs: Iterable[PastRun] | None = None) -> float:
    """Return what to stretch bands of this way of predicting by; 1 where this machine says nothing about them."""
    stretches = sorted(run.stretch for run in (past_runs() if runs is None else runs) if run.way == way)
    if not stretches:
        return 1.0
    if len(stretches) < ENOUGH:  # the largest is all that is known of the tail
        return min(max(1.0, MARGIN * stretches[-1] if stretches[-1] > 1 else 1.0), WIDEST)
    needed = stretches[min(int(LEVEL * len(stretches)), len(stretches) - 1)]
    return min(max(MARGIN * needed, NARROWEST), WIDEST)


def _read(data: object) -> PastRun | None:
    if not isinstance(data, Mapping):
        return None
    try:
        run = PastRun(**data)
        numbers = (run.predicted, run.low, run.high, run.measured)
        good = all(type(n) is int and 0 <= n < 1 << 50 for n in numbers) and 0 < run.scale <= WIDEST
        return run if good and isinstance(run.name, str) and isinstance(run.way, str) else None
    except TypeError:
        return None
