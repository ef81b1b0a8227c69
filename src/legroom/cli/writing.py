"""Files that a command is asked to write: looked at before the work, written whole after, one line where that fails."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from legroom.cli.help import OUTPUT, rarely
from legroom.errors import BadInput
from legroom.model.files import open_plain, write_whole

Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", rich_help_panel=OUTPUT, help="Write a page with charts to FILE."),
]


Force = Annotated[
    bool,
    typer.Option("--force", rich_help_panel=rarely(OUTPUT), help="Overwrite files that legroom did not write."),
]
# How what is written here begins: pages, documents, run files.
_OURS = re.compile(
    rb"<!DOCTYPE html>.*<meta name=.generator. content=.legroom|\{\s*.legroom.: *\d"
    rb"|# [^\n]*(?:, fitted: |the same as: )[^\n]*\n(?:#[^\n]*\n)*legroom: ",
    re.DOTALL,
)
_HEAD = 1 << 14


def check_writable(option: str, file: Path | None, *, force: bool = False) -> None:
    """Look before minutes are spent on what is to be written there.

    Raises:
        BadInput: it cannot be written, or is a file that we did not write.
    """
    if file is None:
        return
    if file.is_dir():
        raise BadInput(f"{option}: is a directory", path=file, hint="name a file")
    if not file.parent.is_dir():
        raise BadInput(f"{option}: there is no directory {file.parent}", path=file)
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise BadInput(f"{option}: cannot be written", path=file)
    if file.is_file() and not force:
        with open_plain(file) as there:
            head = there.read(_HEAD)
        if head and not _OURS.match(head):
            raise BadInput(
                f"{option}: already exists and was not written by legroom", path=file, hint="--force overwrites it"
            )


def write_text(option: str, file: Path, text: str) -> None:
    """Write a text, whole or not at all.

    Raises:
        BadInput: it cannot be written.
    """
    try:
        write_whole(file, text.encode())
    except OSError as error:
        raise BadInput(f"{option}: {error.strerror or error}", path=file) from None
