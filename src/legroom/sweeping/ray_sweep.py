"""A sweep on Ray: every trial waits for the memory that it is predicted to need, and then has it.

Trials are tasks of Ray that ask for memory, a few more of them at a time than there is room for. Ray counts declared
memory and checks none of it, so a trial keeps itself to what it requested: in its Ray worker it is a training as
`legroom train` supervises it, stopped with a checkpoint as soon as it takes more, and asked for again with what was
measured. No knob is turned meanwhile: what is compared has to stay as it was asked for.

Ray's own memory monitor is off in a local session: it looks at the whole machine and kills the youngest worker when
that is nearly full, whoever filled it, which would end a trial that keeps to what it requested.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import ray
from ray.exceptions import RayError

from legroom.cluster.session import ray_nodes, ray_session
from legroom.errors import EXIT_BAD_INPUT, LegroomError
from legroom.model.outcome import MemorySample, Outcome, Progress
from legroom.sweeping.sweep_folder import Live, SweepFolder
from legroom.sweeping.trial import WORKER_NBYTES, Status, SweepView, Trial, TrialResult
from legroom.training.request import Training
from legroom.training.run_folder import RunFolder
from legroom.training.train import is_finished, train
from legroom.units import format_size

CPUS_PER_TRIAL = 0.25  # memory decides how many run at once; this only keeps hundreds of tiny ones off two cores
OBJECT_STORE_NBYTES = 80 << 20  # nothing but settings goes through it; the least that Ray takes is 75 MiB
MOST_RUNS = 4
MARGIN = 1.1  # on what was measured: a trial that was stopped at its limit would have gone higher
SHOW_EVERY_S, LIVE_EVERY_S, POLL_S = 1.0, 0.5, 0.25
AHEAD = 8  # trials that wait in Ray for memory: what others take meanwhile may change what they request


def run_sweep(
    trials: Sequence[Trial],
    folder: SweepFolder,
    *,
    cluster: str,
    declared: int | None,
    num_cpus: int,
    concurrent: int | None,
    show: Callable[[SweepView], None],
    say: Callable[[str], None],
) -> tuple[tuple[TrialResult, ...], int, int, bool]:
    """Train what of the trials is not finished yet, as many at once as there is memory for.

    Returns the results, what was declared, the most trials at once, and whether it was stopped.

    Args:
        cluster: local, auto or an address.
        declared, num_cpus: what the local node declares; a cluster says it itself.
        show: told once a second.

    Raises:
        BadInput: there is no such cluster.
        LegroomError: a trial fits no node.
    """
    if all(is_finished(folder.trial(trial.number), trial.run.total_timesteps) for trial in trials):
        return Book(trials, folder, declared or 0).results(), declared or 0, 0, False  # no need of Ray
    mapped = max(trial.mapped for trial in trials)  # kept free once, by declaring less
    free = max(declared - mapped, 1) if declared is not None else None
    if cluster == "local" and free is not None:
        _refuse_too_large(trials, free)  # before Ray is started
    local = {"num_cpus": num_cpus, "memory_nbytes": free, "object_store_nbytes": OBJECT_STORE_NBYTES}
    folder.go()
    with ray_session(cluster, **(local if cluster == "local" else {}), memory_monitor=False):
        declared_by = [int(node["Resources"].get("memory", 0)) for node in ray_nodes() if node["Alive"]]
        most, total = max(declared_by), sum(declared_by)
        book = Book(trials, folder, most)
        _refuse_too_large(book.waiting, most)
        view = _Show(book, total + mapped, show)
        if book.waiting:
            with _interrupts(book, say):
                _train(book, view, concurrent)
        return book.results(), total + mapped, view.most_at_once, book.is_stopping


def _refuse_too_large(trials: Iterable[Trial], most: int) -> None:
    for trial in trials:
        if trial.requested > most:
            what = ", ".join(f"{key}={value}" for key, value in trial.params.items())
            need, there_is = format_size(trial.requested + trial.mapped), format_size(most + trial.mapped)
            raise LegroomError(
                f"trial {trial.number:03d} ({what}) needs {need}, the largest node declares {there_is} "
                "(legroom fit makes it smaller)"
            )


@dataclass
class MemoryRequest:
    """A trial that asks for memory until it has had enough."""

    trial: Trial
    requested: int
    runs: int = 0
    state: Literal["waiting", "running", "finished", "failed"] = "waiting"
    reason: str = "stopped before it began"


class Book:
    """Who waits, who runs, how each ended; decides who runs again.

    Args:
        most: bytes that the largest node declares.
    """

    def __init__(self, trials: Sequence[Trial], folder: SweepFolder, most: int) -> None:
        self.folder, self.most, self.is_stopping = folder, most, False
        self.asking = {trial.number: MemoryRequest(trial, trial.requested) for trial in trials}
        for number, each in self.asking.items():
            live, planned = Live.read(folder.trial(number)), each.trial.requested
            if is_finished(folder.trial(number), each.trial.run.total_timesteps):
                each.state = "finished"
                self._learn(each, live.peak)
            else:  # request what an earlier session of the sweep has learned that the trial needs
                measured = self._enough(live.peak) if live.peak + WORKER_NBYTES > planned else 0
                each.requested = max(each.requested, min(max(live.requested, measured), most))
        self._queue = deque(each for each in self.asking.values() if each.state == "waiting")

    def numbers(self, state: str) -> set[int]:
        """Return the trials in a state."""
        return {number for number, each in self.asking.items() if each.state == state}

    @property
    def waiting(self) -> list[Trial]:
        return [each.trial for each in self._queue]

    def take(self) -> dict[str, Any] | None:
        """Return the next trial's task; None where none waits."""
        if not self._queue or self.is_stopping:
            return None
        each = self._queue.popleft()
        each.runs, each.state = each.runs + 1, "running"
        return {
            "number": each.trial.number,
            "requested": each.requested,
            "runs": each.runs,
            "gpu_share": each.trial.gpu_share,
            "folder": str(self.folder.path.absolute()),
            "directory": str(Path.cwd()),
        }

    def begun(self) -> dict[int, Live]:
        """Return what the trials say that Ray has found room for."""
        lives = {number: Live.read(self.folder.trial(number)) for number in self.numbers("running")}
        return {number: live for number, live in lives.items() if live.runs == self.asking[number].runs}

    def ended(self, number: int, end: Mapping[str, Any] | None) -> None:
        """Take in how a run of a trial ended; None: its worker died."""
        each = self.asking[number]
        if end is None:
            peak = Live.read(self.folder.trial(number)).peak
            end = {"status": "died", "peak": peak, "exceeded": True, "reason": "its Ray worker was killed"}
        each.state = "waiting"
        if end["status"] == "waiting":  # the sweep was stopped before there was room for it
            each.runs -= 1
            return
        self._learn(each, int(end["peak"]))
        if end["status"] == "finished":
            each.state = "finished"
            return
        each.reason = str(end["reason"])
        again = end["exceeded"] and each.runs < MOST_RUNS and each.requested < self.most
        if again:
            each.requested = min(max(self._enough(int(end["peak"])), each.requested + 1), self.most)
        if again and not self.is_stopping:
            self._queue.append(each)
        elif not self.is_stopping:
            each.state = "failed"

    def _enough(self, peak: int) -> int:
        return min(int(peak * MARGIN) + WORKER_NBYTES, self.most)

    def _learn(self, one: MemoryRequest, peak: int) -> None:
        """Raise what those request that need the same memory, where one of them took more than was predicted."""
        if peak + WORKER_NBYTES > one.requested:
            for other in self.asking.values():
                if other is not one and other.state == "waiting" and other.trial.shares == one.trial.shares:
                    other.requested = max(other.requested, self._enough(peak))

    def results(self) -> tuple[TrialResult, ...]:
        return tuple(self._result(each) for each in self.asking.values())

    def _result(self, each: MemoryRequest) -> TrialResult:
        folder, done = self.folder.trial(each.trial.number), each.state == "finished"
        outcome, live = folder.outcome(), Live.read(folder)
        peak = max(outcome.peaks.host.measured if outcome else 0, live.peak)
        requested = live.requested if done and live.requested else each.requested
        status: Status = "finished" if done else "failed"
        return TrialResult(
            each.trial, status, outcome, peak, requested, "" if done else each.reason, max(each.runs, live.runs)
        )


def _train(book: Book, view: _Show, concurrent: int | None) -> None:
    """Have Ray train the book's trials until none waits and none runs."""
    remote: Any = ray.remote(max_retries=0, num_cpus=CPUS_PER_TRIAL)(train_trial)
    asked: dict[Any, int] = {}
    while True:
        while len(asked) < (concurrent or len(view.begun) + AHEAD) and (task := book.take()) is not None:
            needs = {"memory": task["requested"], "num_gpus": task["gpu_share"]}
            asked[remote.options(**needs).remote(task)] = task["number"]
        view.look()
        if not asked:
            return
        for ended in ray.wait(list(asked), timeout=POLL_S)[0]:
            try:
                end = ray.get(ended)
            except RayError:
                end = None
            book.ended(asked.pop(ended), end)


@dataclass
class _Show:
    """Says once a second how far the sweep is."""

    book: Book
    declared: int
    show: Callable[[SweepView], None]
    most_at_once: int = 0
    due: float = 0.0
    begun: Mapping[int, Live] = field(default_factory=dict)

    def look(self) -> None:
        book, self.begun = self.book, self.book.begun()
        self.most_at_once = max(self.most_at_once, len(self.begun))
        if time.monotonic() < self.due:
            return
        self.due = time.monotonic() + SHOW_EVERY_S
        self.show(
            SweepView(
                running=len(self.begun),
                finished=len(book.numbers("finished")),
                failed=len(book.numbers("failed")),
                waiting=len(book.waiting) + len(book.numbers("running")) - len(self.begun),
                nbytes=sum(live.nbytes + WORKER_NBYTES for live in self.begun.values()),
                requested=sum(book.asking[number].requested for number in self.begun),
                declared=self.declared,
                is_stopping=book.is_stopping,
            )
        )


@contextmanager
def _interrupts(book: Book, say: Callable[[str], None]) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM stop the trials with a checkpoint; a second one ends everything at once."""

    def interrupt(number: int, frame: Any) -> None:
        if book.is_stopping:
            raise KeyboardInterrupt
        book.is_stopping = True
        book.folder.stop()
        say("stopping: the trials write checkpoints; Ctrl-C again ends them at once")

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        book.folder.go()


# -- in a Ray worker ---------------------------------------------------------------------------------------------------


def train_trial(task: dict[str, Any]) -> dict[str, Any]:
    """Train the trial of a task, which Ray runs."""
    # Modules beside the run, and relative paths in it, are where the command was given.
    with suppress(OSError):
        os.chdir(task["directory"])
    sweep = SweepFolder(Path(task["folder"]))
    return run_trial(sweep, sweep.trials()[task["number"]], requested=task["requested"], runs=task["runs"])


def run_trial(sweep: SweepFolder, trial: Trial, *, requested: int, runs: int) -> dict[str, Any]:
    """Train a trial, or go on with it; return how it ended: status, peak, reason, and whether it exceeded."""
    folder = sweep.trial(trial.number)
    watch = _TrialWatch(sweep, folder, requested=requested, runs=runs, without_libraries=bool(trial.mapped))
    if sweep.is_stopping():
        return {"status": "waiting", "peak": Live.read(folder).peak, "exceeded": False, "reason": ""}
    kept = folder.run()
    run = kept.replace(total_timesteps=trial.run.total_timesteps) if kept is not None else trial.run
    out, resume = str(folder.path), kept is not None
    training = Training(run, out, trial.device, asked=trial.asked, predicted=trial.predicted, resume=resume)
    try:
        # Ray starts its processes with SIGINT blocked, which a child inherits: it would never hear that it shall stop.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        outcome, _ = train(training, watch)
    except LegroomError as error:
        code = "refused" if error.exit_code == EXIT_BAD_INPUT else "failed"
        return {"status": code, "peak": watch.peak, "exceeded": False, "reason": str(error)}
    finally:
        watch.over()
    return _ended(outcome, watch)


def _ended(outcome: Outcome, watch: _TrialWatch) -> dict[str, Any]:
    memory = outcome.status == "failed" and any(r.what.startswith("given up") for r in outcome.retreats)
    reason = outcome.error or ""
    if outcome.status == "stopped":
        reason = watch.why or "stopped"
    elif memory:
        reason = outcome.retreats[-1].why
    exceeded = watch.exceeded or memory or watch.peak > watch.limit
    return {"status": outcome.status, "peak": watch.peak, "exceeded": exceeded, "reason": reason}


class _TrialWatch:
    """A display that shows nothing: writes the trial's memory down, and stops it where it must end."""

    def __init__(
        self, sweep: SweepFolder, folder: RunFolder, *, requested: int, runs: int, without_libraries: bool
    ) -> None:
        self.peak, self.exceeded, self.why = 0, False, ""
        self.limit = requested - WORKER_NBYTES
        self._sweep, self._folder = sweep, folder
        self._requested, self._runs, self._without_libraries = requested, runs, without_libraries
        self._timesteps, self._due, self._asked = 0, 0.0, False

    def progress(self, progress: Progress) -> None:
        self._timesteps = progress.timesteps

    def memory(self, sample: MemorySample) -> None:
        nbytes = sample.host_nbytes - (sample.mapped_nbytes if self._without_libraries else 0)
        self.peak = max(self.peak, nbytes)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + LIVE_EVERY_S
            self._write(nbytes)
            if self._sweep.is_stopping():
                self._stop("stopped")
        if nbytes > self.limit:
            self.exceeded = True
            self._stop("took more than it had requested")

    def say(self, line: str) -> None:
        """Leave it: the training's own log has it."""

    def over(self) -> None:
        """Say that nothing is in use any more."""
        self._write(0)

    def _write(self, nbytes: int) -> None:
        live = Live(nbytes, self.peak, self._requested, self._timesteps, self._runs, self.why)
        live.write(self._folder)

    def _stop(self, why: str) -> None:
        """Have the supervision do what Ctrl-C does, once: a checkpoint at the end of the iteration."""
        if not self._asked:
            self._asked, self.why = True, why
            raise KeyboardInterrupt
