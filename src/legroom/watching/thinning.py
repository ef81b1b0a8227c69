"""Fewer samples that say the same: of each stretch of time the lowest and the highest stay."""

from __future__ import annotations

from collections.abc import Sequence

from legroom.model.trace import Sample


def thinned(samples: Sequence[Sample], most: int) -> Sequence[Sample]:
    """Return at most `most` (at least 4) samples in order, the first and the last and every extreme among them."""
    if len(samples) <= most:
        return samples
    begin, end = samples[0].t, samples[-1].t
    stretches = max((most - 2) // 2, 1)
    kept: dict[int, list[Sample]] = {}
    for sample in samples[1:-1]:
        here = min(int((sample.t - begin) / (end - begin) * stretches), stretches - 1) if end > begin else 0
        extremes = kept.setdefault(here, [])
        extremes.append(sample)
        if len(extremes) > 2:
            ranked = sorted(extremes, key=lambda one: one.host)
            extremes[:] = sorted((ranked[0], ranked[-1]), key=lambda one: one.t)
    return [samples[0], *(sample for here in sorted(kept) for sample in kept[here]), samples[-1]]
