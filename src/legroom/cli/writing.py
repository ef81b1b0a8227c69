"""Files that a command is asked to write: looked at before the work, written whole after, one line where that fails."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from legroom.cli.help import OUTPUT
from legroom.errors import BadInput
from legroom.model.files import write_whole

Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", rich_help_panel=OUTPUT, help="Write a page with charts to FILE."),
]


def check_writable(option: str, file: Path | None) -> None:
    """Look before minutes are spent on what is to be written there.

    Raises:
        BadInput: it cannot be written.
    """
    if file is None:
        return
    if file.is_dir():
        raise BadInput(f"{option}: is a directory", path=file, hint="name a file")
    if not file.parent.is_dir():
        raise BadInput(f"{option}: there is no directory {file.parent}", path=file)
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise BadInput(f"{option}: cannot be written", path=file)


def write_text(option: str, file: Path, text: str) -> None:
    """Write a text, whole or not at all.

    Raises:
        BadInput: it cannot be written.
    """
    try:
        write_whole(file, text.encode())
    except OSError as error:
        raise BadInput(f"{option}: {error.strerror or error}", path=file) from None
