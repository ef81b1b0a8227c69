"""What was measured: memory over time, what one environment costs, and what an out-of-memory text says.

Times are seconds since the watching began, sizes are bytes, steps are steps of one environment. The memory of a tree of
processes is the sum of their PSS, so that a page several of them share counts once. What was not measured is None or
empty, never a guess.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from legroom.model.plan import Price
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
    """Memory in use while stepping, sampled: one entry of each field per sample."""

    steps: tuple[int, ...] = ()
    python: tuple[int, ...] = ()  # bytes in Python's own small objects (counted blocks times their mean size)
    # bytes handed out by the C allocator: NumPy arrays, large objects, what libraries allocate
    malloc: tuple[int, ...] = ()
    resident: tuple[int, ...] = ()  # resident bytes of the process, as the kernel counts them


@dataclass(frozen=True)
class EnvLeak:
    """Whether memory goes on growing while an environment is stepped, by how much, and where."""

    # `leak`: it grows steadily, however the beginning is read; `growing`: it grew to the end, but may be about to
    # settle; `ok`: it does not grow
    verdict: LeakVerdict
    bytes_per_step: float
    interval: tuple[float, float]  # between these the bytes per step lie
    # the lines that leave memory behind, largest first; only looked for after a verdict other than `ok`
    lines: tuple[LeakLine, ...] = ()
    # containers that grow with the steps, the fastest first, by the name under which they are kept; only looked for
    # with the lines
    kept_in: tuple[str, ...] = ()
    found_by: str = ""  # `tracemalloc`, `malloc` or both; empty where no line was looked for
    why: str = ""  # the verdict in words, and what kept lines from being found
    # after about so many steps this machine has no memory left; None where nothing says so
    steps_left: int | None = None


@dataclass(frozen=True)
class KeyCost:
    """One array of an observation, as a buffer stores it."""

    key: str  # of a Dict space (`a/b` where it is nested), the position in a Tuple; `observation` where it is alone
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    returned: str = ""  # the dtype that the environment really returns, empty where it is the space's
    aliases: bool = False  # this key alone, as `ObservationCost.aliases_env_memory`
    # an observation handed out had changed after so many further steps; None where none was seen to
    changes_after: int | None = None
    constant: bool = False  # all observations seen were the same here


@dataclass(frozen=True)
class ObservationCost:
    """What one observation costs."""

    nbytes: int  # of one, as the environment's space has it
    keys: tuple[KeyCost, ...]
    stack: int  # frames that the run stacks
    stacked_nbytes: int  # what a buffer stores per step
    rollout_steps: int  # steps of all environments between two updates, where the run says so; 1,000 otherwise
    rollout_said: bool  # whether the run says so
    aliases_env_memory: bool  # an observation handed out earlier shares memory with a later one, or changes later
    changes_at_reset: bool  # the last observation of an episode changes as the next one begins
    checked: int  # observations looked at

    @property
    def rollout_nbytes(self) -> int:
        return self.rollout_steps * self.stacked_nbytes


@dataclass(frozen=True)
class ParallelRow:
    """So many environments, each in a light worker process."""

    envs: int
    pss: int  # of all of them and the process they are forked from; what several share counts once
    uss_per_env: int  # what one has for itself alone, the median
    shared: int  # of `pss`, what more than one process maps: the interpreter, libraries, shared arrays, observations
    forked: bool  # from a template; a single worker is an interpreter of its own


@dataclass(frozen=True)
class Scaling:
    """What one more environment costs, by a line through the rows."""

    marginal: int | None = None  # bytes of one more environment; None where too few were measured
    # between these it lies, by the spread about the line; None where there is no line
    interval: tuple[int, int] | None = None
    budget: int = 0  # bytes that `fits_envs` was counted for
    why: str = ""  # why there are no rows, or fewer than asked for, in one line


@dataclass(frozen=True)
class Profile:
    """What one environment costs."""

    env: str  # as the user named it
    steps: int  # taken in all, including those added because the first did not decide
    steps_per_s: float  # of the environment with random actions, without the time that measuring took
    leak: EnvLeak  # the verdict on growth
    own_cpu_share: float = 0.0  # processor time of the measuring, as a share of the environment's
    level: int = 0  # bytes in use (Python objects and C allocator) at the end
    curve: Curve = Curve()
    observation: ObservationCost | None = None  # what an observation costs
    parallel: tuple[ParallelRow, ...] = ()  # one entry per number of processes, `scaling` what they say about one more
    fits_envs: int | None = None  # how many environments fit in this machine; None where it was not measured
    scaling: Scaling = Scaling()
    level_interval: tuple[int, int] | None = None  # between these it lay in the later half of the run

    def __repr__(self) -> str:
        verdict = "no leak" if self.leak.verdict == "ok" else self.leak.verdict
        pace = f"{self.steps_per_s:,.0f} steps per second"
        return f"Profile({self.env}: {verdict}, {pace}, {format_size(self.level)} in use)"


@dataclass(frozen=True)
class FigureChange:
    """One figure before and now, each with what it lies between; None where it was not measured."""

    what: Literal["level", "bytes_per_step", "marginal"]  # `level`, `bytes_per_step` or `marginal`
    before: float | None
    now: float | None
    before_interval: tuple[float, float] | None
    now_interval: tuple[float, float] | None
    # `same` where the intervals meet: the difference may be noise. `unknown` where one is missing.
    verdict: Literal["better", "worse", "same", "unknown"]
    why: str = ""  # what keeps them from being compared


@dataclass(frozen=True)
class Comparison:
    """A profile against an earlier one; `notes` say what makes them hard to compare."""

    baseline: str
    changes: tuple[FigureChange, ...]
    leak_before: str
    notes: tuple[str, ...] = ()


Kind = Literal[
    "host-array", "host-allocator", "cuda", "cublas", "mps", "jax", "killed", "container", "slurm", "worker-died",
    "ray", "shm", "pagefile", "fork", "checkpoint-corrupt", "simulator", "simulator-buffer",
    "kv-cache", "assertion", "unknown",
]  # fmt: skip
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Advice:
    """One thing that helps: the key to turn, its price, a sentence and a command to copy."""

    knob: str
    price: Price
    say: str
    command: str


@dataclass(frozen=True)
class Dimension:
    """One factor of an array's size; an observation is one factor with several axes."""

    name: str
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        inside = f"{self.sizes[0]:,}" if len(self.sizes) == 1 else f"({', '.join(map(str, self.sizes))})"
        return f"{self.name} {inside}"


@dataclass(frozen=True)
class Explanation:
    """What ran out and what to do."""

    kind: Kind
    certain: bool  # False where the text allows another reading; `summary` then says so
    summary: str  # one or two sentences in plain words
    requested: int | None = None  # what was asked for when it failed
    capacity: int | None = None  # what there is in all: the card, the node, the limit
    free: int | None = None  # what the text says was still free
    allocated: int | None = None  # what was in use: by PyTorch on the card, by the process that was killed, on the node
    reserved_unallocated: int | None = None  # held by PyTorch's allocator and not in use
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    others: int | None = None  # held by other processes on the same GPU; 0 where the text says that there are none
    # held outside PyTorch: by CUDA and libraries in this process, or where the text does not say by whom
    outside: int | None = None
    cause: str = ""  # what most likely allocated it; empty where nothing tells
    dimensions: tuple[Dimension, ...] = ()
    notes: tuple[str, ...] = ()  # facts with numbers that have no field of their own
    advice: tuple[Advice, ...] = ()
    command: str = ""  # the one command to start with

    @property
    def recognised(self) -> bool:
        return self.kind != "unknown"


Role = Literal["trainer", "workers", "others"]
ROLES: tuple[Role, ...] = get_args(Role)
PhaseName = Literal["start", "fill", "steady"]
LimitOrigin = Literal["given", "container", "machine"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory of a whole tree at one moment."""

    t: float
    host: int
    gpu: int | None  # None where no GPU could be asked
    by_role: Mapping[Role, int]
    # asked for and not written yet: a buffer made by `np.zeros` becomes resident only while it fills
    untouched: int = 0
    # resident pages of files, once per process: libraries and mapped data. The kernel takes them back at need.
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
    """The tree's memory at which there is no more, and who says so."""

    nbytes: int  # for a container or a machine what the tree has plus what is left, so it moves with what others take
    origin: LimitOrigin
    option: str = "--limit"  # of the command line, where it was given there


@dataclass(frozen=True)
class Forecast:
    """When the tree reaches its limit if it goes on as it did."""

    made: float  # when this was said
    reaches: float  # the expected moment and the band around it; `latest` is None where it may never be
    earliest: float
    latest: float | None
    certain: bool  # whether every reading of the growth that fits the samples says so, within a narrow band


@dataclass(frozen=True)
class Trace:
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
    """What came of watching: how the command ended, why, and its memory over time."""

    command: tuple[str, ...]  # empty where a running process was attached to
    pid: int
    began: float  # seconds since 1970
    seconds: float
    exit_code: int | None  # 128 + signal where a signal ended it; None where it still runs or nobody could tell
    signal: int | None
    trace: Trace
    limit: MemoryLimit | None
    exceeded: float | None  # when the tree first was above a limit that was given
    explanation: Explanation | None  # what ran out; None where it ended well or not for want of memory
    of_memory: bool | None  # whether it ran out of memory; None where that is not certain
    hint: str  # the command that says what would have fitted
    left_behind: tuple[int, ...] = ()  # processes of the tree that outlived its root
    exact: bool = True  # False where only RSS could be read, which counts shared pages once per process
    trouble: str = ""  # why samples end before the command does; empty where they do not
    own_cpu_s: float = 0.0  # processor time of the watching and of what was watched
    command_cpu_s: float = 0.0
