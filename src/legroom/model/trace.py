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
class EnvLeak:
    """Whether memory goes on growing while an environment is stepped, by how much, and where.

    Args:
        verdict: `leak`: it grows steadily, however the beginning is read; `growing`: it grew to the end, but may be
            about to settle; `ok`: it does not grow.
        interval: between these the bytes per step lie.
        lines: the lines that leave memory behind, largest first; only looked for after a verdict other than `ok`.
        kept_in: containers that grow with the steps, the fastest first, by the name under which they are kept; only
            looked for with the lines.
        found_by: `tracemalloc`, `malloc` or both; empty where no line was looked for.
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
        constant: all observations seen were the same here.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    returned: str = ""
    aliases: bool = False
    changes_after: int | None = None
    constant: bool = False


@dataclass(frozen=True)
class ObservationCost:
    """What one observation costs.

    Args:
        nbytes: of one, as the environment's space has it.
        stack: frames that the run stacks.
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
    leak: EnvLeak
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
class FigureChange:
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
    """What ran out and what to do.

    Args:
        requested: what was asked for when it failed.
        capacity: what there is in all: the card, the node, the limit.
        free: what the text says was still free.
        allocated: what was in use: by PyTorch on the card, by the process that was killed, on the node.
        reserved_unallocated: held by PyTorch's allocator and not in use.
        others: held by other processes on the same GPU; 0 where the text says that there are none.
        outside: held outside PyTorch: by CUDA and libraries in this process, or where the text does not say by whom.
        certain: False where the text allows another reading; `summary` then says so.
        summary: one or two sentences in plain words.
        cause: what most likely allocated it; empty where nothing tells.
        notes: facts with numbers that have no field of their own.
        command: the one command to start with.
    """

    kind: Kind
    certain: bool
    summary: str
    requested: int | None = None
    capacity: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved_unallocated: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    others: int | None = None
    outside: int | None = None
    cause: str = ""
    dimensions: tuple[Dimension, ...] = ()
    notes: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    command: str = ""

    @property
    def recognised(self) -> bool:
        return self.kind != "unknown"


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
