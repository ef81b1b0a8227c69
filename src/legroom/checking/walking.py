"""Which files a check looks at: those that are named, and in a folder all that may be of a training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from legroom.errors import BadInput
from legroom.reading.user_files import is_directory

SUFFIXES = (".py", ".yml", ".yaml")
SKIPPED = frozenset({
    "venv", "env", "node_modules", "site-packages", "__pycache__", "build", "dist", "wandb", "mlruns",
})  # fmt: skip
MOST_FILES = 5_000


@dataclass(frozen=True)
class Target:
    """A file or named run to look at; `found` where it was not named but stood in a folder."""

    name: str
    found: bool = False


def targets(paths: list[str]) -> Iterator[Target]:
    """Yield what the paths name, the files of folders in the order of their names.

    Raises:
        BadInput: a folder holds too many files to be a project's.
    """
    seen: set[str] = set()
    for path in paths:
        if not is_directory(path):
            yield Target(path)
            continue
        for file in _files(path):
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                yield Target(file, found=True)


def _files(folder: str) -> Iterator[str]:
    count = 0
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_skipped(Path(at, name)))
        for name in sorted(files):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                count += 1
                if count > MOST_FILES:
                    raise BadInput(f"holds more than {MOST_FILES:,} files", path=folder, hint="name a folder in it")
                yield str(Path(at, name))


def _is_skipped(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in SKIPPED or (folder / "pyvenv.cfg").exists()
