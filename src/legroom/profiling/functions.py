"""Where an environment spends its time, function by function: Python's own profiler, in a pass of its own.

It slows every call down, so nothing else is measured meanwhile. The file is what `pstats` and its viewers read.
"""

from __future__ import annotations

import cProfile
from typing import Any

from legroom.profiling.stepping import SEED, Stepper


def write_cprofile(
    env: Any, built_from: dict[str, Any], folder: str, *, file: str, steps: int, seed: int = SEED
) -> dict[str, Any]:
    """Step the environment under cProfile, write `file` and return the steps taken.

    Raises:
        EnvError: the environment raised.
    """
    stepper = Stepper(env, seed=seed)
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        stepper.advance(steps)
    finally:
        profiler.disable()
    profiler.dump_stats(file)
    return {"steps": stepper.steps}
