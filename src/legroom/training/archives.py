"""What is checked before an archive is written or read, and said after it: a refusal need not wait for torch."""

from __future__ import annotations

import json
from pathlib import Path

from legroom.backends.default import DEFAULT_BACKEND
from legroom.errors import BadInput
from legroom.model.files import read_document

RUN, IMPORTED = "run.json", "imported.json"


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


def check_import(archive: Path, directory: Path, *, trust: bool, force: bool) -> None:
    """Refuse to load what is not trusted, and to replace what is not a run.

    Raises:
        BadInput: says what is wrong.
    """
    if not trust:
        raise BadInput("archives can execute code", path=archive, hint="--trust, for files you trust")
    if not directory.exists():
        return
    if not directory.is_dir():
        raise BadInput("is a file", path=directory, hint="give a directory")
    entries = {entry.name for entry in directory.iterdir()}
    if not entries:
        return
    if not force:
        raise BadInput("is not empty", path=directory, hint="--force replaces the run in it")
    if not entries & {RUN, IMPORTED, "checkpoints"}:
        raise BadInput("is not a run folder and is left alone", path=directory, hint="give another directory")
