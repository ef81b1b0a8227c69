"""Which files a check looks at: those that are named, and in a folder all that may be of a training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from legroom.errors import BadInput
from legroom.reading.user_files import exists, is_directory

SUFFIXES = (".py", ".yml", ".yaml")
SKIPPED = frozenset({
    "venv", "env", "node_modules", "site-packages", "__pycache__", "build", "dist", "wandb", "mlruns",
})  # fmt: skip
MOST_FILES = 5_000
DENIED = "cannot be read: Permission denied"


@dataclass(frozen=True)
class Target:
    """A file or named run to look at; `found` where it was not named but stood in a folder."""

    name: str
    found: bool = False
    problem: str = ""  # why it cannot be looked at


def targets(paths: list[str]) -> Iterator[Target]:
    """Yield what the paths name, the files of folders in the order of their names.

    Raises:
        BadInput: a folder holds too many files to be a project's, or cannot be read.
    """
    seen: set[str] = set()
    for path in paths:
        if not is_directory(path):
            yield Target(path)
            continue
        for target in _found(path):
            real = os.path.realpath(target.name)
            if real not in seen:
                seen.add(real)
                yield target


def _found(folder: str) -> Iterator[Target]:
    """Yield the files of a folder that may be of a training, and the folders in it that cannot be read."""
    count = 0
    if not os.access(folder, os.R_OK | os.X_OK):
        raise BadInput(DENIED, path=folder, hint="check its permissions")
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_skipped(Path(at, name)))
        unreadable = [name for name in folders if not os.access(Path(at, name), os.R_OK | os.X_OK)]
        yield from (Target(str(Path(at, name)), found=True, problem=DENIED) for name in unreadable)
        folders[:] = [name for name in folders if name not in unreadable]
        for name in sorted(files):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                count += 1
                if count > MOST_FILES:
                    raise BadInput(f"holds more than {MOST_FILES:,} files", path=folder, hint="name a folder in it")
                yield Target(str(Path(at, name)), found=True)


def _is_skipped(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in SKIPPED or exists(folder / "pyvenv.cfg")
