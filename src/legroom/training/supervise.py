"""Run the training child, watch its memory, and hear what it says.

The child is a process of its own because what happens in it cannot be trusted to end well: the parent stays small and
alive when the child is killed for its memory, and knows how far it came. The peak is the largest sum of PSS over the
child and its workers; what a prediction is compared with counts libraries in full, whoever else has them loaded. Short
peaks fall between two samples; the kernel's own high-water mark of the child shows that there was one, and how high.
"""

from __future__ import annotations

import math
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from legroom.backends.base import backend_of
from legroom.machine.cgroup import oom_kills, read_cgroup, read_pressure
from legroom.machine.child_process import end_group
from legroom.machine.gpus import GpuMeter
from legroom.machine.tree import tree_memory
from legroom.model.files import new_temporary
from legroom.model.learner import TrainTask
from legroom.model.outcome import MemorySample, Progress, TrainingEvent, TrainingPhase
from legroom.training.background import STOP_WITHIN_S
from legroom.training.events import EnvCalls, EventLines, new_file
from legroom.training.hanging import Hang, HangWatch
from legroom.training.lookout import Lookout, MemorySamples
from legroom.training.run_folder import LOG

SAMPLE_EVERY_S = 0.2
SURROUNDINGS_EVERY_S = 1.0  # the container, its pressure, the card
SAMPLING_SHARE = 0.05  # reading the memory of many processes takes long; never more than this share of the time
MOST_MESSAGES = 250  # of progress and moments each: the log has all of them, and a chart few
FORCE_AFTER_S = 8.0  # a first Ctrl-C: the child gives up after 7 by itself, and what comes after it takes time too
FORCE_EARLY_S = 4.0  # before it has begun there is nothing to save
LET_GO_S = 3.0  # after a second Ctrl-C

# -P and the path as an argument: a json.py in the working directory must not be the child's json.
_BOOTSTRAP = (
    "import sys; sys.path[:] = sys.argv.pop(1).split(chr(10));"
    "from legroom.orphan import end_with; end_with(int(sys.argv.pop(1)));"
    "from legroom.training.child import main; main()"
)


class TrainingDisplay(Protocol):
    """What shows a training while it goes on."""

    def progress(self, progress: Progress) -> None: ...
    def memory(self, sample: MemorySample) -> None: ...
    def say(self, line: str) -> None: ...


@dataclass
class ChildRecord:
    """What the child told, and what was measured meanwhile: of its last start, and over all starts of the training."""

    exit_code: int | None = None
    end: dict[str, Any] = field(default_factory=dict)  # its last word: ended, failed, refused or stopped
    began: bool = False  # it listens to signals since then
    started_step: int = 0
    step: int = 0
    interrupted: bool = False  # by Ctrl-C or SIGTERM
    writing: bool = False  # a checkpoint
    worker_envs: dict[int, str] = field(default_factory=dict)  # which environments a process has, by its pid
    oom_kills: int = 0  # by the kernel, in this cgroup, meanwhile
    # over all starts
    checkpoint_step: int | None = None
    host_peak_nbytes: int = 0
    host_alone_nbytes: int = 0  # its peak, with libraries that other programs map, too, counted in full, as predicted
    gpu_peak_nbytes: int | None = None
    samples: MemorySamples = field(default_factory=MemorySamples)
    progress: list[Progress] = field(default_factory=list)
    moments: list[TrainingEvent] = field(default_factory=list)  # what happened when, to be marked in charts

    @property
    def seconds(self) -> float:
        """How long all starts have taken, by the last sample."""
        return self.samples[-1].seconds if self.samples else 0.0

    def start(self) -> None:
        """Forget what the last start told about itself alone."""
        self.exit_code, self.end, self.began = None, {}, False
        self.started_step = self.step = self.oom_kills = 0
        self.interrupted = self.writing = False
        self.worker_envs = {}

    def add(self, sample: MemorySample) -> None:
        """Keep a sample."""
        self.samples.add(sample)
        self.host_peak_nbytes = max(self.host_peak_nbytes, sample.host_nbytes)


def drop_some(messages: list[Any]) -> None:
    """Leave every second one out where they are too many, but not the last."""
    while len(messages) > MOST_MESSAGES:
        del messages[:-1:2]


def supervise(
    task: TrainTask,
    display: TrainingDisplay,
    record: ChildRecord,
    *,
    import_path: list[str],
    lookout: Lookout | None = None,
    on_retreat: Callable[[dict[str, Any]], None] = lambda event: None,
) -> None:
    """Run the child to its end, forwarding Ctrl-C, and write down what it tells.

    Args:
        record: of the earlier starts of the training, which this one goes on with.
        lookout: sees when memory is about to run out; the child is then asked to write a checkpoint and end.
        on_retreat: told at once when an update was redone in smaller pieces.
    """
    reading, writing = os.pipe()
    calls = new_file()
    kills_before = oom_kills()
    record.start()
    with (
        _terminated_is_interrupted(),  # from here on: the log is what others see first of a training
        _temporary_in(Path(task.out)) as folder,
        (Path(task.out) / LOG).open("ab") as log,
    ):
        task_file = folder / "task.json"
        replace(task, events_fd=writing, calls_fd=calls).write(task_file)
        about = ["\n".join(import_path), str(os.getpid()), str(task_file)]
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOTSTRAP, *about],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writing, calls),
            env=child_environment(task),
            start_new_session=True,  # Ctrl-C reaches the parent alone, which decides what it means
        )
        os.close(writing)
        try:
            watch = HangWatch(task.run.env, EnvCalls(calls), child.pid, Path(log.name), record.worker_envs)
            meter = _Meter(child.pid, record, display, None if task.device == "cpu" else GpuMeter())
            _follow(child, reading, _Listener(record, display, meter, on_retreat), lookout or Lookout(None), watch)
        finally:
            os.close(reading)
            os.close(calls)
            end_group(child)
    record.exit_code, record.oom_kills = child.returncode, oom_kills() - kills_before


@contextmanager
def _temporary_in(folder: Path) -> Iterator[Path]:
    """Yield a folder for what the child is told; of a supervisor that is killed, the run's next start clears it."""
    path = new_temporary(folder)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def child_environment(task: TrainTask) -> dict[str, str]:
    """Return the environment of the child: what the backend sets, and what the user has set over that."""
    return {**backend_of(task.run).trainer.child_environment(task), **os.environ}


def _follow(
    child: subprocess.Popen[bytes], reading: int, listener: _Listener, lookout: Lookout, watch: HangWatch
) -> None:
    """Hear the child to its end, sample its memory meanwhile, and forward what it is asked for."""
    record, meter, display = listener.record, listener.meter, listener.display
    stop = _Stop(child, record, display, watch)
    with _terminated_is_interrupted():
        while True:
            try:
                ready, _, _ = select.select([reading], [], [], meter.wait_s())
                meter.sample()
                if record.began and record.samples and lookout.sees(record.samples[-1]):
                    display.say(
                        f"memory is about to run out ({lookout.why}): writing a checkpoint, then using less memory"
                    )
                    _signal(child, signal.SIGUSR1)
                stop.look()
                if (hang := watch.look()) is not None:
                    _end_hanging(child, record, display, hang, restart=watch.restarts)
                if not ready:
                    if child.poll() is None:
                        continue
                    # a process that the environment forked may hold the pipe open: what is in it is all there will be
                    ready, _, _ = select.select([reading], [], [], 0)
                data = os.read(reading, 1 << 16) if ready else b""
                listener.feed(data)
                if not data:  # it has closed its end: it is over
                    stop.wait()
                    return
            except KeyboardInterrupt:
                stop.ask()


class _Stop:
    """What Ctrl-C does: the child is asked to end, and made to where it does not in time, whatever it is in.

    A checkpoint that is being written is worth the wait, unless an environment hangs while it is asked for its state.
    """

    def __init__(
        self, child: subprocess.Popen[bytes], record: ChildRecord, display: TrainingDisplay, watch: HangWatch
    ) -> None:
        self._child, self._record, self._display, self._watch = child, record, display, watch
        self._times, self._forced_at = 0, math.inf
        self._owed = False  # a signal that may have been lost: a child that is importing may swallow it

    def ask(self) -> None:
        """Ask the child, more firmly each time."""
        self._times += 1
        self._record.interrupted, self._owed = True, not self._record.began
        first = FORCE_AFTER_S if self._record.began else FORCE_EARLY_S
        within = (first, LET_GO_S, 0.0)[min(self._times, 3) - 1]
        self._forced_at = min(self._forced_at, time.monotonic() + within)
        _signal(self._child, signal.SIGINT)

    def look(self) -> None:
        """End the child where it has had its time."""
        if self._owed and self._record.began:
            self._owed = False
            _signal(self._child, signal.SIGINT)
        if time.monotonic() < self._forced_at:
            return
        if self._times == 1 and self._record.writing and not self._watch.in_call:
            return
        self._forced_at = math.inf
        if not self._record.end:
            self._display.say("it did not stop in time: killed")
        end_group(self._child)

    def wait(self) -> None:
        """Wait for a child that has said all: it may hang while it takes itself apart."""
        while self._child.poll() is None:
            try:
                self.look()
                self._child.wait(SAMPLE_EVERY_S)
            except subprocess.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                self.ask()


def stop_words(event: Mapping[str, Any]) -> str:
    """Return what comes of the first Ctrl-C, as text."""
    end, last = "step" if event["within"] else "iteration", event["last"]
    kept = "what was trained is lost" if last is None else f"back to step {last:,}, saved {event['age_s']:.0f} s ago"
    return (
        f"stopping after this {end}, with a checkpoint (if it takes longer than {STOP_WITHIN_S:.0f} s: {kept}); "
        "Ctrl-C again stops at once, without one"
    )


def _end_hanging(
    child: subprocess.Popen[bytes], record: ChildRecord, display: TrainingDisplay, hang: Hang, *, restart: bool
) -> None:
    """End a child whose environment hangs, and say where; one that hangs in closing has told its end already."""
    end_group(child)
    if record.end:
        display.say(f"{hang.message}: killed")
        return
    for line in [hang.message, *(hang.stacks.splitlines() if restart else ())]:  # else they are shown at the end
        display.say(line)
    record.end = {
        "event": "failed", "cause": "hanging", "message": hang.message, "traceback": hang.stacks, "step": record.step,
        "restart": restart,
    }  # fmt: skip


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        child.send_signal(number)


class _Listener:
    """Takes in what the child says: into the record, and onto the display."""

    def __init__(
        self, record: ChildRecord, display: TrainingDisplay, meter: _Meter, on_retreat: Callable[[dict[str, Any]], None]
    ) -> None:
        self.record, self.display, self.meter, self._on_retreat = record, display, meter, on_retreat
        self._lines, self._pending = EventLines(), deque[dict[str, Any]]()

    def feed(self, data: bytes) -> None:
        """Hear what has arrived, and what is left of earlier: an interrupt may come between two events."""
        self._pending.extend(self._lines.feed(data))
        while self._pending:
            self._hear(self._pending.popleft())

    def _hear(self, event: dict[str, Any]) -> None:
        record, display = self.record, self.display
        match event["event"]:
            case "progress":
                self._progress(event)
            case "workers":
                record.worker_envs.update({int(pid): envs for pid, envs in event["envs"].items()})
            case "phase":
                record.writing = event["phase"] == "checkpoint"
                if record.progress:
                    display.progress(replace(record.progress[-1], phase=event["phase"]))
                self.meter.enter(event["phase"])
            case "say":
                display.say(event["text"])
            case "checkpoint":
                record.checkpoint_step, record.writing = event["step"], False
                self._mark("checkpoint", f"checkpoint at step {event['step']:,}")
            case "retreat":
                self._mark("retreat", f"step {event['step']:,}: {event['why']}; redone with {event['what']}")
                display.say(f"{event['why']}: update {event['update']:,} redone with {event['what']}")
                self._on_retreat(event)
            case "started":
                record.began, record.started_step = True, event["step"]
                record.step = event["step"]
                if event["resumed_from"]:
                    record.checkpoint_step = event["resumed_from"]
            case "stopping":
                display.say(stop_words(event))
            case "evaluated":
                display.say(f"evaluated at step {event['step']:,}: reward {event['mean']:.4g} ± {event['spread']:.2g}")
            case "ended" | "failed" | "refused" | "stopped" | "retreated":
                record.end = event
                record.step = event.get("step", record.step)
                if (gpu_peak := event.get("gpu_peak_nbytes")) is not None:
                    record.gpu_peak_nbytes = max(gpu_peak, record.gpu_peak_nbytes or 0)

    def _progress(self, event: dict[str, Any]) -> None:
        gpu = event.pop("gpu_nbytes", None)
        self.meter.gpu_nbytes = gpu if gpu is not None else self.meter.gpu_nbytes
        progress, record = Progress.from_json(event), self.record
        record.progress.append(progress)
        drop_some(record.progress)
        record.step = progress.timesteps
        self.display.progress(progress)
        self.meter.enter(progress.phase)

    def _mark(self, kind: Literal["checkpoint", "retreat"], text: str) -> None:
        moments = self.record.moments
        moments.append(TrainingEvent(self.meter.seconds(), kind, text))
        drop_some(moments)


class _Meter:
    """Samples the memory of the child's tree and of what is around it, and finds peaks between samples.

    On a card, what the driver counts is the higher figure: torch knows its own tensors and cache, not the CUDA context.
    """

    def __init__(self, pid: int, record: ChildRecord, display: TrainingDisplay, gpu_meter: GpuMeter | None) -> None:
        self._phase: TrainingPhase = "start"
        self._sampled: set[TrainingPhase] = set()
        self.gpu_nbytes: int | None = None  # as the child knows it
        self._gpu_meter, self._driver_nbytes = gpu_meter, 0
        self._left: int | None = None
        self._pressure: float | None = None
        self._surroundings_due = 0.0
        self._pid, self._record, self._display = pid, record, display
        self._next = time.monotonic()
        self._began = self._next - record.seconds  # samples go on where the last start ended
        self._rss_peak = 0

    def seconds(self) -> float:
        """Return the time that a sample taken now would have."""
        return time.monotonic() - self._began

    def wait_s(self) -> float:
        """Return how long there is until the next sample."""
        return max(self._next - time.monotonic(), 0.0)

    def enter(self, phase: TrainingPhase) -> None:
        """Count samples to this phase from now on, and take its first at once: a short one may end before the next."""
        self._phase = phase
        if phase not in self._sampled:
            self._next = 0.0
            self.sample()

    def sample(self) -> None:
        """Take a sample where one is due."""
        now, spent_before = time.monotonic(), time.thread_time()
        if now < self._next:
            return
        tree = tree_memory(self._pid)
        own = tree.processes.get(self._pid)
        if own is not None:
            nbytes = tree.pss
            if own.rss_peak > self._rss_peak:  # the child went higher since the last sample than it had ever been
                self._rss_peak = own.rss_peak
                nbytes += max(own.rss_peak - own.rss, 0)
            self._record.host_alone_nbytes = max(self._record.host_alone_nbytes, nbytes + tree.alone - tree.pss)
            if now >= self._surroundings_due:
                self._surroundings_due = now + SURROUNDINGS_EVERY_S
                self._look_around(set(tree.processes))
            gpu = max(self.gpu_nbytes or 0, self._driver_nbytes) or self.gpu_nbytes
            self._sampled.add(self._phase)
            mapped = sum(process.pss_file for process in tree.processes.values())
            sample = MemorySample(now - self._began, nbytes, gpu, self._phase, self._left, self._pressure, mapped)
            self._record.add(sample)
            self._display.memory(sample)
        # Processor time: on a busy machine a sample mostly waits for its turn, and by the clock one slow sample would
        # be followed by half a minute without any, in which a peak comes and goes.
        spent = time.thread_time() - spent_before
        self._next = now + max(SAMPLE_EVERY_S, spent / SAMPLING_SHARE)

    def _look_around(self, pids: set[int]) -> None:
        cgroup = read_cgroup(pid=self._pid)
        self._left = None if cgroup is None else cgroup.left
        self._pressure = read_pressure()
        if self._gpu_meter is not None:
            self._driver_nbytes = self._gpu_meter(pids) or 0


@contextmanager
def _terminated_is_interrupted() -> Iterator[None]:
    """Let SIGTERM (a scheduler's way to say stop) do what Ctrl-C does, where signals may be handled at all."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
