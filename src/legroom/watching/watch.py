"""Watch a command, or a tree of processes that runs already: the loop, and what it adds up to."""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Self

from legroom.errors import BadInput
from legroom.machine.cgroup import oom_kills, read_cgroup
from legroom.machine.gpus import GpuMeter
from legroom.machine.live_log import LiveLog
from legroom.model.trace import ROLES, Explanation, Forecast, MemoryLimit, Role, Sample, Trace, Watched
from legroom.watching import command as child
from legroom.watching.command import PASSED_ON, Circumstances, Relay, Signals, explain_end, write_all
from legroom.watching.judging import forecast, judge, phases
from legroom.watching.processes import memory_available, status
from legroom.watching.samples import KeptSamples
from legroom.watching.sampling import HIDDEN_PEAK_FROM, Allowance, TreeSampler

INTERVAL_S = 0.25
QUICK_START = 0.04  # of the time so far: a command of a second gets its samples too
SLOWEST_S = 1.0  # where the allowance is spent
KEPT_SAMPLES = 2_000
KEPT_FORECASTS = 200
JUDGE_EVERY_S, JUDGE_EVERY_SHARE = 1.0, 0.06  # of the time so far
SAMPLES_TO_JUDGE = 30
READ_LIMIT_EVERY_S = 2.0
GRACE_S = 1.0  # for workers to notice that their trainer ended
STOPPED_BY_S = 30.0  # an end so soon after a signal that we passed on is its doing


class Display:
    """What shows a watching while it goes on; by itself it shows nothing, and passes on what the command wrote."""

    log: LiveLog | None = None

    def logging(self, folder: Path | None) -> Self:
        """Also log in the folder, for whoever follows it from outside."""
        self.log = None if folder is None else LiveLog(folder)
        return self

    def pass_on(self, chunk: bytes) -> None:
        """Write what the command wrote to standard error."""
        write_all(2, chunk)

    def memory(self, sample: Sample, limit: MemoryLimit | None, coming: Forecast | None) -> None: ...
    def exceeded(self, sample: Sample, limit: MemoryLimit) -> None: ...
    def forecast(self, coming: Forecast, limit: MemoryLimit) -> None: ...


def watch(
    command: Sequence[str],
    *,
    interval_s: float = INTERVAL_S,
    limit: int | None = None,
    display: Display | None = None,
    signals: Signals | None = None,
    environment: Mapping[str, str] | None = None,
    output_to_stderr: bool = False,
) -> Watched:
    """Run the command to its end and return what its tree of processes took and how it ended.

    Args:
        limit: bytes to forecast and judge against; default: what the container or the machine has left. Nothing is
            ever killed for it.
        signals: entered by the caller, who wants them held until the result is written.
        environment: the command's variables; default: ours.
        output_to_stderr: what the command writes to standard output goes to standard error; ours is for the result.

    Raises:
        BadInput: there is no command, or this is not Linux.
        CannotStart: the command is not there or cannot be executed.
    """
    _demand_linux()
    if not command:
        raise BadInput("no command given", hint="legroom watch -- python train.py")
    display = display or Display()
    with nullcontext(signals) if signals is not None else Signals() as held:
        kills_before = oom_kills()
        relay = Relay(display.pass_on, both=output_to_stderr)
        began = time.time()
        try:
            pid = child.start(command, relay, held.before, environment)
        except BaseException:
            relay.finish()
            raise
        relay.start()
        watching = _Watching(pid, interval_s, limit, display)
        end = _follow_child(watching, relay, held)
        text = relay.finish()
        watching.count_peak_of(end.rss_peak)
        left_behind = watching.left_behind()
        cgroup = read_cgroup()
        around = Circumstances(
            kernel_killed=oom_kills() > kills_before,
            last_nbytes=watching.highest_lately(),
            limit=watching.limit,
            container_limit=cgroup.limit if cgroup is not None else None,
            stopped_by=watching.stopped_by(),
            pid=pid,
            workers=watching.had_workers,
        )
        explained = explain_end(text.decode("utf-8", "replace"), end, command, around)
        return watching.watched(began, tuple(command), end, explained, left_behind)


def attach(
    pid: int,
    *,
    interval_s: float = INTERVAL_S,
    limit: int | None = None,
    display: Display | None = None,
    signals: Signals | None = None,
) -> Watched:
    """Watch a running process and its descendants until it ends or a signal says to stop.

    Raises:
        BadInput: there is no such process, or this is not Linux.
    """
    _demand_linux()
    about = status(pid)
    if about is None or about.zombie:
        raise BadInput(f"there is no process {pid}", hint="legroom watch --pid PID of a running process")
    with nullcontext(signals) if signals is not None else Signals() as held:
        watching = _Watching(pid, interval_s, limit, display or Display())
        began = time.time()
        while (now := status(pid)) is not None and now.began == about.began and not now.zombie:
            watching.tick()
            taken = held.wait(watching.wait_s())
            if taken is not None and taken.si_signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                break
        return watching.watched(began)


def _left(tree_nbytes: int, pid: int) -> MemoryLimit | None:
    """Return what the container or the machine has left, with the tree's own memory; None where nothing tells.

    Others on the machine take from it too, so the ceiling of a tree that stays as it is may sink. The container is that
    of the process that is watched, which need not be the watcher's: one may attach from outside.
    """
    available, cgroup = memory_available(), read_cgroup(pid=pid)
    if cgroup is not None and (available is None or cgroup.available <= available):
        return MemoryLimit(tree_nbytes + cgroup.available, "container")
    return None if available is None else MemoryLimit(tree_nbytes + available, "machine")


def _follow_child(watching: _Watching, relay: Relay, held: Signals) -> child.Ended:
    while True:
        end = child.ended(watching.pid)
        if end is not None:
            return end
        watching.tick()
        taken = held.wait(watching.wait_s())
        if taken is None:
            continue
        if taken.si_signo in PASSED_ON:
            watching.stops.append((time.monotonic(), taken.si_signo))
            child.pass_signal(watching.pid, taken)
        elif taken.si_signo == signal.SIGWINCH:
            relay.resize()


class _Watching:
    """One watching: its samples, what they say so far, and when the next one is due."""

    def __init__(self, pid: int, interval_s: float, limit: int | None, display: Display) -> None:
        self.pid = pid
        # what was given holds from the start: a short command may end before it is looked at
        self.limit: MemoryLimit | None = None if limit is None else MemoryLimit(limit, "given")
        self.stops: list[tuple[float, int]] = []
        self._interval_s, self._display = interval_s, display
        self._allowance = Allowance()
        self._sampler = TreeSampler(pid, self._allowance, GpuMeter())
        self._next_limit_s = 0.0 if limit is None else math.inf
        self._samples = KeptSamples(KEPT_SAMPLES)
        self._peaks: dict[Role, int] = dict.fromkeys(ROLES, 0)
        self._peak_host = 0
        self._peak_gpu: int | None = None
        self._forecasts: list[Forecast] = []
        self._coming: Forecast | None = None
        self._exceeded: float | None = None
        self._trouble = ""
        self._began = self._next = time.monotonic()
        self._next_judge_s = JUDGE_EVERY_S

    def wait_s(self) -> float:
        return self._next - time.monotonic()

    def tick(self) -> None:
        """Take a sample if one is due."""
        now = time.monotonic()
        if now < self._next:
            return
        if not self._trouble:
            self._take_sample()
        pause = min(self._interval_s, max(QUICK_START * (now - self._began), 0.01))
        if not self._allowance.affords(0):
            pause = max(self._interval_s, min(4 * pause, SLOWEST_S))
        self._next = now + pause

    def _take_sample(self) -> None:
        try:
            sample = self._sampler.sample()
            if sample is not None:
                self._add(sample)
        except Exception as error:  # whatever it is, the command has to go on and its end has to be told
            self._trouble = f"{type(error).__name__}: {error}"

    def _add(self, sample: Sample) -> None:
        self._samples.add(sample)
        self._peak_host = max(self._peak_host, sample.host)
        if sample.gpu is not None:
            self._peak_gpu = max(self._peak_gpu or 0, sample.gpu)
        for role, nbytes in sample.by_role.items():
            self._peaks[role] = max(self._peaks[role], nbytes)
        if sample.t >= self._next_limit_s:
            self._next_limit_s = sample.t + READ_LIMIT_EVERY_S
            self.limit = _left(sample.host, self.pid)
        if sample.t >= self._next_judge_s and len(self._samples) >= SAMPLES_TO_JUDGE:
            self._next_judge_s = sample.t + max(JUDGE_EVERY_S, JUDGE_EVERY_SHARE * sample.t)
            self._look_ahead()
        given = self.limit is not None and self.limit.origin == "given"
        if self.limit is not None and given and sample.host > self.limit.nbytes and self._exceeded is None:
            self._display.exceeded(sample, self.limit)
            self._exceeded = sample.t
            self._log("above the given limit")
        self._display.memory(sample, self.limit, self._coming)
        if self._display.log is not None:
            self._display.log.memory(sample.host, sample.gpu, limit=None if self.limit is None else self.limit.nbytes)

    def _log(self, text: str) -> None:
        if self._display.log is not None:
            self._display.log.say(text)

    def _look_ahead(self) -> None:
        before, self._coming = self._coming, forecast(list(self._samples), self.limit, self._sampler.started_s)
        if self._coming is None:
            return
        self._forecasts.append(self._coming)
        if len(self._forecasts) > KEPT_FORECASTS:
            del self._forecasts[:-1:2]
        # said when two in a row agree: one alone may be the end of a step
        if self._coming.certain and before is not None and before.certain and self.limit is not None:
            self._display.forecast(self._coming, self.limit)
            self._log(f"reaches its limit in {self._coming.reaches - self._coming.made:.0f} s at this rate")

    def count_peak_of(self, rss_peak: int) -> None:
        """Take the kernel's mark of a root that was always alone: it misses no peak, however short."""
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # until its exec, the child was we
        peak = rss_peak - self._sampler.shared_with_others
        if self._sampler.alone and rss_peak > own and peak > self._peak_host + HIDDEN_PEAK_FROM:
            self._peak_host = self._peaks["trainer"] = peak

    def highest_lately(self) -> int:
        """Return the most of the last few samples: what is killed for its memory begins to vanish before it is gone."""
        return self._samples.highest_of_last(3)

    def stopped_by(self) -> int | None:
        """Return the signal that was passed on shortly before now."""
        recent = [number for when, number in self.stops if time.monotonic() - when < STOPPED_BY_S]
        return recent[-1] if recent else None

    @property
    def had_workers(self) -> bool:
        return self._peaks["workers"] > 0

    def left_behind(self) -> tuple[int, ...]:
        """Return the processes that outlived the root, after a moment's grace."""
        until = time.monotonic() + GRACE_S
        while True:
            known = {pid: began for pid, began in self._sampler.pids.items() if pid != self.pid}
            alive = [
                pid
                for pid, began in known.items()
                if (about := status(pid)) is not None and about.began == began and not about.zombie
            ]
            if not alive or time.monotonic() >= until:
                return tuple(sorted(alive))
            time.sleep(0.05)

    def watched(
        self,
        began: float,
        command: tuple[str, ...] = (),
        end: child.Ended | None = None,
        explained: tuple[Explanation | None, bool | None, str] = (None, None, ""),
        left_behind: tuple[int, ...] = (),
    ) -> Watched:
        samples = tuple(self._samples)
        verdict, why, growth_per_s = judge(samples)
        found, of_memory, hint = explained
        trace = Trace(
            samples=samples,
            peak_host=self._peak_host,
            peak_gpu=self._peak_gpu,
            peak_by_role=self._peaks,
            verdict=verdict,
            why=why,
            phases=phases(samples, settled=verdict == "ok"),
            forecasts=tuple(self._forecasts),
            growth_per_s=growth_per_s,
        )
        return Watched(
            command=command,
            pid=self.pid,
            began=began,
            seconds=time.monotonic() - self._began,
            exit_code=None if end is None else end.code,
            signal=None if end is None else end.signal,
            trace=trace,
            limit=self.limit,
            exceeded=self._exceeded,
            explanation=found,
            of_memory=of_memory,
            hint=hint,
            left_behind=left_behind,
            exact=self._sampler.exact,
            trouble=self._trouble,
            own_cpu_s=time.process_time(),
            command_cpu_s=self._command_cpu_s(end),
        )

    def _command_cpu_s(self, end: child.Ended | None) -> float:
        if end is None:
            return self._allowance.command_cpu_s
        children = os.times()  # exact, but only what the command waited for
        return max(children.children_user + children.children_system, self._allowance.command_cpu_s)


def _demand_linux() -> None:
    if not (sys.platform.startswith("linux") and Path("/proc/self/smaps_rollup").exists()):
        raise BadInput("watch needs the /proc of Linux 4.14 or later", hint="run it on Linux")
