"""How fast an environment is stepped, so that two runs can be compared; runs in the child.

On a shared machine the same program is half as fast a minute later: other programs, the processor's clock, another
virtual machine. So the environment takes turns with a small program of our own that never changes, ten milliseconds
each, and its pace is told relative to that: what slows the machine down slows both. Time in which the process was ready
and had to wait for a processor is left out; Linux says how much that was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from legroom.profiling.stepping import SEED, Stepper

SECONDS, TURN_S = 2.5, 0.01
LEAST_TURNS = 8
WARM_UP_SHARE = 0.1
SPREAD = 1.4826  # from the median deviation to the standard deviation, were it normal
MEDIAN_ERROR = 1.2533  # of a median, in standard errors of a mean
QUANTILE = 3.0
LEAST_SHARE = 0.12  # three times what processes of one program differ by (CartPole, ninja; 2 busy cores, 2026-11)


def measure_pace(
    env: Any, built_from: dict[str, Any], folder: str, *, seconds: float = SECONDS, seed: int = SEED
) -> dict[str, Any]:
    """Return `steps_per_s`, `relative` (steps per run of the reference) and its `interval`, None for too few turns.

    Raises:
        EnvError: the environment raised.
    """
    stepper, now = Stepper(env, seed=seed), _clock()
    began = now()  # on a busy machine, seconds by the wall would be too few turns to tell noise
    while now() - began < WARM_UP_SHARE * seconds:
        stepper.advance(1)
        _reference()
    per_turn, references = _per_turn(lambda: stepper.advance(1), now), _per_turn(_reference, now)
    relative: list[float] = []
    paces: list[float] = []
    while not paces or now() - began < seconds:
        times = [now()]
        for _ in range(references):
            _reference()
        times.append(now())
        stepper.advance(per_turn)
        times.append(now())
        took, reference_took = max(times[2] - times[1], 1e-9), max(times[1] - times[0], 1e-9)
        paces.append(per_turn / took)
        relative.append(per_turn / took * reference_took / references)
    middle = _middle(relative)
    interval = None
    if len(relative) >= LEAST_TURNS:
        deviation = SPREAD * _middle([abs(value - middle) for value in relative])
        reach = QUANTILE * MEDIAN_ERROR * deviation / len(relative) ** 0.5 + LEAST_SHARE * middle
        interval = (middle - reach, middle + reach)
    return {"steps_per_s": _middle(paces), "relative": middle, "interval": interval}


def _per_turn(work: Callable[[], None], now: Callable[[], float]) -> int:
    """Return how often something can be done in a turn, at least once."""
    began = now()
    for _ in range(3):
        work()
    return max(1, round(3 * TURN_S / max(now() - began, 1e-9)))


def _clock() -> Callable[[], float]:
    """Return a clock in seconds that stands still while this thread is ready and has no processor."""
    try:
        schedule = os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)  # open as long as the process lives
    except (OSError, AttributeError):
        return time.perf_counter
    # on the processor, waiting for one (both in nanoseconds), and how often it was given one
    return lambda: time.perf_counter() - int(os.pread(schedule, 128, 0).split()[1]) / 1e9


def _reference() -> None:
    """Do what environments do: numbers and a dict in Python, some arithmetic on arrays; half a millisecond of it."""
    table: dict[int, int] = {}
    number = 1
    for _ in range(1_500):
        number = (number * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        table[number & 255] = number
    values = np.arange(4_096, dtype=np.float32)
    for _ in range(20):
        values = values * 0.5 + 1.0


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
