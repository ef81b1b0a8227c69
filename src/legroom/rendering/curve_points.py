"""What of a curve is drawn, on pages: few points that look the same, phases, a near limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from legroom.growth.thinning import thinned

Points = list[tuple[float, float]]

POINTS = 600  # of a curve: about one per pixel and a half
NEAR = 3.0  # a limit up to this many times what is drawn is drawn too
STRETCHES = 160  # with more changes of phase than this, shades would be stripes


class Stretch(NamedTuple):
    """A time in which one phase went on."""

    begin: float
    end: float
    phase: str


def thin(points: Sequence[tuple[float, float]], most: int) -> Points:
    """Return at most `most` (at least 4) of the points, in order, the extremes of every stretch among them.

    Points that are not finite are left out.
    """
    known = sorted((p for p in points if math.isfinite(p[0]) and math.isfinite(p[1])), key=itemgetter(0))
    return list(thinned(known, most, itemgetter(0), itemgetter(1)))


def is_near(limit: float | None, top: float) -> bool:
    """Say whether a limit is drawn beside what reaches up to `top`: a curve far below it would be a flat line."""
    return limit is not None and limit <= NEAR * top


def phase_stretches(moments: Sequence[tuple[float, str]]) -> list[Stretch]:
    """Return which phase went on when: each lasts until the next one begins."""
    stretches: list[Stretch] = []
    for seconds, phase in sorted((moment for moment in moments if math.isfinite(moment[0])), key=lambda m: m[0]):
        if stretches:
            stretches[-1] = stretches[-1]._replace(end=seconds)
        if not stretches or stretches[-1].phase != phase:
            stretches.append(Stretch(seconds, seconds, phase))
    return stretches
