"""Fewer samples that say the same: of each stretch of time the lowest and the highest stay, so no peak is lost.

Averages would hide exactly what a curve of memory is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def thinned(samples: Sequence[T], most: int, time: Callable[[T], float], height: Callable[[T], float]) -> Sequence[T]:
    """Return at most `most` (at least 4) of the samples in order, the first and the last and every extreme among them.

    Args:
        samples: in the order of their time.
    """
    if len(samples) <= most:
        return samples
    begin, end = time(samples[0]), time(samples[-1])
    stretches = max((most - 2) // 2, 1)
    kept: dict[int, list[T]] = {}
    for sample in samples[1:-1]:
        here = min(int((time(sample) - begin) / (end - begin) * stretches), stretches - 1) if end > begin else 0
        extremes = kept.setdefault(here, [])
        extremes.append(sample)
        if len(extremes) > 2:
            ranked = sorted(extremes, key=height)
            extremes[:] = sorted((ranked[0], ranked[-1]), key=time)
    return [samples[0], *(sample for here in sorted(kept) for sample in kept[here]), samples[-1]]
