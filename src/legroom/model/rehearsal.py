"""A Rehearsal: what came of running a program on a card that is not there, and the prediction made of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from legroom.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_GOOD, EXIT_INTERRUPTED
from legroom.model.footprint import Assumed, Footprint
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.units import duration_text, format_size

Stopped = Literal["repeats", "finished", "updates", "seconds", "failed", "out-of-memory", "interrupted", "real-limit"]
ENOUGH_BATCHES = 30  # of one shape, where items of different shapes cannot be in one batch
PHASES = ("forward", "backward", "optimizer step")


@dataclass(frozen=True)
class SourceLine:
    """Bytes of one role that a line of the user's source holds on the card; `module` where one was running."""

    file: str
    line: int
    nbytes: int
    function: str = ""
    module: str = ""
    role: str = ""


@dataclass(frozen=True)
class Leak:
    """Memory of the card that grows from step to step."""

    file: str  # what holds it, as far as the source tells; else where it was asked for
    line: int
    nbytes: int  # that each of `steps` steps left behind
    steps: int
    made: tuple[str, int]  # file and line of the tensor that is kept


@dataclass(frozen=True)
class OutOfMemory:
    """A request that did not fit the card: PyTorch's own words, at the user's line."""

    file: str
    line: int
    text: str
    requested: int
    free: int
    caught: bool  # the program went on after it, or ended by itself
    # the line with which it tried the same again with less, and went on training; None where it did not
    retried: tuple[str, int] | None = None
    steps_after: int = 0  # optimizer steps that the same thread made after it


@dataclass(frozen=True)
class Refused:
    """A request of host memory that was larger than what was given."""

    nbytes: int
    file: str = ""  # of the program; an empty file where that is not known
    line: int = 0
    inside: str = ""  # the innermost file that is not NumPy's or torch's
    steps_after: int = 0  # optimizer steps that were made after it

    @property
    def text(self) -> str:
        return f"a request of {format_size(self.nbytes)} was refused" + ("" if self.file else " in a child process")

    @property
    def place(self) -> tuple[str, int] | None:
        return (self.file, self.line) if self.file else None


@dataclass(frozen=True)
class NotReached:
    """A line that a stopped program has not executed, or whose size may change, and that may take GPU memory."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Filling:
    """Host memory that was asked for and is not written yet."""

    nbytes: int  # when it is full
    touched: int  # of it now
    per_s: float  # bytes written to it per second while it trained; 0 where it did not grow
    per_step: float = 0.0  # the same per optimizer step
    file: str = ""  # where it was asked for; an empty file where the guest did not see it
    line: int = 0
    count: int = 1
    what: str = ""  # that fills, where it is no plain array: `deque Agent.memory, at most 25,000`
    error: int = 0  # bytes by which `nbytes` may be wrong
    at_once: bool = False  # all of it is written where it is made (`torch.zeros`), though not while it is rehearsed

    @property
    def seconds(self) -> float | None:
        """Return in how many seconds it is full; None where it does not grow."""
        if self.at_once:
            return 0.0
        return (self.nbytes - self.touched) / self.per_s if self.per_s > 0 else None

    @property
    def steps(self) -> float | None:
        """Return after how many more optimizer steps it is full; None where that is not known."""
        return (self.nbytes - self.touched) / self.per_step if self.per_step > 0 else None

    @property
    def when(self) -> str:
        """Return when it is full, in words."""
        steps = "" if self.steps is None else f"after about {self.steps:,.0f} more optimizer steps, "
        return f"{steps}in about {duration_text(self.seconds or 0.0)}"


@dataclass(frozen=True)
class Endless:
    """Host memory that grows with the steps, with no bound that the source shows."""

    what: str  # a container of the program, `dict Agent.seen`, or where it was seen: `the heap`
    file: str  # that add to it; an empty file where that is not known
    line: int
    per_s: float
    per_step: float = 0.0
    error: float = 0.0  # bytes by which `per_step` may be wrong
    steps_left: float | None = None  # of the run; None where its length is not known

    def seconds_to_fill(self, nbytes: int) -> float:
        """Return how long it takes to fill so much memory."""
        return nbytes / self.per_s if self.per_s > 0 else math.inf

    def steps_to_fill(self, nbytes: int) -> float:
        """Return how many optimizer steps that takes."""
        return nbytes / self.per_step if self.per_step > 0 else math.inf


@dataclass(frozen=True)
class WorkerPages:
    """Memory that forked workers have copied from the program, by writing to it.

    Reading a Python object changes its reference count, and so copies its page.
    """

    workers: int
    copied: int  # bytes so far, of all workers
    later: int  # bytes more that they will take by the end of an epoch, or of the run
    error: int  # bytes by which `later` may be wrong
    missed: int = 0  # bytes of `copied` that no sample of the process tree has seen


@dataclass(frozen=True)
class HostSeen:
    """Memory of the process tree while it rehearsed."""

    peak: int  # the most without `filling`; of a program that has ended, the most of all
    last: int  # all of it, filling or not, when it was last looked at
    workers: int  # bytes of child processes, in the peak
    processes: int
    filling: tuple[Filling, ...] = ()
    endless: tuple[Endless, ...] = ()
    growing_per_s: float = 0.0  # bytes per second beyond `filling` and `endless`
    pinned: int = 0  # bytes that PyTorch's pool of pinned memory takes beyond what was asked for
    worker_pages: WorkerPages | None = None


@dataclass(frozen=True)
class CardSeen:
    """What one card held: of the fullest one, summed over the processes that share it."""

    device: int
    processes: int
    peak_allocated: int
    peak_reserved: int
    roles: tuple[tuple[str, int], ...]
    lines: tuple[SourceLine, ...]
    at: SourceLine | None
    phase: str
    interval: int
    others: tuple[tuple[int, int], ...] = ()  # the other cards: number and peak reserved


@dataclass(frozen=True)
class Beside:
    """Bytes beside the allocator that a library may take: cuDNN's workspace, an RNN's reserve."""

    name: str
    nbytes: int
    error: int
    why: str


@dataclass(frozen=True)
class BatchesSeen:
    """The batches of one loop over a DataLoader that were run or looked at."""

    file: str
    line: int
    seen: int
    total: int | None  # in one epoch; None where that is not known, as with a stream
    alike: bool = True  # those that were seen had the same shapes
    # items of different shapes cannot be in one batch: torch's own `default_collate` refuses them
    stacked: bool = False

    @property
    def enough(self) -> bool:
        """Return whether no batch that was not seen can be larger than those that were."""
        return self.seen == self.total or (self.alike and self.stacked and self.seen >= ENOUGH_BATCHES)


@dataclass(frozen=True)
class SameRun:
    """A model that the program makes with a library we know, as a run."""

    run: Run
    file: str  # of the constructor's call
    line: int


@dataclass(frozen=True)
class Doubt:
    """By how many bytes the card's memory may differ from what was followed, why, and where first."""

    what: str
    nbytes: int
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Rehearsal:
    """One rehearsal of a command."""

    command: tuple[str, ...]
    exit_code: int | None
    stopped: Stopped
    updates: int
    repeats: int  # steps at the end in which nothing new happened
    seconds: float  # it ran
    host: HostSeen
    card: CardSeen | None = None
    had_card: bool = False
    python: bool = True  # whether any Python interpreter of the program let the guest in
    torch: str = ""  # versions in the program's interpreter, empty where it never imported them
    cuda_build: bool = False
    failure: str = ""  # what an uncaught exception said, with its line, empty where there was none
    failed_at: tuple[str, int] | None = None
    out_of_memory: tuple[OutOfMemory, ...] = ()
    refused: Refused | None = None
    assumed: tuple[Assumed, ...] = ()
    sizes_assumed: tuple[Assumed, ...] = ()
    unmodelled: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()
    beside: tuple[Beside, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    leaks: tuple[Leak, ...] = ()
    not_reached: tuple[NotReached, ...] = ()
    undecided: tuple[NotReached, ...] = ()
    notes: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()  # why what was seen may not be all that it does, where the guest could not look
    points: tuple[tuple[float, int, int], ...] = ()  # (seconds, allocated, reserved) of the card over time
    step_times: tuple[float, ...] = ()
    skipped_steps: int = 0
    epochs: int = 0
    evaluation: tuple[str, int] | None = None
    collected: int = 0
    batches: tuple[BatchesSeen, ...] = ()
    same_runs: tuple[SameRun, ...] = ()
    jax: str = ""
    jax_alone: bool = False  # it computes with jax, and uses no torch beside it, though it may import it
    constants: tuple[str, ...] = ()  # of the program that were set from outside

    @property
    def failed(self) -> OutOfMemory | None:
        """The request whose failure is the verdict: the uncaught one, else the first that was not retried with less."""
        decisive = [request for request in self.out_of_memory if request.retried is None]
        return next((request for request in decisive if not request.caught), decisive[0] if decisive else None)

    @property
    def retried(self) -> OutOfMemory | None:
        """The last request that failed and was retried with less, where no other is the verdict."""
        return self.out_of_memory[-1] if self.out_of_memory and self.failed is None else None

    def __repr__(self) -> str:
        return f"Rehearsal({' '.join(self.command)}: {self.updates:,} updates in {self.seconds:.1f} s, {self.stopped})"


@dataclass(frozen=True)
class ProgramPrediction:
    """What a program will need, by its rehearsal, and whether it fits."""

    rehearsal: Rehearsal
    footprint: Footprint
    budget: Budget
    fits: bool | None
    ways: tuple[str, ...] = ()  # to make it fit
    so_far: bool = False  # it fits as far as it was seen, and was stopped before it ended

    def __repr__(self) -> str:
        fits = {True: "fits", False: "does not fit", None: "unknown whether it fits"}[self.fits]
        fits = "fits so far" if self.so_far else fits
        return f"ProgramPrediction({self.footprint.name}: {fits}, {self.footprint!r})"

    @property
    def exit_code(self) -> int:
        """Return what the command ends with."""
        if self.rehearsal.stopped == "interrupted":
            return EXIT_INTERRUPTED
        if self.rehearsal.stopped == "failed":
            return EXIT_BAD_INPUT
        broken = any(finding.severity == "error" for finding in self.footprint.findings)
        unknown = self.footprint.unknown or (self.so_far and self.fits is None)
        return EXIT_FINDINGS if self.fits is False or unknown or broken else EXIT_GOOD
