"""Checkpoints: directories that are good or not there, whatever happens to the process that writes them.

    DIR/checkpoints/step-000000012345/
        policy.safetensors      the policy's state dict
        optimizer.safetensors   what the optimizers remember
        arrays.bin              all other arrays, raw, one after the other
        state.json              everything that is no array, and where each array of arrays.bin is
        replay-…                segments of a replay buffer; hard links to the previous checkpoint's where unchanged
        manifest.json           size and SHA-256 of every other file

A checkpoint is made in a temporary directory beside `checkpoints/`, forced to the disk, and renamed. Nothing in it is
pickled, so nothing in it is ever executed. What the arrays and the JSON mean is known to the backend alone
(`backends.sb3.state`, `backends.brax.state`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from legroom.errors import BadInput
from legroom.model.files import (
    Damaged,
    Newer,
    clear_left_over,
    make_directory,
    new_temporary,
    open_plain,
    parse,
    read_document,
    seal,
    sync_directory,
    unseal,
)
from legroom.training.arrays import (
    HashedFile,
    parameters_sha256,
    read_raw,
    read_safetensors,
    write_raw,
    write_safetensors,
)
from legroom.training.checkpoint_pace import Pace
from legroom.training.durable import delete, put_in_place, set_aside, sync_all
from legroom.training.finite import count_not_finite

__all__ = ["Checkpoint", "Checkpoints", "Pace", "checkpoint_paths", "newest_checkpoint", "parameters_sha256"]

FOLDER, MANIFEST, STATE, RAW = "checkpoints", "manifest.json", "state.json", "arrays.bin"
SAFETENSORS_GROUPS = ("policy", "optimizer")
VERSION = 1
DAMAGED, MOST_DAMAGED = "damaged-", 3
_STEP = re.compile(r"step-(\d{12,})")
_CHUNK = 1 << 20


class Checkpoint:
    """One checkpoint on disk, read when asked.

    Raises:
        BadInput: its manifest is missing or no manifest; so do the methods where a file is not as written.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        manifest = _manifest(self.path)
        self.files: dict[str, dict[str, Any]] = manifest["files"]
        self.passing = bool(manifest.get("passing"))  # of a moment within an iteration
        self._state: dict[str, Any] | None = None

    @property
    def step(self) -> int:
        """How many environment steps had been made."""
        return _step_of(self.path) or 0

    @property
    def data(self) -> dict[str, Any]:
        """Everything that is no array."""
        data: dict[str, Any] = self._read_state()["data"]
        return data

    def tensors(self, group: str) -> dict[str, np.ndarray]:
        """Return the arrays whose names begin with `group/`, by the rest of their names."""
        if group in SAFETENSORS_GROUPS:
            name = f"{group}.safetensors"
            return read_safetensors(self.path / name) if name in self.files else {}
        prefix = f"{group}/"
        index = {name: entry for name, entry in self._read_state()["arrays"].items() if name.startswith(prefix)}
        return {name.removeprefix(prefix): array for name, array in read_raw(self.path / RAW, index).items()}

    def file(self, name: str) -> Path:
        """Return the path of a further file of the checkpoint."""
        if name not in self.files:
            raise BadInput(f"has no file {name}", path=self.path, hint="use an earlier checkpoint")
        return self.path / name

    def verify(self, *, contents: bool = True) -> None:
        """Compare every file with the manifest.

        Args:
            contents: hash what is in them; otherwise only their sizes are compared.

        Raises:
            BadInput: says which file is not as written.
        """
        for name, entry in self.files.items():
            path = self.path / name
            try:
                size = path.stat().st_size
                found = _sha256(path) if contents and size == entry["bytes"] else ""
            except OSError as error:
                raise BadInput(f"{name} cannot be read: {error.strerror}", path=self.path) from error
            if size != entry["bytes"]:
                raise BadInput(f"{name} has {size:,} bytes instead of {entry['bytes']:,}", path=self.path)
            if contents and found != entry["sha256"]:
                raise BadInput(f"{name} does not match its checksum (SHA-256)", path=self.path)

    def _read_state(self) -> dict[str, Any]:
        if self._state is None:
            try:
                with open_plain(self.path / STATE) as file:
                    content = parse(file.read(), self.path)
                self._state = {"data": content["data"], "arrays": content["arrays"]}
            except (Damaged, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                raise BadInput(f"{STATE} cannot be read: {error}", path=self.path) from error
        return self._state


class Checkpoints:
    """The checkpoints of one run: written one after the other, the last few and the best kept.

    Args:
        directory: of the run; what processes that are gone were about to write there is cleared away.
        keep: how many good ones stay.
        keep_best: how many of the best by evaluation stay beside them.

    Attributes:
        suspect_since: the newest checkpoint from before this step stays, too; None: nothing is suspected.
    """

    def __init__(self, directory: Path, keep: int = 3, keep_best: int = 0) -> None:
        self.directory, self.keep, self.keep_best = Path(directory), max(1, keep), keep_best
        self.suspect_since: int | None = None
        self._evaluations: dict[int, float | None] = {}  # by step; as the checkpoints say it
        self.folder = self.directory / FOLDER
        self.damaged: list[tuple[Path, str]] = []
        self.warning = ""  # what was left undone by the last write, for whoever can say it
        self._newest: Checkpoint | None = None  # written or verified by us
        if self.directory.is_dir():
            clear_left_over(self.directory)

    def write(
        self,
        step: int,
        tensors: Mapping[str, np.ndarray],
        data: Mapping[str, Any],
        *,
        link: Mapping[str, Path] | None = None,
        files: Mapping[str, Callable[[Path], None]] | None = None,
        passing: bool = False,
    ) -> Path:
        """Write a checkpoint, delete the ones that are too many, and return its path.

        Args:
            tensors: arrays by `group/name`.
            data: all else, as JSON.
            link: further files that an earlier checkpoint has already: their names and paths.
            files: further files: their names, and what writes each to a path.
            passing: it is of a moment within an iteration, and deleted as soon as there is a later one.

        Raises:
            BadInput: it cannot be written; the earlier ones are as they were.
        """
        path = self.folder / f"step-{step:012d}"
        self.set_damaged_aside()  # they may have this one's name
        try:
            make_directory(self.folder)
            temporary = new_temporary(self.directory)
            try:
                about = {"step": step, "passing": True} if passing else {"step": step}
                self._fill(temporary, about, tensors, data, link or {}, files or {})
                put_in_place(temporary, path)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
        except OSError as error:
            raise BadInput(
                f"the checkpoint of step {step:,} cannot be written: {error.strerror or error}",
                path=self.folder,
                hint="free disk space; the earlier checkpoints are still good",
            ) from error
        self._newest = Checkpoint(path)
        self._evaluations.pop(step, None)
        self._prune_or_warn(step)
        return path

    def latest(self) -> Checkpoint | None:
        """Return the last good checkpoint, every byte of it verified; `damaged` lists those passed over.

        Raises:
            Newer: a later release wrote it.
        """
        self._newest, self.damaged = _newest_good(self.directory)
        return self._newest

    def best(self) -> list[tuple[int, float]]:
        """Return steps and means of the best checkpoints by evaluation, best first; the later of two equals."""
        means = {step: self._evaluation(path) for path in self._paths() if (step := _step_of(path)) is not None}
        evaluated = [(step, mean) for step, mean in means.items() if mean is not None]
        return sorted(evaluated, key=lambda each: (each[1], each[0]), reverse=True)[: self.keep_best]

    def would_be_best(self, mean: float) -> bool:
        """Return whether a checkpoint of that mean would be among the best that are kept."""
        best = self.best()
        return self.keep_best > 0 and math.isfinite(mean) and (len(best) < self.keep_best or mean >= best[-1][1])

    def put_aside(self, since: int) -> list[Path]:
        """Rename the checkpoints from that step on, so that no resume takes them; none where none is older."""
        paths = self._paths()
        if not any((_step_of(path) or 0) < since for path in paths):
            return []
        later = [path for path in paths if (_step_of(path) or 0) >= since]
        for path in later:
            path.rename(path.with_name(f"aside-{path.name}"))
        self._newest = None
        return later

    def set_damaged_aside(self) -> list[str]:
        """Rename the checkpoints that `latest` passed over, so that none is written over; return what to say.

        The newest few stay for whoever wants to look into them.
        """
        said, still = [], []
        for path, reason in self.damaged:
            try:
                kept = set_aside(path)
            except OSError as error:
                still.append((path, reason))
                said.append(f"warning: checkpoint {path.name} is damaged ({reason}) and cannot be moved: {error}")
            else:
                said.append(f"checkpoint {path.name} is damaged ({reason}): moved to {kept.name}")
        self.damaged = still
        return said + self._bound_damaged()

    def _bound_damaged(self) -> list[str]:
        said = []
        aside = self.folder.glob(f"{DAMAGED}step-*") if self.folder.is_dir() else ()
        for path in sorted(aside, reverse=True)[MOST_DAMAGED:]:
            with suppress(OSError):
                delete(path, self.directory)
                said.append(f"{path.name} is deleted: only {MOST_DAMAGED} damaged checkpoints are kept")
        return said

    @property
    def newest(self) -> Checkpoint | None:
        """The last one that this object has written or verified."""
        return self._newest

    def all(self) -> list[Checkpoint]:
        """Return all good checkpoints, oldest first, every byte verified."""
        good = []
        for path in checkpoint_paths(self.directory):
            checkpoint, _ = _verified(path)
            if checkpoint is not None:
                good.append(checkpoint)
        return good

    def _fill(
        self,
        folder: Path,
        about: Mapping[str, Any],
        tensors: Mapping[str, np.ndarray],
        data: Mapping[str, Any],
        link: Mapping[str, Path],
        files: Mapping[str, Callable[[Path], None]],
    ) -> None:
        manifest: dict[str, dict[str, Any]] = {}
        groups: dict[str, dict[str, np.ndarray]] = {group: {} for group in SAFETENSORS_GROUPS}
        others: dict[str, np.ndarray] = {}
        for name, array in tensors.items():
            group, _, rest = name.partition("/")
            if group in groups:
                groups[group][rest] = array
            else:
                others[name] = array
        for group, members in groups.items():
            if members:
                with _NewFile(folder, f"{group}.safetensors", manifest) as file:
                    write_safetensors(file, members)
        with _NewFile(folder, RAW, manifest) as file:
            index = write_raw(file, others)
        with _NewFile(folder, STATE, manifest) as file:
            file.write(json.dumps({"legroom": VERSION, **about, "data": data, "arrays": index}).encode())
        for name, write in files.items():
            write(folder / name)
            manifest[name] = _entry_of(folder / name)
        new = list(manifest)
        for name, source in link.items():
            if not _link(source, folder / name):
                new.append(name)
            manifest[name] = self._known(source) or _entry_of(folder / name)
        (folder / MANIFEST).write_bytes(seal({"legroom": VERSION, **about, "files": manifest}, indent=1))
        sync_all([folder / name for name in (*new, MANIFEST)])
        sync_directory(folder)

    def _known(self, source: Path) -> dict[str, Any] | None:
        """Return the manifest's entry of a file we have written or verified ourselves: it need not be hashed again."""
        if self._newest is not None and source.parent == self._newest.path:
            return self._newest.files.get(source.name)
        return None

    def make_room(self) -> None:
        """Delete all but the last good one: for a disk that is full when the end of a training has to be written."""
        newest = self._newest or self.latest()
        if newest is not None:
            for path in self._paths():
                if (step := _step_of(path) or 0) < newest.step and step != self._from_before():
                    with suppress(OSError):
                        delete(path, self.directory)

    def _prune_or_warn(self, step: int) -> None:
        """Prune; what cannot be deleted takes room and is no reason to stop."""
        try:
            self._prune(step)
        except (OSError, BadInput) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.warning = f"warning: an old checkpoint cannot be deleted: {reason}; training continues"

    def _prune(self, step: int) -> None:
        """Delete earlier checkpoints beyond the last `keep` good ones, and set damaged ones aside."""
        room = self.keep - 1
        stay = {self._from_before(), *(best for best, _ in self.best())}
        for path in reversed(self._paths()):
            if (_step_of(path) or 0) >= step:
                continue
            checkpoint, reason = _verified(path, contents=False)
            if checkpoint is None:
                self.damaged.append((path, reason))
            elif checkpoint.passing:
                delete(path, self.directory)
            elif room > 0:
                room -= 1
            elif checkpoint.step not in stay:
                delete(path, self.directory)
        self.warning = "; ".join(self.set_damaged_aside()) or self.warning

    def _paths(self) -> list[Path]:
        return checkpoint_paths(self.directory)

    def _from_before(self) -> int | None:
        """Return the step of the newest checkpoint from before anything was suspected."""
        since = self.suspect_since
        before = [step for path in self._paths() if (step := _step_of(path) or 0) < (since or 0)]
        return max(before, default=None)

    def _evaluation(self, path: Path) -> float | None:
        """Return the mean return of a checkpoint's evaluation; None where it was not evaluated or is damaged."""
        step = _step_of(path) or 0
        if step not in self._evaluations:
            mean = None
            if self.keep_best:
                with suppress(BadInput):
                    mean = Checkpoint(path).data.get("legroom", {}).get("evaluation")
            self._evaluations[step] = mean if isinstance(mean, int | float) else None
        return self._evaluations[step]


def checkpoint_paths(directory: Path) -> list[Path]:
    """Return the checkpoints of a run, good or not, by ascending step."""
    folder = directory / FOLDER
    paths = [path for path in folder.iterdir() if _step_of(path) is not None] if folder.is_dir() else []
    return sorted(paths, key=lambda path: _step_of(path) or 0)


def newest_checkpoint(directory: Path) -> Checkpoint | None:
    """Return a run's last good checkpoint, or the one that `directory` itself is; only reads.

    Raises:
        BadInput: `directory` is itself a checkpoint, and a damaged one.
    """
    if _step_of(directory) is not None and (directory / MANIFEST).exists():
        checkpoint = Checkpoint(directory)
        checkpoint.verify()
        return checkpoint
    return _newest_good(directory)[0]


def _newest_good(directory: Path) -> tuple[Checkpoint | None, list[tuple[Path, str]]]:
    damaged: list[tuple[Path, str]] = []
    for path in reversed(checkpoint_paths(directory)):
        checkpoint, reason = _verified(path)
        if checkpoint is not None and not (reason := _not_numbers(checkpoint)):
            return checkpoint, damaged
        damaged.append((path, reason))
    return None, damaged


def _verified(path: Path, *, contents: bool = True) -> tuple[Checkpoint | None, str]:
    """Return the checkpoint if it is good, and otherwise what is wrong with it.

    Raises:
        Newer: a later release wrote it.
    """
    try:
        checkpoint = Checkpoint(path)
        checkpoint.verify(contents=contents)
    except Newer:  # not damaged: whoever resumes with this release would train it again from an earlier one
        raise
    except BadInput as error:
        return None, error.message
    return checkpoint, ""


def _not_numbers(checkpoint: Checkpoint) -> str:
    """Say which array of what was learned holds NaN: earlier versions kept such checkpoints; "" where none does."""
    for group in SAFETENSORS_GROUPS:
        for name, array in checkpoint.tensors(group).items():
            if count_not_finite(array)[0]:
                return f"{group}/{name} holds NaN"
    return ""


def _manifest(path: Path) -> dict[str, Any]:
    try:
        content = unseal(read_document(path / MANIFEST), path)
        files: dict[str, dict[str, Any]] = content["files"]
        step = content["step"]
        plain = all(_is_entry(name, entry) for name, entry in files.items())
    except OSError as error:
        raise BadInput(f"{MANIFEST} cannot be read: {error.strerror}", path=path) from error
    except (Damaged, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{MANIFEST} is damaged", path=path) from error
    if not plain or STATE not in files or step != _step_of(path):
        raise BadInput(f"{MANIFEST} belongs to another checkpoint", path=path)
    return content


def _is_entry(name: str, entry: dict[str, Any]) -> bool:
    in_folder = Path(name).name == name and "\0" not in name
    return in_folder and isinstance(entry["bytes"], int) and isinstance(entry["sha256"], str)


def _step_of(path: Path) -> int | None:
    match = _STEP.fullmatch(path.name)
    return int(match[1]) if match else None


def _link(source: Path, target: Path) -> bool:
    """Give a file a second name, or copy it where that cannot be; return whether it was linked."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        return False
    return True


def _entry_of(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open_plain(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


class _NewFile:
    """A new file of a checkpoint, and its entry in the manifest."""

    def __init__(self, folder: Path, name: str, manifest: dict[str, dict[str, Any]]) -> None:
        self._file = (folder / name).open("wb")
        self._hashed, self._name, self._manifest = HashedFile(self._file), name, manifest

    def __enter__(self) -> HashedFile:
        return self._hashed

    def __exit__(self, *exc: object) -> None:
        self._file.close()
        self._manifest[self._name] = {"bytes": self._hashed.nbytes, "sha256": self._hashed.sha256}
