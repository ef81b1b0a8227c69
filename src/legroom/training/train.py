"""train(training) -> Outcome: start the child, see it through, and write down what happened.

Everything that can be refused is refused before the first step: a folder that is in use, a total that was not said.

A start that ended before its time is made again where that may help. A failure of memory is one that says so (an
exception, the kernel's count of kills), or a kill without a word while the memory was close to its limit: less memory
helps. A kill while there was plenty of room came from outside, and a crash of native code, or a call that hangs, may
not happen the next time: going on as before is right. Everything else would only happen again.
"""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from legroom.errors import BadInput
from legroom.machine.child_process import import_path
from legroom.machine.live_log import LiveLog
from legroom.model.outcome import (
    Attempt,
    MeasuredItem,
    MeasuredPeak,
    MeasuredPeaks,
    MemorySample,
    Outcome,
    Progress,
    RecordedRetreat,
    TrainingEvent,
)
from legroom.model.run import Run
from legroom.training.checkpoint import Checkpoint, checkpoint_paths
from legroom.training.lookout import Lookout
from legroom.training.request import Training
from legroom.training.run_folder import OUTCOME, Predicted, RunFolder
from legroom.training.supervise import ChildRecord, TrainingDisplay, supervise
from legroom.units import format_size

NEAR = 0.9  # of the limit: a process that is killed there was killed for its memory

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)

Place = Literal["host", "gpu"]


@dataclass(frozen=True)
class TrainingFailure:
    """One end before its time."""

    why: str  # what happened, in one line
    step: int
    place: Place | None  # whose memory ran out; None where it was not memory, and going on as before is right
    # what did it is probably still there: happening again from the same checkpoint, it always will
    repeats: bool = False
    # the kernel counted a kill for memory, but this training was far from its limit: another process of the container
    # may have been killed, or have taken the memory
    by_others: bool = False


def failure_of(record: ChildRecord, limit: int | None) -> TrainingFailure | None:
    """Return why the child ended, None where going on would be of no use: it is done, was stopped, or is wrong.

    Args:
        limit: bytes of host memory that the training may use, None where unknown.
    """
    if record.interrupted:  # the user asked for the end; an error in the same moment is part of it
        return None
    end = record.end
    near = limit is not None and record.host_peak_nbytes >= NEAR * limit
    far = limit is not None and not near
    place: Place | None
    room = f"{format_size(record.host_peak_nbytes)} in use" + (f" of {format_size(limit)}" if limit else "")
    match end.get("event"):
        case "retreated":
            return TrainingFailure(f"memory was about to run out ({room})", record.step, "host")
        case "failed" if end.get("cause") == "memory":
            place = "gpu" if end.get("on_gpu") else "host"
            return TrainingFailure(f"out of memory: {_first_line(end['message'])}", record.step, place)
        case "failed" if end.get("cause") == "worker-died":
            killed = bool(end.get("oom_killed"))
            place = "host" if killed or near else None
            return TrainingFailure(
                f"{_first_line(end['message'])} ({room})", record.step, place, by_others=killed and far
            )
        case "failed" if end.get("cause") == "hanging" and end.get("restart"):
            return TrainingFailure(_first_line(end["message"]), record.step, None, repeats=True)
        case None if record.exit_code is not None and -record.exit_code in CRASHES:
            name = signal.Signals(-record.exit_code).name
            return TrainingFailure(
                f"it crashed by {name} ({room})", record.step, "host" if near else None, repeats=not near
            )
        case None if record.exit_code == -signal.SIGKILL:
            by_kernel = record.oom_kills > 0
            killer = "the kernel killed it because memory ran out" if by_kernel else "it was killed by SIGKILL"
            place = "host" if by_kernel or near else None
            return TrainingFailure(f"{killer} ({room})", record.step, place, by_others=by_kernel and far)
    return None


def lacks_expandable_segments(record: ChildRecord) -> bool:
    """Return whether the child ended because the CUDA driver lacks what torch's growing segments call.

    torch asks before it uses them, but not on every platform, and then fails at the first tensor on the card.
    """
    told = record.end.get("event") == "failed" and not record.interrupted
    return told and "driver_api.cpp" in str(record.end.get("message"))


def _first_line(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= 200 else f"{line[:199]}…"


GONE_ON_FROM = ("memory", "worker-died", "hanging")  # failures after which a training goes on, unless it is stopped
WAIT_FOR_ROOM_S, ROOM_EVERY_S = 60.0, 5.0


NextKnob = Callable[[Run, TrainingFailure], "tuple[Run, Predicted | None] | None"]


def train(
    training: Training, display: TrainingDisplay, *, next_knob: NextKnob | None = None
) -> tuple[Outcome, ChildRecord]:
    """Train to the end, a stop or a failure; the outcome is in the folder when this returns.

    Where memory runs out, the training goes on from its last good checkpoint with the next knob turned; where the child
    was killed though there was room, as it was.

    Args:
        next_knob: gives the run with less memory in the place that ran out; None where there is no way left.

    Raises:
        BadInput: the folder is in use, or the child refused what it was given.
    """
    run, folder = training.run, training.folder
    if run.total_timesteps is None:
        raise BadInput(f"{run.name} has no total_timesteps", path=run.source, hint="--timesteps N")
    training = replace(training, out=str(folder.path), total_timesteps=run.total_timesteps)
    with folder.locked():
        display = LoggingDisplay(display, folder.path)
        before = folder.outcome() if training.resume else None
        for line in folder.mend() if training.resume else ():
            display.say(line)
        starts = Starts(training, before)
        record = starts.record
        while True:
            before_start = folder.documents()
            starts.keep()
            predicted = starts.training.predicted
            try:
                supervise(
                    starts.training,
                    display,
                    record,
                    import_path=import_path(run, own=True),
                    lookout=Lookout(training.host_limit, predicted.host.high if predicted else None),
                    on_retreat=starts.retreat_in_update,
                )
            except OSError as error:  # its task or its log cannot be written
                raise BadInput(
                    f"a training cannot be started there: {error.strerror or error}",
                    path=folder.path,
                    hint="--resume continues the training in it",
                ) from error
            starts.ended()
            if record.end.get("event") == "refused":
                if not (record.began or training.resume or starts.retreats):
                    folder.forget()
                elif not record.began:  # of the run that wrote the checkpoints, so that it can be resumed
                    folder.put_back(before_start)
                raise BadInput(record.end["message"])
            if lacks_expandable_segments(record) and starts.training.run.memory.expandable_segments is not False:
                starts.without_expandable_segments()
                display.say("this CUDA driver does not support expandable_segments: continuing without")
                continue
            failure = failure_of(record, training.host_limit)
            if failure is None or not starts.goes_on(failure, next_knob):
                break
            display.say(starts.last_word)
        newest = _newest(folder.path)
        if record.checkpoint_step is None and newest is not None:
            record.checkpoint_step = newest.step
        outcome = _outcome(starts, before, newest)
        _write_patiently(outcome, folder, display)
    return outcome, record


class LoggingDisplay:
    """Shows on `display`, and writes memory and words down for whoever follows it from outside (`legroom ui`)."""

    def __init__(self, display: TrainingDisplay, folder: Path) -> None:
        self._display, self._log = display, LiveLog(folder)

    def progress(self, progress: Progress) -> None:
        self._display.progress(progress)

    def memory(self, sample: MemorySample) -> None:
        self._log.memory(sample.host_nbytes, sample.gpu_nbytes, phase=sample.phase)
        self._display.memory(sample)

    def say(self, line: str) -> None:
        self._log.say(line)
        self._display.say(line)


def _write_patiently(outcome: Outcome, folder: RunFolder, display: TrainingDisplay) -> None:
    """Write the outcome, and wait a while for room where the disk is full: what was learned is in a checkpoint."""
    until = time.monotonic() + WAIT_FOR_ROOM_S
    while True:
        try:
            outcome.write(folder.path / OUTCOME)
            return
        except OSError as error:
            waits = time.monotonic() < until
            way = f"waiting for disk space, {WAIT_FOR_ROOM_S:.0f} s at most" if waits else "it is not kept"
            display.say(f"warning: {folder.path / OUTCOME} cannot be written: {error.strerror or error}; {way}")
            if not waits:
                return
        time.sleep(ROOM_EVERY_S)


class Starts:
    """The starts of one training: its run as it is by now, why each was made, and whether another one helps."""

    def __init__(self, training: Training, before: Outcome | None) -> None:
        self.training, self.record = training, ChildRecord()
        self.attempts = list(before.attempts if before else ())
        self.retreats = list(before.retreats if before else ())
        self.last_word = ""
        self._restarts = 0
        self._failed_from: tuple[int | None] | None = None  # the checkpoint before the last failure that may repeat
        self._reason = "start"

    def keep(self) -> None:
        """Write down what is trained by now.

        Raises:
            BadInput: it cannot be written.
        """
        training = self.training
        training.folder.keep(training.run, training.predicted, asked=training.begun or training.asked)

    def ended(self) -> None:
        """Count the start that has ended."""
        if not self._restarts:
            self._reason = "resume" if self.training.resume and self.record.started_step else "start"
        knobs = turned_knobs(self.training.asked, self.training.run)
        if self.attempts and self.attempts[-1].knobs == knobs:  # one for all: there may be thousands of starts
            knobs = self.attempts[-1].knobs
        self.attempts.append(Attempt(self._reason, knobs))
        gc.collect()  # what a start leaves in cycles, before the next one: the supervisor of weeks stays small

    def retreat_in_update(self, event: dict[str, Any]) -> None:
        """Write down that an update was redone in smaller pieces, at once: a resume has to know."""
        if event.get("micro_batch") is not None:
            self._set_memory(micro_batch=tuple((int(update), int(size)) for update, size in event["micro_batch"]))
            with suppress(BadInput):  # a full disk: the next checkpoint may find room, and so may the next retreat
                self.keep()
        self.retreats.append(
            RecordedRetreat(event["step"], event["why"], f"redone with {event['what']}", event["update"])
        )

    def _set_memory(self, **settings: Any) -> None:
        run = self.training.run
        self.training = replace(self.training, run=run.replace(memory=run.memory.model_copy(update=settings)))

    def without_expandable_segments(self) -> None:
        """Leave the allocator as torch has it: the driver does not know the calls that its growing segments need."""
        self._set_memory(expandable_segments=False)
        self._reason = "without expandable segments"
        self._restarts += 1

    def goes_on(self, failure: TrainingFailure, next_knob: NextKnob | None) -> bool:
        """Decide how to go on after a failure; False where there is no way, or it was tried often enough."""
        self._restarts += 1
        run, retries = self.training.run, self.training.retries
        if self._restarts > retries:
            self._give_up(failure, f"it was restarted {retries} times already")
            return False
        if failure.repeats:
            # None: before the first checkpoint, all starts begin alike
            last, self._failed_from = self._failed_from, (self.record.checkpoint_step,)
            if last == self._failed_from:
                self._give_up(failure, "it happened twice without a new checkpoint in between")
                return False
        what = "resumed unchanged"
        if failure.place is not None:
            found = next_knob(run, failure) if next_knob is not None else None
            if found is not None:
                self.training = replace(self.training, run=found[0], predicted=found[1])
                knobs = turned_knobs(run, found[0])
                what = "resumed with " + ", ".join(f"{name}={value}" for name, value in knobs.items())
            elif not failure.by_others:
                self._give_up(failure, "no allowed change is left that saves memory")
                return False
        self._reason = f"{failure.why}; {what}"
        self.retreats.append(RecordedRetreat(failure.step, failure.why, what))
        self.record.moments.append(
            TrainingEvent(self.record.seconds, "retreat", f"step {failure.step:,}: {failure.why}; {what}")
        )
        self.last_word = f"at step {failure.step:,}: {failure.why}; {what} (restart {self._restarts} of {retries})"
        self.training = replace(self.training, resume=True)
        return True

    def _give_up(self, failure: TrainingFailure, why: str) -> None:
        self.retreats.append(RecordedRetreat(failure.step, failure.why, f"given up: {why}"))
        if self.record.end.get("event") == "retreated":
            self.record.end |= {"event": "failed", "message": f"{failure.why}; given up: {why}", "cause": "memory"}


def is_finished(folder: RunFolder, total_timesteps: int | None) -> bool:
    """Return whether the training in the folder has reached the total."""
    outcome = folder.outcome()
    return outcome is not None and outcome.status == "finished" and outcome.timesteps >= (total_timesteps or 0)


def turned_knobs(asked: Run, trained: Run) -> dict[str, Any]:
    """Return the settings in which the trained run differs from the one asked for, by their names in the run file."""
    knobs = {}
    for part in ("memory", "env", "policy", "hyperparams"):
        before, after = _settings(getattr(asked, part)), _settings(getattr(trained, part))
        for key, value in after.items():
            if before.get(key) != value and key != "spaces":
                knobs[f"{part}.{key}"] = value
    return knobs


def _settings(part: Any) -> dict[str, Any]:
    return part if isinstance(part, dict) else part.model_dump()


def _outcome(starts: Starts, before: Outcome | None, newest: Checkpoint | None) -> Outcome:
    training, record = starts.training, starts.record
    predicted = training.predicted
    end = record.end
    if not record.began:  # stopped or failed before it went on: what was there is still there
        record.step = max(newest.step if newest is not None else 0, before.timesteps if before else 0)
        if before is not None and before.timesteps == record.step:
            end = {"parameters_sha256": before.parameters_sha256, "score": before.score} | end
    host = MeasuredPeak(predicted.host.nbytes if predicted else None, record.host_alone_nbytes)
    gpu = None
    if record.gpu_peak_nbytes is not None:
        gpu = MeasuredPeak(predicted.gpu.nbytes if predicted and predicted.gpu else None, record.gpu_peak_nbytes)
    schedule = training.run.memory.micro_batch
    return Outcome(
        status=_status(record),
        timesteps=record.step,
        parameters_sha256=end.get("parameters_sha256"),
        attempts=tuple(starts.attempts),
        peaks=MeasuredPeaks(_higher(host, before.peaks.host if before else None), gpu),
        resume=_resume(record, newest),
        score=end.get("score") or {},
        seconds=round((before.seconds if before else 0.0) + record.seconds, 1),
        items=_items(predicted, end.get("items") or {}),
        error=_error(record),
        retreats=tuple(starts.retreats),
        micro_batch=schedule if isinstance(schedule, tuple) else None,
        versions=dict(training.versions or {}),
    )


def _higher(peak: MeasuredPeak, earlier: MeasuredPeak | None) -> MeasuredPeak:
    """Return the peak over all attempts; what an earlier one measured still counts."""
    return peak if earlier is None else MeasuredPeak(peak.predicted, max(peak.measured, earlier.measured))


def _items(predicted: Predicted | None, measured: Mapping[str, int]) -> tuple[MeasuredItem, ...]:
    """Return the predicted items beside what was measured of them; workers count as one."""
    if predicted is None:
        return ()
    return tuple(MeasuredItem(name, nbytes, measured.get(name)) for name, nbytes in predicted.items)


def _newest(directory: Path) -> Checkpoint | None:
    """Return the newest checkpoint whose files have their sizes; hashing gigabytes is for the resume."""
    for path in reversed(checkpoint_paths(directory)):
        with suppress(BadInput):
            checkpoint = Checkpoint(path)
            checkpoint.verify(contents=False)
            return checkpoint
    return None


def _resume(record: ChildRecord, newest: Checkpoint | None) -> Literal["exact", "approximate"] | None:
    """Return how a resume would go on: as the child said, or its last checkpoint where it ended before it could."""
    if newest is None:
        return None
    exact = record.end.get("exact")
    if exact is None:
        try:
            exact = not newest.data.get("legroom", {}).get("why_not_exact")
        except BadInput:  # the resume will find an earlier one
            exact = False
    return "exact" if exact else "approximate"


def _status(record: ChildRecord) -> Any:
    match record.end.get("event"):
        case "ended":
            return record.end["status"]
        case "stopped":
            return "stopped"
        case None | "retreated" if record.interrupted:  # before it could listen, or a second time: the signal ended it
            return "stopped"
        case "failed" if record.interrupted and record.end.get("cause") in GONE_ON_FROM:
            return "stopped"
    return "failed"


def _error(record: ChildRecord) -> str | None:
    if record.end.get("event") == "failed":
        return f"at step {record.step:,}: {record.end['message']}"
    if not record.end and not record.interrupted:
        return f"at step {record.step:,}: the training process {_death(record.exit_code)}"
    return None


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code} and no message"
