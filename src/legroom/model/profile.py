"""A Profile: what one environment costs while it is stepped; nouns only, filled by `profiling`.

Sizes are bytes, steps are steps of one environment. What was not measured is None or empty, never a guess: a profile
of the leak alone has no `observation`, no `parallel` and no `fits_envs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

LeakVerdict = Literal["leak", "growing", "ok"]


@dataclass(frozen=True)
class LeakLine:
    """A line of the user's own code and what it leaves behind per step; `function` is the one it stands in."""

    file: str
    line: int
    bytes_per_step: float
    function: str = ""


@dataclass(frozen=True)
class Curve:
    """Memory in use while stepping, sampled: one entry of each field per sample.

    Args:
        python: bytes in Python's own small objects (counted blocks times their mean size).
        malloc: bytes handed out by the C allocator: NumPy arrays, large objects, what libraries allocate.
        resident: resident bytes of the process, as the kernel counts them.
    """

    steps: tuple[int, ...] = ()
    python: tuple[int, ...] = ()
    malloc: tuple[int, ...] = ()
    resident: tuple[int, ...] = ()


@dataclass(frozen=True)
class Leak:
    """Whether memory goes on growing while an environment is stepped, by how much, and where.

    Args:
        verdict: `leak`: it grows steadily, however the beginning is read; `growing`: it grew to the end, but may be
            about to settle; `ok`: it does not grow.
        interval: between these the bytes per step lie.
        lines: the lines that leave memory behind, largest first; only looked for after a verdict other than `ok`.
        found_by: `memray` or `tracemalloc`; empty where no line was looked for.
        why: the verdict in words, and what kept lines from being found.
        steps_left: after about so many steps this machine has no memory left; None where nothing says so.
    """

    verdict: LeakVerdict
    bytes_per_step: float
    interval: tuple[float, float]
    lines: tuple[LeakLine, ...] = ()
    found_by: str = ""
    why: str = ""
    steps_left: int | None = None


@dataclass(frozen=True)
class Profile:
    """What one environment costs.

    Args:
        env: as the user named it.
        steps: taken in all, including those added because the first did not decide.
        steps_per_s: of the environment with random actions, without the time that measuring took.
        leak: the verdict on growth.
        own_cpu_share: processor time of the measuring, as a share of the environment's.
        level: bytes in use (Python objects and C allocator) at the end.
        observation: what an observation costs; `profiling.observation` fills it.
        parallel: one entry per number of processes; `profiling.parallel` fills it.
        fits_envs: how many environments fit in this machine; None where it was not measured.
    """

    env: str
    steps: int
    steps_per_s: float
    leak: Leak
    own_cpu_share: float = 0.0
    level: int = 0
    curve: Curve = Curve()
    observation: Any = None
    parallel: tuple[Any, ...] = ()
    fits_envs: int | None = None
