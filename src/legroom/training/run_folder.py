"""The folder of one training: what is in it, who may write to it, how it changes and how it is found again.

run.json          the run that is trained, knobs turned and seed chosen, and under `asked` as it was asked for
prediction.json   its predicted peaks and items; derived anew where it is missing or damaged
checkpoints/      step-N: state of the training, size and SHA-256 of every file, and a copy of run.json
outcome.json      how the last training in it ended; derived anew by a resume where it is missing or damaged
progress.csv, live.jsonl, tensorboard/, train.log, …   for people; nothing is resumed from them
.lock             locked (flock) by the process that trains
.tmp-PID-START-N  what a process is about to write, its tasks for its child; cleared by the next start

The protocol, which every change of the folder follows:

1. Only the holder of `.lock` and its child write. A start first clears what dead processes left (`clear_left_over`) and
   sets damaged files aside (`mend`).
2. A document (run, prediction, outcome) carries its checksum (`model.files`). It is written to a temporary file,
   synced, renamed, and the folder is synced. A crash leaves the old document or the new one.
3. run.json is written first: a folder without it holds no training, and a resume begins one. A crash before
   prediction.json leaves a folder whose prediction the next start makes anew.
4. A checkpoint is filled in a temporary folder, every file synced, then the folder; it is renamed to `step-N`, and
   `checkpoints/` is synced. Only then are older ones deleted: renamed out, then removed. A crash leaves the checkpoints
   before or after, and a temporary folder that the next start clears. One of a moment within an iteration (`passing` in
   its manifest) is deleted by the next one, which has hard links to the files of it that it needs.
5. outcome.json is written last, after the child has ended. A crash before it leaves the outcome of an earlier session
   or none; a resume takes what it needs from the checkpoints, never from there.
6. What is damaged is renamed to `damaged-NAME`, said, and never written over. run.json comes back from a checkpoint;
   without one, the folder is refused. The last good checkpoint is resumed from.
7. A file that cannot be written or deleted is said once. Training goes on; its end waits for room.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from legroom.backends.default import DEFAULT_BACKEND
from legroom.errors import BadInput
from legroom.machine.forks import in_forks, to_nowhere
from legroom.machine.live_log import LIVE
from legroom.machine.temporary_folder import clear_left_folders
from legroom.model.files import (
    PREFIX,
    Damaged,
    Newer,
    clear_left_over,
    make_directory,
    read_document,
    seal,
    unseal,
    write_whole,
)
from legroom.model.footprint import HOST_PLACES, Footprint, Item, Peak
from legroom.model.outcome import Outcome
from legroom.model.run import Run, kept_run
from legroom.model.spaces import Data
from legroom.training.durable import set_aside
from legroom.training.progress_log import read_progress

RUN, PREDICTION, OUTCOME, LOG, LOCK = "run.json", "prediction.json", "outcome.json", "train.log", ".lock"
ASKED, PROGRESS = "asked", "progress.csv"
# of a training or a sweep that was begun: one of them is there, or there is nothing to resume
OURS, ASIDE = (RUN, PREDICTION, OUTCOME, LOG, LIVE, LOCK, PROGRESS, "checkpoints", "sweep.json"), "damaged-"


@dataclass(frozen=True)
class Predicted(Data):
    """What a prediction said, as much of it as a training shows beside what it measures."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "ignore"}

    host: Peak
    gpu: Peak | None
    items: tuple[tuple[str, int], ...]
    at_host_peak: tuple[tuple[str, int], ...]
    """those of the items that make up the host's peak"""

    @classmethod
    def of(cls, footprint: Footprint) -> Predicted:
        def listed(items: Iterable[Item]) -> tuple[tuple[str, int], ...]:
            return tuple((item.name, item.total) for item in items)

        peak = footprint.host.phase
        there = (item for item in footprint.items if item.place in HOST_PLACES and peak in item.phases)
        return cls(footprint.host, footprint.gpu, listed(footprint.items), listed(there))


@dataclass(frozen=True)
class RunFolder:
    """The folder of one training."""

    path: Path

    @classmethod
    def default(cls, run: Run) -> RunFolder:
        """Return `runs/NAME-TIMESTAMP`, with a number where that is taken."""
        name = re.sub(r"[^\w.-]+", "-", run.name) or "run"
        path = Path("runs", f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
        for number in range(2, 100):
            if not path.exists():
                break
            path = path.with_name(f"{path.name.partition('_')[0]}_{number}")
        return cls(path)

    def check(self, *, resume: bool) -> None:
        """Refuse a folder that cannot be trained in; makes nothing.

        Raises:
            BadInput: it is a file, cannot be read, or holds something already.
        """
        if self.path.exists() and not self.path.is_dir():
            raise BadInput("is a file, not a folder to train in", path=self.path, hint="--out DIR")
        try:
            names = sorted(entry.name for entry in self.path.iterdir()) if self.path.exists() else []
            # the lock and temporary files alone are of a command that failed, or of one that will be seen to be at work
            held = [name for name in names if name != LOCK and not name.startswith(PREFIX)]
            if resume and not any(name in OURS or name.startswith(ASIDE) for name in names):
                reason = "holds no training" if held else "is empty" if self.path.exists() else "does not exist"
                hint = "name the folder to continue, or leave --resume out to start a new one"
                raise BadInput(f"{reason}: nothing to resume", path=self.path, hint=hint)
            if held and not resume:
                raise BadInput(
                    f"is not empty ({len(held)} entries: {', '.join(held[:3])}{', …' if len(held) > 3 else ''})",
                    path=self.path,
                    hint="--resume continues what is in it; another --out starts over",
                )
        except OSError as error:
            raise BadInput(f"cannot be used: {error.strerror}", path=self.path, hint="--out DIR") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and keep other trainings out; the kernel lets go of the lock whatever ends this process.

        A folder in which nothing was begun is left as it was.

        Raises:
            BadInput: it cannot be made, or another training is at work in it.
        """
        is_new = not self.path.exists()
        try:
            make_directory(self.path)
            file = (self.path / LOCK).open("a+b", buffering=0)  # so that closing it writes nothing, and cannot fail
        except OSError as error:
            raise BadInput(f"cannot be written to: {error.strerror}", path=self.path, hint="--out DIR") from None
        with in_forks(file, lambda file: to_nowhere(file.fileno())) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                raise BadInput(
                    f"another training (pid {lock.read().decode().strip() or 'unknown'}) is already running there",
                    path=self.path,
                    hint="wait for it, or use another --out",
                ) from None
            with suppress(OSError):  # a full disk: whoever comes next is told less
                lock.truncate(0)
                lock.write(str(os.getpid()).encode())
            clear_left_over(self.path)
            clear_left_folders()
            try:
                yield
            finally:
                with suppress(OSError):
                    if [each.name for each in self.path.iterdir()] == [LOCK]:
                        (self.path / LOCK).unlink()
                        if is_new:
                            self.path.rmdir()

    def keep(self, run: Run, predicted: Predicted | None, *, asked: Run | None = None) -> None:
        """Write down what is trained, what it was asked for as, and what was predicted for it.

        Raises:
            BadInput: it cannot be written.
        """
        self._write(RUN, run.model_dump() | ({} if asked is None else {ASKED: asked.model_dump()}))
        if predicted is not None:
            with suppress(BadInput):  # it is for people, and can be derived anew
                self._write(PREDICTION, {"legroom": 1} | asdict(predicted))

    def documents(self) -> dict[str, bytes]:
        """Return what `keep` has written, to be put back where a start with something else is refused."""
        found = {}
        for name in (RUN, PREDICTION):
            with suppress(OSError):
                found[name] = (self.path / name).read_bytes()
        return found

    def put_back(self, documents: Mapping[str, bytes]) -> None:
        """Write what `documents` returned, as far as the disk lets it."""
        for name, content in documents.items():
            with suppress(OSError):
                write_whole(self.path / name, content)

    def forget(self) -> None:
        """Delete what a training that never began has left, and the folder if nothing else is in it."""
        for name in (RUN, PREDICTION, LOG, LOCK, LIVE, PROGRESS):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
        with suppress(OSError):
            self.path.rmdir()

    def run(self) -> Run | None:
        """Return the run that was trained here; None where none was begun.

        Raises:
            BadInput: it is damaged and no checkpoint has a copy, or a later release wrote it.
        """
        data = self._run_data()
        return None if data is None else _run_of(data, self.path / RUN)

    def asked(self) -> Run | None:
        """Return the run as it was asked for when the training began, None where none was begun; raises as `run`."""
        data = self._run_data()
        return None if data is None else _run_of(data.get(ASKED, data), self.path / RUN)

    def predicted(self) -> Predicted | None:
        """Return what was predicted when the training began; None where that is missing or damaged."""
        try:
            data = self._read(PREDICTION)
            return None if data is None else Predicted.model_validate(data)
        except (BadInput, ValueError):
            return None

    def outcome(self) -> Outcome | None:
        """Return how the last training in it ended; None where none did or that is damaged.

        Raises:
            Newer: a later release wrote it.
        """
        try:
            return Outcome.read(self.path / OUTCOME) if (self.path / OUTCOME).exists() else None
        except Newer:
            raise
        except BadInput:
            return None

    def mend(self) -> list[str]:
        """Set damaged documents aside, to be derived anew; return what is to be said about the folder."""
        said = []
        for name, derived in ((RUN, "restored from a checkpoint"), (PREDICTION, "made anew"), (OUTCOME, "made anew")):
            try:
                self._read(name)
            except Newer:
                raise
            except BadInput as error:
                said.append(f"{name} {error.message}: {self._set_aside(name)}, {derived}")
        try:
            if (self.path / PROGRESS).exists():
                read_progress(self.path / PROGRESS)
        except BadInput as error:
            said.append(f"{PROGRESS} {error.message}: {self._set_aside(PROGRESS)}, started again")
        return said

    def _set_aside(self, name: str) -> str:
        try:
            return f"moved to {set_aside(self.path / name).name}"
        except OSError as error:
            return f"cannot be moved ({error.strerror or error})"

    def _run_data(self) -> dict[str, Any] | None:
        """Return what run.json says, or the copy of it in the newest checkpoint that has one."""
        try:
            return self._read(RUN)
        except Damaged as damaged:
            from legroom.training.checkpoint import checkpoint_paths  # numpy, which the page does without

            for path in reversed(checkpoint_paths(self.path)):
                with suppress(OSError, BadInput):
                    return unseal(read_document(path / RUN), path / RUN)
            raise BadInput(damaged.message, path=damaged.path, hint="start over in another --out") from None

    def _write(self, name: str, data: Mapping[str, Any]) -> None:
        try:
            write_whole(self.path / name, seal(data))
        except OSError as error:
            raise BadInput(f"cannot be written: {error.strerror or error}", path=self.path / name) from None

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        try:
            return unseal(read_document(path), path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInput(
                f"cannot be read: {error.strerror or error}", path=path, hint="start over in another --out"
            ) from None


def _run_of(data: dict[str, Any], path: Path) -> Run:
    try:
        return kept_run({key: value for key, value in data.items() if key != ASKED})
    except ValueError as error:  # of pydantic
        raise BadInput(f"is not a run: {error}", path=path, hint="start over in another --out") from None


def backend_name_in(directory: Path) -> str:
    """Return the backend of the run in a folder, or of which it is a checkpoint; the default where nothing says."""
    for folder in (directory, directory.parent.parent):
        try:
            return str(json.loads(read_document(folder / RUN))["backend"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return DEFAULT_BACKEND


def check_export(directory: Path, archive: Path, *, force: bool) -> None:
    """Refuse to export from what is no directory, to what is no file, or over a file that is there.

    Raises:
        BadInput: says which.
    """
    if not directory.is_dir():
        raise BadInput("no such directory", path=directory, hint="legroom train RUN --out DIR makes one")
    if archive.exists() and not force:
        raise BadInput("already exists", path=archive, hint="--force overwrites it")
    if archive.is_dir() or not archive.absolute().parent.is_dir():
        raise BadInput("cannot hold a file", path=archive, hint="give a file name in a directory that exists")
