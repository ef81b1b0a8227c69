"""Steps to turn a setting by, down to make a run fit and up to use what is free: what several backends share."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from legroom.backends.base import hyper
from legroom.fitting.changes import with_settings
from legroom.model.evidence import Evidence
from legroom.model.knob import Growth
from legroom.model.run import Run

Ladder = Callable[[Run, Evidence], Iterator[Run]]
NARROWEST_LAYER = 8
NEVER_FILLS = "a buffer over the run's total would never fill"


def one_setting(where: Callable[[Run, Evidence], bool], **parts: dict[str, Any]) -> Ladder:
    """Return the ladder of a knob with one setting (`with_settings`), `where` that does something for a run."""

    def ladder(run: Run, evidence: Evidence) -> Iterator[Run]:
        if where(run, evidence):
            yield with_settings(run, **parts)

    return ladder


def halves(size: float) -> Iterator[int]:
    """Yield half of it, a quarter, ... down to 1."""
    whole = int(size)
    while whole > 1:
        whole //= 2
        yield whole


def divisors_below(whole: int) -> list[int]:
    """Return the divisors of `whole` below it, largest first."""
    small = [n for n in range(1, math.isqrt(whole) + 1) if whole % n == 0]
    return sorted({n for d in small for n in (d, whole // d)} - {whole}, reverse=True)


def narrower_layers(run: Run, widths: Mapping[str, Any]) -> Iterator[Run]:
    """Yield the run with hidden layers of half the width, a quarter, ...; `widths` are its own, by policy keyword."""
    while any(_widest(value) > NARROWEST_LAYER for value in widths.values()):
        widths = {key: _narrower(value) for key, value in widths.items()}
        yield with_settings(run, policy={"kwargs": {**run.policy.kwargs, **widths}})


def smaller_rings(run: Run, key: str, size: int, least: int) -> Iterator[Run]:
    """Yield the run with replay buffers of three quarters of the size, and again, down to the least."""
    while size > least:
        size = max(int(size * 0.75), least)
        yield with_settings(run, hyperparams={key: size})


def larger_replay(run: Run, key: str) -> Growth:
    """Return the way to a larger replay buffer, whose size is the hyperparameter `key`."""

    def larger(factor: float) -> Run | None:
        size = int((hyper(run, key) or 0) * factor)
        fills = run.total_timesteps is None or size <= run.total_timesteps
        return with_settings(run, hyperparams={key: size}) if size and fills else None

    return Growth("older experience stays longer", larger, "" if run.total_timesteps is None else NEVER_FILLS)


def _widest(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else [value]
    return max((n if isinstance(n, int) else _widest(n) for part in parts for n in part), default=0)


def _narrower(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _narrower(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_narrower(part) for part in value]
    return max(value // 2, min(value, NARROWEST_LAYER))
