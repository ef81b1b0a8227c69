"""Fewer points that look the same: what a curve of a hundred thousand samples shows on a few hundred pixels.

Each of the stretches that the time is cut into keeps its lowest and its highest point, so no peak is lost, and the
first and the last point stay where they are. Averages would hide exactly what a memory chart is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

Points = list[tuple[float, float]]


class Stretch(NamedTuple):
    """A time in which one phase went on."""

    begin: float
    end: float
    phase: str


def thin(points: Sequence[tuple[float, float]], most: int) -> Points:
    """Return at most `most` (at least 4) of the points, in order, the extremes of every stretch among them.

    Points that are not finite are left out.
    """
    known = sorted((p for p in points if math.isfinite(p[0]) and math.isfinite(p[1])), key=lambda point: point[0])
    if len(known) <= most:
        return known
    first, last = known[0], known[-1]
    buckets = max((most - 2) // 2, 1)
    width = (last[0] - first[0]) / buckets
    kept: Points = [first]
    bucket: Points = []
    number = 0
    for point in known[1:-1]:
        here = min(int((point[0] - first[0]) / width), buckets - 1) if width > 0 else 0
        if here != number:
            kept += _extremes(bucket)
            bucket, number = [], here
        bucket.append(point)
    return [*kept, *_extremes(bucket), last]


def _extremes(bucket: Points) -> Points:
    if len(bucket) <= 2:
        return bucket
    lowest, highest = min(bucket, key=lambda p: p[1]), max(bucket, key=lambda p: p[1])
    return sorted({lowest, highest})


def highest(points: Sequence[tuple[float, float]], most: int, *, begin: float, end: float) -> Points:
    """Return the highest point of each of `most` equal stretches from `begin` to `end`, where there is one."""
    tops: dict[int, tuple[float, float]] = {}
    for point in points:
        if math.isfinite(point[0]) and math.isfinite(point[1]):
            here = min(int((point[0] - begin) / (end - begin) * most), most - 1) if end > begin else 0
            if here not in tops or point[1] > tops[here][1]:
                tops[here] = point
    return [tops[here] for here in sorted(tops)]


def phase_stretches(moments: Sequence[tuple[float, str]]) -> list[Stretch]:
    """Return which phase went on when: each lasts until the next one begins."""
    stretches: list[Stretch] = []
    for seconds, phase in sorted((moment for moment in moments if math.isfinite(moment[0])), key=lambda m: m[0]):
        if stretches:
            stretches[-1] = stretches[-1]._replace(end=seconds)
        if not stretches or stretches[-1].phase != phase:
            stretches.append(Stretch(seconds, seconds, phase))
    return stretches
