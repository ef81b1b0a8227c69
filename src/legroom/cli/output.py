"""What commands print and write beside their document: files, notes, requests for schedulers, commands to type again.

Files are looked at before the work, written whole after, and are one line where that fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from legroom.cli.commands import PageOptions
from legroom.errors import BadInput, Unknown, Unseen
from legroom.model.facts import trained_by_legroom
from legroom.model.files import open_plain, write_whole
from legroom.model.footprint import Footprint
from legroom.model.plan import Prediction
from legroom.rendering.console import say
from legroom.rendering.document import Document
from legroom.units import MIB

# How what is written here begins: pages, documents, run files.
_OURS = re.compile(
    rb"<!DOCTYPE html>.*<meta name=.generator. content=.legroom|\{\s*.legroom.: *\d"
    rb"|# [^\n]*(?:, fitted: |the same as: )[^\n]*\n(?:#[^\n]*\n)*legroom: ",
    re.DOTALL,
)
_HEAD = 1 << 14
# The process of `legroom train` itself, beside the training's: 40 MiB (PSS) when the whole tree was at its peak,
# 2026-11-17, Python 3.11.7. It has more at the end, when the training's memory is free again.
SUPERVISOR_BYTES = 48 * MIB


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


def show(asked: PageOptions, data: Callable[[], str], document: Document, page: Document | None = None) -> None:
    """Print a result as JSON or as text, and write its page where `--html` says.

    Args:
        page: where the page says more than the text.

    Raises:
        BadInput: it cannot be written.
    """
    write_page(asked.html, page or document)
    say(data() if asked.json else document)
    if asked.html is not None and not asked.json:
        say(f"written: {asked.html}")


def write_page(file: Path | None, document: Document) -> None:
    """Write a result as a page where `--html` says; nothing where it says nothing.

    Raises:
        BadInput: it cannot be written.
    """
    if file is not None:
        write_text("--html", file, import_module("legroom.rendering.page").whole_page(document))  # only for --html


def command_with_trust() -> str:
    """Return the command that was given, as it would see everything."""
    return shlex.join(["legroom", *sys.argv[1:], "--trust"])


def command_to_resume(out: Path, chosen: Mapping[str, str] | None = None) -> str:
    """Return the command that was given, as it goes on with what it began in a folder.

    Args:
        chosen: what was chosen for words of the command, such as a workload's run.
    """
    given = [(chosen or {}).get(word, word) for word in sys.argv[1:] if word not in ("--json", "--resume")]
    named = any(argument.split("=")[0] == "--out" for argument in given)
    return shlex.join(["legroom", *given, *([] if named else ["--out", str(out)]), "--resume"])


def unseen_line() -> str:
    """Return the line that ends an answer that is unknown because --trust was not given."""
    return f"if you trust it: {command_with_trust()}"


def unseen_run(unseen: Unseen) -> dict[str, Any]:
    """Return what is known of a run whose environment was not imported, under the keys of a prediction."""
    return unknown_run(unseen.name, str(unseen)) | {"unseen": list(unseen.code)}


def unknown_run(name: str, why: str) -> dict[str, Any]:
    """Return what is known of a run that could not be predicted, under the keys of a prediction."""
    nothing = dict.fromkeys(("device", "host", "gpu", "with_free_savings", "with_lean_storage", "probe"))
    empty: dict[str, Any] = {"findings": [], "notes": [why], "items": []}
    return {"name": name, "fits": None, **nothing, **empty}


def unknown_json(unknown: Unknown, arguments: Sequence[str]) -> str:
    """Return the document of a command other than `predict` that cannot give its verdict."""
    told: dict[str, Any] = {"legroom": 1, "name": unknown.name, "fits": None, "notes": [str(unknown)]}
    if isinstance(unknown, Unseen):
        told |= {"unseen": list(unknown.code), "see": shlex.join(["legroom", *arguments, "--trust"])}
    else:
        told["unknown"] = list(unknown.reasons)
    return json.dumps(told, indent=2)


def job_of(footprint: Footprint, system: str, *, by_legroom: bool) -> dict[str, Any]:
    """Return what one job asks for, for a document: numbers, and the text to paste.

    Args:
        by_legroom: `legroom train` starts it, which is a process of its own.
    """
    from legroom.scheduling.requests import System, granted, request_for, snippet  # few ask for it

    kind = System(system)
    request = request_for(footprint, supervisor=SUPERVISOR_BYTES if by_legroom else 0)
    return {
        "for": system, "name": request.name, "need": request.need, "memory": granted(request, kind),
        "shm": request.shm, "gpu": request.gpu, "text": snippet(request, kind),
    }  # fmt: skip


def jobs_of(predictions: Sequence[Prediction], system: str) -> Iterator[dict[str, Any] | None]:
    """Yield what each prediction asks for, None where it is unknown what it needs."""
    for each in predictions:
        if each.footprint.unseen or each.footprint.unknown:
            yield None
        else:
            yield job_of(each.footprint, system, by_legroom=trained_by_legroom(each.run))


def job_text(jobs: Sequence[dict[str, Any] | None]) -> str:
    """Return what to paste, of all jobs.

    Raises:
        BadInput: none of them is known.
    """
    texts = [job["text"] for job in jobs if job is not None]
    if not texts:
        raise BadInput("--for: what it needs is unknown", hint="see above; --trust imports code that the run names")
    return "\n\n".join(texts)
