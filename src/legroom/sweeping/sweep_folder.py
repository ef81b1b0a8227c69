"""The folder of a sweep: what was planned, the trials' own folders, and what each of them says while it runs.

sweep.json       the grid and every trial: its run, its prediction, what it requests
trials/NNN/      the folder of a training, as `legroom train` makes it, and live.json: its memory at this moment
stop             there while the trials shall stop
result.json

A trial may run on another machine of a cluster, so whatever it says goes through this folder, which all must see.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.model.files import Damaged, read_document, seal, unseal, write_whole
from legroom.model.run import kept_run
from legroom.sweeping.trial import Trial
from legroom.training.run_folder import Predicted, RunFolder

PLAN, STOP, RESULT, LIVE, TRIALS = "sweep.json", "stop", "result.json", "live.json", "trials"


@dataclass(frozen=True)
class SweepFolder:
    """The folder of one sweep."""

    path: Path

    def trial(self, number: int) -> RunFolder:
        """Return the folder of a trial's training."""
        return RunFolder(self.path / TRIALS / f"{number:03d}")

    def keep(self, identity: dict[str, Any], trials: Sequence[Trial]) -> None:
        """Write down what is swept.

        Raises:
            BadInput: it cannot be written.
        """
        data = {"legroom": 1, "sweep": identity, "trials": [_trial_data(trial) for trial in trials]}
        self._write(PLAN, seal(data, default=str))  # a resume trains what it says

    def forget_unless_begun(self) -> None:
        """Delete the plan of a sweep of which no trial was begun."""
        if not (self.path / TRIALS).exists():
            (self.path / PLAN).unlink(missing_ok=True)
            self.go()

    def identity(self) -> dict[str, Any] | None:
        """Return what tells this sweep from another one; None where none was begun.

        Raises:
            BadInput: the file is none of ours.
        """
        data = self._plan()
        return None if data is None else data["sweep"]

    def trials(self) -> list[Trial]:
        """Return the trials as they were planned.

        Raises:
            BadInput: there are none.
        """
        data = self._plan()
        if data is None:
            raise BadInput("holds no sweep", path=self.path, hint="leave --resume out to begin one")
        return [_trial_of(entry) for entry in data["trials"]]

    def stop(self) -> None:
        """Ask every trial to write a checkpoint and end."""
        with suppress(OSError):
            (self.path / STOP).touch()

    def go(self) -> None:
        """Take that back."""
        (self.path / STOP).unlink(missing_ok=True)

    def is_stopping(self) -> bool:
        return (self.path / STOP).exists()

    def write_result(self, data: Any) -> None:
        """Write what came of the sweep.

        Raises:
            BadInput: it cannot be written.
        """
        self._write(RESULT, (json.dumps(data, indent=2, default=str) + "\n").encode())

    def _write(self, name: str, content: bytes) -> None:
        """Write a file of the sweep, whole or not at all."""
        try:
            write_whole(self.path / name, content)
        except OSError as error:
            raise BadInput(f"cannot be written: {error.strerror or error}", path=self.path / name) from None

    def _plan(self) -> dict[str, Any] | None:
        path = self.path / PLAN
        try:
            data = unseal(read_document(path), path)
            if not isinstance(data["sweep"], dict) or not isinstance(data["trials"], list):
                raise TypeError("it holds no sweep with a list of trials")
            return {"sweep": data["sweep"], "trials": data["trials"]}
        except FileNotFoundError:
            return None
        except Damaged as damaged:
            raise BadInput(damaged.message, path=path, hint="another --out starts over") from None
        except (OSError, KeyError, TypeError) as error:
            raise BadInput(f"is not a plan of a sweep: {error}", path=path, hint="another --out starts over") from None


@dataclass(frozen=True)
class Live:
    """What a trial says of itself while it runs, in bytes; `runs` counts its starts."""

    nbytes: int = 0
    peak: int = 0
    requested: int = 0
    timesteps: int = 0
    runs: int = 0
    reason: str = ""

    def write(self, folder: RunFolder) -> None:
        """Write it; that it cannot be is no reason to end a training."""
        path = folder.path / LIVE
        with suppress(OSError):
            new = path.with_suffix(".new")
            new.write_text(json.dumps(asdict(self)))
            new.replace(path)

    @classmethod
    def read(cls, folder: RunFolder) -> Live:
        """Return what was last said; nothing where there is no such file."""
        try:
            data = json.loads(read_document(folder.path / LIVE))
            return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})
        except (OSError, ValueError, TypeError, RecursionError):
            return cls()


def _trial_data(trial: Trial) -> dict[str, Any]:
    data = {name: getattr(trial, name) for name in ("number", "device", "requested", "gpu_share", "shares", "mapped")}
    runs = {"asked": trial.asked.model_dump(), "run": trial.run.model_dump()}
    return data | {"params": dict(trial.params)} | runs | {"predicted": asdict(trial.predicted)}


def _trial_of(data: dict[str, Any]) -> Trial:
    runs = {name: kept_run(data[name]) for name in ("asked", "run")}
    return Trial(**data | runs | {"predicted": Predicted.model_validate(data["predicted"])})
