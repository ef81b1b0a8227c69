"""What is checked before an archive is written: a refusal need not wait for torch."""

from __future__ import annotations

import json
from pathlib import Path

from legroom.backends.default import DEFAULT_BACKEND
from legroom.errors import BadInput
from legroom.model.files import read_document

RUN = "run.json"


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
