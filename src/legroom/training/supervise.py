"""Run the training child, watch its memory, and hear what it says.

The child is a process of its own because what happens in it cannot be trusted to end well: the parent stays small and
alive when the child is killed for its memory, and knows how far it came. The peak is the largest sum of PSS over the
child and its workers. Short peaks fall between two samples; the kernel's own high-water mark of the child shows that
there was one, and how high.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from legroom.machine.cgroup import oom_kills, read_left
from legroom.machine.gpu_meter import GpuMeter
from legroom.machine.pressure import read_pressure
from legroom.machine.tree import tree_memory
from legroom.model.progress import MemorySample, Moment, Progress, TrainingPhase
from legroom.training.events import EventLines
from legroom.training.folder import LOG
from legroom.training.lookout import Lookout
from legroom.training.task import TrainTask

SAMPLE_EVERY_S = 0.2
SURROUNDINGS_EVERY_S = 1.0  # the container, its pressure, the card
SAMPLING_SHARE = 0.05  # reading the memory of many processes takes long; never more than this share of the time
MOST_SAMPLES = 20_000
LET_GO_S = 3.0  # after a second Ctrl-C
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
XLA_PREALLOCATE, JAX_PLATFORMS, XLA_LOG_LEVEL = "XLA_PYTHON_CLIENT_PREALLOCATE", "JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL"
CHILDREN = {
    "sb3": "legroom.backends.sb3.training",
    "brax": "legroom.backends.brax.training",
    "rllib": "legroom.backends.rllib.training",
}

# -P and the path as an argument: a json.py in the working directory must not be the child's json.
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1));"
    "from legroom.training.orphan import end_with; end_with(int(sys.argv.pop(1)));"
    "from importlib import import_module; import_module(sys.argv.pop(1)).main()"
)


class Display(Protocol):
    """What shows a training while it goes on."""

    def progress(self, progress: Progress) -> None: ...
    def memory(self, sample: MemorySample) -> None: ...
    def say(self, line: str) -> None: ...


@dataclass
class Story:
    """What one start of the child told, and what was measured meanwhile."""

    exit_code: int | None = None
    end: dict[str, Any] = field(default_factory=dict)  # its last word: ended, failed, refused or stopped
    checkpoint_step: int | None = None
    began: bool = False  # it listens to signals since then
    started_step: int = 0
    step: int = 0
    host_peak_nbytes: int = 0
    gpu_peak_nbytes: int | None = None
    samples: list[MemorySample] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    retreats: list[dict[str, Any]] = field(default_factory=list)  # inside updates: redone in smaller pieces
    moments: list[Moment] = field(default_factory=list)  # what happened when, to be marked in charts
    interrupted: bool = False  # by Ctrl-C or SIGTERM
    oom_kills: int = 0  # by the kernel, in this cgroup, meanwhile


def supervise(
    task: TrainTask,
    display: Display,
    *,
    import_path: list[str],
    lookout: Lookout | None = None,
    on_retreat: Callable[[dict[str, Any]], None] = lambda event: None,
) -> Story:
    """Run the child to its end, forwarding Ctrl-C, and return its story.

    Args:
        lookout: sees when memory is about to run out; the child is then asked to write a checkpoint and end.
        on_retreat: told at once when an update was redone in smaller pieces.
    """
    reading, writing = os.pipe()
    story, kills_before = Story(), oom_kills()
    with (
        _terminated_is_interrupted(),  # from here on: the log is what others see first of a training
        tempfile.TemporaryDirectory(prefix="legroom-train-") as folder,
        (Path(task.out) / LOG).open("ab") as log,
    ):
        task_file = Path(folder, "task.json")
        replace(task, events_fd=writing).write(task_file)
        about = [json.dumps(import_path), str(os.getpid()), CHILDREN[task.run.backend], str(task_file)]
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOTSTRAP, *about],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writing,),
            env=child_environment(task),
            start_new_session=True,  # Ctrl-C reaches the parent alone, which decides what it means
        )
        os.close(writing)
        try:
            gpu_meter = None if task.device == "cpu" else GpuMeter()
            _follow(child, reading, story, display, lookout or Lookout(None), on_retreat, gpu_meter)
        finally:
            os.close(reading)
            _end(child)
    story.exit_code, story.oom_kills = child.returncode, oom_kills() - kills_before
    return story


def child_environment(task: TrainTask) -> dict[str, str]:
    """Return the child's environment: allocators are told before torch or jax loads, or they do not listen."""
    memory = task.run.memory
    if task.run.backend == "brax":
        return _jax_settings(task) | dict(os.environ)  # the user's own word counts
    settings = []
    if memory.expandable_segments is not False:
        settings.append("expandable_segments:True")
    if memory.max_split_size_mb is not None:
        settings.append(f"max_split_size_mb:{memory.max_split_size_mb}")
    environment = dict(os.environ)
    if settings and ALLOCATOR not in environment:  # the user's own word counts
        environment[ALLOCATOR] = ",".join(settings)
    return environment


def _jax_settings(task: TrainTask) -> dict[str, str]:
    settings = {XLA_LOG_LEVEL: "2"}  # XLA remarks on every program that it finds in its cache
    if task.run.memory.xla_preallocate is not None:
        settings[XLA_PREALLOCATE] = str(task.run.memory.xla_preallocate).lower()
    if task.device == "cpu":
        settings[JAX_PLATFORMS] = "cpu"
    return settings


def _follow(
    child: subprocess.Popen[bytes],
    reading: int,
    story: Story,
    display: Display,
    lookout: Lookout,
    on_retreat: Callable[[dict[str, Any]], None],
    gpu_meter: GpuMeter | None,
) -> None:
    lines, meter, interrupts = EventLines(), _Meter(child.pid, story, display, gpu_meter), 0
    killing_at: float | None = None
    owed = False  # a signal that may have been lost: a child that is importing may swallow it
    with _terminated_is_interrupted():
        while True:
            try:
                ready, _, _ = select.select([reading], [], [], meter.wait_s())
                meter.sample()
                if story.began and story.samples and lookout.sees(story.samples[-1]):
                    display.say(f"memory is about to run out ({lookout.why}): a checkpoint, then on with less")
                    with suppress(ProcessLookupError):
                        child.send_signal(signal.SIGUSR1)
                if killing_at is not None and time.monotonic() > killing_at:
                    _end(child)
                if not ready:
                    continue
                data = os.read(reading, 1 << 16)
                for event in lines.feed(data):
                    _hear(event, story, display, meter)
                    if event["event"] == "retreat":
                        story.retreats.append(event)
                        what = f"step {event['step']:,}: {event['why']}; redone with {event['what']}"
                        story.moments.append(Moment(meter.seconds(), "retreat", what))
                        display.say(f"{event['why']}: update {event['update']:,} redone with {event['what']}")
                        on_retreat(event)
                if owed and story.began:
                    owed = False
                    with suppress(ProcessLookupError):
                        child.send_signal(signal.SIGINT)
                if not data:  # it has closed its end: it is over
                    child.wait()
                    return
            except KeyboardInterrupt:
                interrupts += 1
                story.interrupted, owed = True, not story.began
                if interrupts > 1:  # it ends at once: what does not let go in a moment is made to
                    killing_at = time.monotonic() + (LET_GO_S if interrupts == 2 else 0.0)
                with suppress(ProcessLookupError):
                    child.send_signal(signal.SIGINT)


def _hear(event: dict[str, Any], story: Story, display: Display, meter: _Meter) -> None:
    match event["event"]:
        case "progress":
            gpu = event.pop("gpu_nbytes", None)
            meter.gpu_nbytes = gpu if gpu is not None else meter.gpu_nbytes
            progress = Progress.from_json(event)
            story.progress.append(progress)
            if len(story.progress) > MOST_SAMPLES:
                del story.progress[:-1:2]
            story.step = progress.timesteps
            display.progress(progress)
        case "phase":
            meter.phase = event["phase"]
            if story.progress:
                display.progress(replace(story.progress[-1], phase=event["phase"]))
        case "say":
            story.said.append(event["text"])
            display.say(event["text"])
        case "checkpoint":
            story.checkpoint_step = event["step"]
            story.moments.append(Moment(meter.seconds(), "checkpoint", f"checkpoint at step {event['step']:,}"))
            if len(story.moments) > MOST_SAMPLES:
                del story.moments[:-1:2]
        case "started":
            story.began, story.started_step = True, event["step"]
            story.step = event["step"]
            if event["resumed_from"]:
                story.checkpoint_step = event["resumed_from"]
        case "stopping":
            display.say("stopping after this iteration, with a checkpoint; Ctrl-C again stops at once, without one")
        case "evaluated":
            display.say(f"evaluated at step {event['step']:,}: reward {event['mean']:.4g} ± {event['spread']:.2g}")
        case "ended" | "failed" | "refused" | "stopped" | "retreated":
            story.end = event
            story.step = event.get("step", story.step)
            story.gpu_peak_nbytes = event.get("gpu_peak_nbytes")


class _Meter:
    """Samples the memory of the child's tree and of what is around it, and finds peaks between samples.

    On a card, what the driver counts is the higher figure: torch knows its own tensors and cache, not the CUDA context.
    """

    def __init__(self, pid: int, story: Story, display: Display, gpu_meter: GpuMeter | None) -> None:
        self.phase: TrainingPhase = "start"
        self.gpu_nbytes: int | None = None  # as the child knows it
        self._gpu_meter, self._driver_nbytes = gpu_meter, 0
        self._left: int | None = None
        self._pressure: float | None = None
        self._surroundings_due = 0.0
        self._pid, self._story, self._display = pid, story, display
        self._began = self._next = time.monotonic()
        self._rss_peak = 0

    def seconds(self) -> float:
        """Return the time that a sample taken now would have."""
        return time.monotonic() - self._began

    def wait_s(self) -> float:
        return max(self._next - time.monotonic(), 0.0)

    def sample(self) -> None:
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
            if now >= self._surroundings_due:
                self._surroundings_due = now + SURROUNDINGS_EVERY_S
                self._look_around(set(tree.processes))
            gpu = max(self.gpu_nbytes or 0, self._driver_nbytes) or self.gpu_nbytes
            sample = MemorySample(now - self._began, nbytes, gpu, self.phase, self._left, self._pressure)
            self._story.samples.append(sample)
            if len(self._story.samples) > MOST_SAMPLES:  # days of training; the higher of each pair is kept
                samples = self._story.samples
                self._story.samples = [max(samples[i : i + 2], key=_host) for i in range(0, len(samples), 2)]
            self._story.host_peak_nbytes = max(self._story.host_peak_nbytes, nbytes)
            self._display.memory(sample)
        # Processor time: on a busy machine a sample mostly waits for its turn, and by the clock one slow sample would
        # be followed by half a minute without any, in which a peak comes and goes.
        spent = time.thread_time() - spent_before
        self._next = now + max(SAMPLE_EVERY_S, spent / SAMPLING_SHARE)

    def _look_around(self, pids: set[int]) -> None:
        self._left = read_left(pid=self._pid)
        self._pressure = read_pressure()
        if self._gpu_meter is not None:
            self._driver_nbytes = self._gpu_meter(pids) or 0


def _host(sample: MemorySample) -> int:
    return sample.host_nbytes


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


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and its workers, which share its session, whatever state they are in."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
