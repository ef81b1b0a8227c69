"""A Trace: memory over time, measured; and what came of watching a command.

Times are seconds since the watching began, sizes are bytes. The memory of a tree of processes is the sum of their PSS,
so that a page several of them share counts once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from legroom.model.explanation import Explanation
from legroom.model.profile import LeakVerdict
from legroom.model.shown import ShownInNotebooks

Role = Literal["trainer", "workers", "others"]
ROLES: tuple[Role, ...] = get_args(Role)
PhaseName = Literal["start", "fill", "steady"]
LimitOrigin = Literal["given", "container", "machine"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory of a whole tree at one moment.

    Args:
        gpu: None where no GPU could be asked.
        untouched: asked for and not written yet: a buffer made by `np.zeros` becomes resident only while it fills.
        files: resident pages of files, once per process: libraries and mapped data. The kernel takes them back at need.
    """

    t: float
    host: int
    gpu: int | None
    by_role: Mapping[Role, int]
    untouched: int = 0
    files: int = 0


@dataclass(frozen=True)
class GrowthPhase:
    """A time of one kind of growth: `start` (programs and libraries load), `fill` (more and more), `steady`."""

    name: PhaseName
    begin: float
    end: float
    peak: int


@dataclass(frozen=True)
class MemoryLimit:
    """The tree's memory at which there is no more, and who says so.

    Args:
        nbytes: for a container or a machine what the tree has plus what is left, so it moves with what others take.
        option: of the command line, where it was given there.
    """

    nbytes: int
    origin: LimitOrigin
    option: str = "--limit"


@dataclass(frozen=True)
class Forecast:
    """When the tree reaches its limit if it goes on as it did.

    Args:
        made: when this was said.
        reaches, earliest, latest: the expected moment and the band around it; `latest` is None where it may never be.
        certain: whether every reading of the growth that fits the samples says so, within a narrow band.
    """

    made: float
    reaches: float
    earliest: float
    latest: float | None
    certain: bool


@dataclass(frozen=True)
class Trace(ShownInNotebooks):
    """The samples of one watching, thinned so that lowest and highest moments stay, and what they say."""

    samples: tuple[Sample, ...]
    peak_host: int
    peak_gpu: int | None
    peak_by_role: Mapping[Role, int]
    verdict: LeakVerdict
    why: str
    phases: tuple[GrowthPhase, ...]
    forecasts: tuple[Forecast, ...]  # as they were made, the last one last
    growth_per_s: float  # at the end, bytes per second; 0 where it is steady


@dataclass(frozen=True)
class Watched:
    """What came of watching: how the command ended, why, and its memory over time.

    Args:
        command: empty where a running process was attached to.
        exit_code: 128 + signal where a signal ended it; None where it still runs or nobody could tell.
        explanation: what ran out; None where it ended well or not for want of memory.
        of_memory: whether it ran out of memory; None where that is not certain.
        left_behind: processes of the tree that outlived its root.
        exact: False where only RSS could be read, which counts shared pages once per process.
        trouble: why samples end before the command does; empty where they do not.
        own_cpu_s, command_cpu_s: processor time of the watching and of what was watched.
    """

    command: tuple[str, ...]
    pid: int
    began: float  # seconds since 1970
    seconds: float
    exit_code: int | None
    signal: int | None
    trace: Trace
    limit: MemoryLimit | None
    exceeded: float | None  # when the tree first was above a limit that was given
    explanation: Explanation | None
    of_memory: bool | None
    hint: str  # the command that says what would have fitted
    left_behind: tuple[int, ...] = ()
    exact: bool = True
    trouble: str = ""
    own_cpu_s: float = 0.0
    command_cpu_s: float = 0.0
