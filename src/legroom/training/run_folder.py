"""The folder of one training: what is in it, who may write to it, and how it is found again.

run.json          the run that is trained, knobs turned and seed chosen: what a resume goes on with
prediction.json   its predicted peaks and items
live.jsonl        memory and words while it goes on
progress.csv, tensorboard/, train.log, checkpoints/, outcome.json, memory.svg, …
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.machine.live_log import LIVE
from legroom.model.files import write_whole
from legroom.model.footprint import HOST_PLACES, Footprint, Item, Peak
from legroom.model.outcome import Outcome
from legroom.model.run import Run

RUN, PREDICTION, OUTCOME, LOG, LOCK = "run.json", "prediction.json", "outcome.json", "train.log", ".lock"


@dataclass(frozen=True)
class Predicted:
    """What a prediction said, as much of it as a training shows beside what it measures."""

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
            held = sorted(entry.name for entry in self.path.iterdir()) if self.path.exists() else []
            if held and not resume:
                raise BadInput(
                    f"is not empty ({len(held)} entries: {', '.join(held[:3])}{', …' if len(held) > 3 else ''})",
                    path=self.path,
                    hint="--resume goes on with what is in it; another --out starts anew",
                )
        except OSError as error:
            raise BadInput(f"cannot be used: {error.strerror}", path=self.path, hint="--out DIR") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and keep other trainings out; the kernel lets go of the lock whatever ends this process.

        Raises:
            BadInput: it cannot be made, or another training is at work in it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / LOCK).open("a+")
        except OSError as error:
            raise BadInput(f"cannot be written to: {error.strerror}", path=self.path, hint="--out DIR") from None
        with file as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                raise BadInput(
                    f"another training (pid {lock.read().strip() or 'unknown'}) is at work there",
                    path=self.path,
                    hint="wait for it, or use another --out",
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def keep(self, run: Run, predicted: Predicted | None) -> None:
        """Write down what is trained and what was predicted for it.

        Raises:
            BadInput: it cannot be written.
        """
        self._write(RUN, run.model_dump())
        if predicted is not None:
            self._write(PREDICTION, asdict(predicted))

    def forget(self) -> None:
        """Delete what a training that never began has left, and the folder if nothing else is in it."""
        for name in (RUN, PREDICTION, LOG, LOCK, LIVE, "progress.csv"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
        with suppress(OSError):
            self.path.rmdir()

    def run(self) -> Run | None:
        """Return the run that was trained here; None where none was begun."""
        data = self._read(RUN)
        return None if data is None else Run.model_validate(data)

    def predicted(self) -> Predicted | None:
        """Return what was predicted when the training began."""
        data = self._read(PREDICTION)
        if data is None:
            return None
        peaks = {place: Peak(**data[place]) if data[place] else None for place in ("host", "gpu")}
        assert peaks["host"] is not None
        listed = (tuple((name, nbytes) for name, nbytes in data[key]) for key in ("items", "at_host_peak"))
        return Predicted(peaks["host"], peaks["gpu"], *listed)

    def outcome(self) -> Outcome | None:
        """Return how the last training in it ended; None where none did."""
        path = self.path / OUTCOME
        return Outcome.read(path) if path.exists() else None

    def _write(self, name: str, data: Any) -> None:
        try:
            write_whole(self.path / name, (json.dumps(data, indent=2) + "\n").encode())
        except OSError as error:
            raise BadInput(f"cannot be written: {error.strerror or error}", path=self.path / name) from None

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise BadInput(
                f"cannot be read: {error}", path=self.path / name, hint="start anew in another --out"
            ) from None
