"""A sweep on Ray: every trial waits for the memory that it is predicted to need, and then has it.

Trials are tasks of Ray that ask for memory, a few more of them at a time than there is room for; those that turned out
to need more than was kept for them are asked for again. Ray counts declared memory and checks none of it, so the
packing is as good as the predictions, and a trial that exceeds its own is stopped by itself (`ray_trial.py`).

Ray's own memory monitor is off in a local session: it looks at the whole machine and kills the youngest worker when
that is nearly full, whoever filled it, which would end a trial that keeps to what it requested.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from legroom.cluster.session import ray_nodes, ray_session
from legroom.sweeping.ray_trial import train_trial
from legroom.sweeping.sweep_folder import Live, SweepFolder
from legroom.sweeping.trial import WORKER_NBYTES, SweepView, TooLarge, Trial, TrialResult
from legroom.training.train import is_finished

CPUS_PER_TRIAL = 0.25  # memory decides how many run at once; this only keeps hundreds of tiny ones off two cores
OBJECT_STORE_NBYTES = 80 << 20  # nothing but settings goes through it; the least that Ray takes is 75 MiB
MOST_RUNS = 4
MARGIN = 1.1  # on what was measured: a trial that was stopped at its limit would have gone higher
SHOW_EVERY_S, POLL_S = 1.0, 0.25
AHEAD = 8  # trials that wait in Ray for memory: what others take meanwhile may change what they request


@dataclass(frozen=True)
class Swept:
    """What came of a sweep."""

    results: tuple[TrialResult, ...]
    declared: int
    most_at_once: int
    is_stopped: bool


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
) -> Swept:
    """Train what of the trials is not finished yet, as many at once as there is memory for.

    Args:
        cluster: local, auto or an address.
        declared, num_cpus: what the local node declares; a cluster says it itself.
        show: told once a second.

    Raises:
        BadInput: there is no such cluster.
        TooLarge: a trial fits no node.
    """
    if all(is_finished(folder.trial(trial.number), trial.run.total_timesteps) for trial in trials):
        return Swept(Book(trials, folder, declared or 0).results(), declared or 0, 0, False)  # no need of Ray
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
        return Swept(book.results(), total + mapped, view.most_at_once, book.is_stopping)


def _refuse_too_large(trials: Iterable[Trial], most: int) -> None:
    for trial in trials:
        if trial.requested > most:
            raise TooLarge(trial, most + trial.mapped)


class Book:
    """Who waits, who runs, how each ended; decides who runs again.

    Args:
        most: bytes that the largest node declares.
    """

    def __init__(self, trials: Sequence[Trial], folder: SweepFolder, most: int) -> None:
        self.folder, self.most, self.is_stopping = folder, most, False
        self._trials = {trial.number: trial for trial in trials}
        self._requested = {trial.number: trial.requested for trial in trials}
        self._runs = dict.fromkeys(self._trials, 0)
        self._reasons: dict[int, str] = {}
        self.running: set[int] = set()
        self.finished: set[int] = set()
        self.failed: set[int] = set()
        self.waiting: deque[Trial] = deque()
        for trial in trials:
            if is_finished(folder.trial(trial.number), trial.run.total_timesteps):
                self.finished.add(trial.number)
                self._learn(trial.number, Live.read(folder.trial(trial.number)).peak)
            else:
                self.waiting.append(trial)
                self._remember(trial)

    def _remember(self, trial: Trial) -> None:
        """Request what an earlier session of the sweep has learned that the trial needs."""
        live, planned = Live.read(self.folder.trial(trial.number)), trial.requested
        measured = int(live.peak * MARGIN) + WORKER_NBYTES if live.peak + WORKER_NBYTES > planned else 0
        self._requested[trial.number] = max(planned, min(max(live.requested, measured), self.most))

    def take(self) -> dict[str, Any] | None:
        """Return the next trial's task; None where none waits."""
        if not self.waiting or self.is_stopping:
            return None
        trial = self.waiting.popleft()
        self._runs[trial.number] += 1
        self.running.add(trial.number)
        return {
            "number": trial.number,
            "requested": self._requested[trial.number],
            "runs": self._runs[trial.number],
            "gpu_share": trial.gpu_share,
            "folder": str(self.folder.path.absolute()),
            "directory": str(Path.cwd()),
        }

    def begun(self) -> dict[int, Live]:
        """Return what the trials say that Ray has found room for."""
        lives = {number: Live.read(self.folder.trial(number)) for number in self.running}
        return {number: live for number, live in lives.items() if live.runs == self._runs[number]}

    def requested(self, number: int) -> int:
        return self._requested[number]

    def ended(self, number: int, end: Mapping[str, Any] | None) -> None:
        """Take in how a run of a trial ended; None: its worker died."""
        self.running.discard(number)
        live = Live.read(self.folder.trial(number))
        end = end or {"status": "died", "peak": live.peak, "exceeded": True, "reason": "its Ray worker was killed"}
        if end["status"] == "waiting":  # the sweep was stopped before there was room for it
            self._runs[number] -= 1
            return
        self._learn(number, int(end["peak"]))
        if end["status"] == "finished":
            self.finished.add(number)
            return
        self._reasons[number] = str(end["reason"])
        more = self._more(number, int(end["peak"]))
        again = end["exceeded"] and self._runs[number] < MOST_RUNS and more is not None
        if again and more is not None:
            self._requested[number] = more
        if self.is_stopping:
            return
        if again:
            self.waiting.append(self._trials[number])
        else:
            self.failed.add(number)

    def _more(self, number: int, peak: int) -> int | None:
        """Return what to request next time; None where it had a whole node."""
        if self._requested[number] >= self.most:
            return None
        return min(max(int(peak * MARGIN) + WORKER_NBYTES, self._requested[number] + 1), self.most)

    def _learn(self, number: int, peak: int) -> None:
        """Raise what those request that need the same memory, where one of them took more than was predicted."""
        if peak + WORKER_NBYTES <= self._requested[number]:
            return
        shared = self._trials[number].shares
        for other in self.waiting:
            if other.shares == shared:
                wanted = min(int(peak * MARGIN) + WORKER_NBYTES, self.most)
                self._requested[other.number] = max(self._requested[other.number], wanted)

    def results(self) -> tuple[TrialResult, ...]:
        return tuple(self._result(trial) for trial in self._trials.values())

    def _result(self, trial: Trial) -> TrialResult:
        folder, number = self.folder.trial(trial.number), trial.number
        outcome, live = folder.outcome(), Live.read(folder)
        done = number in self.finished
        peak = max(outcome.peaks.host.measured if outcome else 0, live.peak)
        reason = "" if done else self._reasons.get(number, "stopped before it began")
        requested = live.requested if done and live.requested else self._requested[number]
        runs = max(self._runs[number], live.runs)
        return TrialResult(trial, "finished" if done else "failed", outcome, peak, requested, reason, runs)


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
                finished=len(book.finished),
                failed=len(book.failed),
                waiting=len(book.waiting) + len(book.running) - len(self.begun),
                nbytes=sum(live.nbytes + WORKER_NBYTES for live in self.begun.values()),
                requested=sum(book.requested(number) for number in self.begun),
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
