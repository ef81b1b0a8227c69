"""A Profile: what one environment costs while it is stepped; nouns only, filled by `profiling`.

Sizes are bytes, steps are steps of one environment. What was not measured is None or empty, never a guess: a profile
of the leak alone has no `observation`, no `parallel` and no `fits_envs`.
"""

from dataclasses import dataclass
from typing import Literal

from legroom.units import format_size

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
        kept_in: containers that grow with the steps, the fastest first, by the name under which they are kept; only
            looked for with the lines.
        found_by: `memray` or `tracemalloc`; empty where no line was looked for.
        why: the verdict in words, and what kept lines from being found.
        steps_left: after about so many steps this machine has no memory left; None where nothing says so.
    """

    verdict: LeakVerdict
    bytes_per_step: float
    interval: tuple[float, float]
    lines: tuple[LeakLine, ...] = ()
    kept_in: tuple[str, ...] = ()
    found_by: str = ""
    why: str = ""
    steps_left: int | None = None


@dataclass(frozen=True)
class KeyCost:
    """One array of an observation, as a buffer stores it.

    Args:
        key: of a Dict space (`a/b` where it is nested), the position in a Tuple; `observation` where it is alone.
        returned: the dtype that the environment really returns, empty where it is the space's.
        aliases: this key alone, as `ObservationCost.aliases_env_memory`.
        changes_after: an observation handed out had changed after so many further steps; None where none was seen to.
        buffer: the environment's attribute whose memory it shares, such as `self.screen`; empty where none was found.
        constant: all observations seen were the same here.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    returned: str = ""
    aliases: bool = False
    changes_after: int | None = None
    buffer: str = ""
    constant: bool = False


@dataclass(frozen=True)
class ObservationCost:
    """What one observation costs.

    Args:
        nbytes: of one, as the environment's space has it.
        stack: frames in it: those of a wrapper in `nbytes` already, those of the run's `frame_stack` on top.
        stacked_nbytes: what a buffer stores per step.
        rollout_steps: steps of all environments between two updates, where the run says so; 1,000 otherwise.
        rollout_said: whether the run says so.
        aliases_env_memory: an observation handed out earlier shares memory with a later one, or changes later.
        changes_at_reset: the last observation of an episode changes as the next one begins.
        checked: observations looked at.
    """

    nbytes: int
    keys: tuple[KeyCost, ...]
    stack: int
    stacked_nbytes: int
    rollout_steps: int
    rollout_said: bool
    aliases_env_memory: bool
    changes_at_reset: bool
    checked: int

    @property
    def rollout_nbytes(self) -> int:
        return self.rollout_steps * self.stacked_nbytes


@dataclass(frozen=True)
class ParallelRow:
    """So many environments, each in a light worker process.

    Args:
        pss: of all of them and the process they are forked from; what several share counts once.
        uss_per_env: what one has for itself alone, the median.
        shared: of `pss`, what more than one process maps: the interpreter, libraries, shared arrays, observations.
        forked: from a template; a single worker is an interpreter of its own.
    """

    envs: int
    pss: int
    uss_per_env: int
    shared: int
    forked: bool


@dataclass(frozen=True)
class Scaling:
    """What one more environment costs, by a line through the rows.

    Args:
        marginal: bytes of one more environment; None where too few were measured.
        interval: between these it lies, by the spread about the line; None where there is no line.
        budget: bytes that `fits_envs` was counted for.
        why: why there are no rows, or fewer than asked for, in one line.
    """

    marginal: int | None = None
    interval: tuple[int, int] | None = None
    budget: int = 0
    why: str = ""


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
        level_interval: between these it lay in the later half of the run.
        observation: what an observation costs.
        parallel: one entry per number of processes, `scaling` what they say about one more.
        fits_envs: how many environments fit in this machine; None where it was not measured.
    """

    env: str
    steps: int
    steps_per_s: float
    leak: Leak
    own_cpu_share: float = 0.0
    level: int = 0
    curve: Curve = Curve()
    observation: ObservationCost | None = None
    parallel: tuple[ParallelRow, ...] = ()
    fits_envs: int | None = None
    scaling: Scaling = Scaling()
    level_interval: tuple[int, int] | None = None

    def __repr__(self) -> str:
        verdict = "no leak" if self.leak.verdict == "ok" else self.leak.verdict
        pace = f"{self.steps_per_s:,.0f} steps per second"
        return f"Profile({self.env}: {verdict}, {pace}, {format_size(self.level)} in use)"


@dataclass(frozen=True)
class Change:
    """One figure before and now, each with what it lies between; None where it was not measured.

    Args:
        what: `level`, `bytes_per_step` or `marginal`.
        verdict: `same` where the intervals meet: the difference may be noise. `unknown` where one is missing.
        why: what keeps them from being compared.
    """

    what: Literal["level", "bytes_per_step", "marginal"]
    before: float | None
    now: float | None
    before_interval: tuple[float, float] | None
    now_interval: tuple[float, float] | None
    verdict: Literal["better", "worse", "same", "unknown"]
    why: str = ""


@dataclass(frozen=True)
class Comparison:
    """A profile against an earlier one; `notes` say what makes them hard to compare."""

    baseline: str
    changes: tuple[Change, ...]
    leak_before: str
    notes: tuple[str, ...] = ()
