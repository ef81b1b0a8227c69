"""Commands that are printed to be given again: with `--trust`, for code that a file names, and with `--resume`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from legroom.errors import Unknown, Unseen

Trust = Annotated[bool, typer.Option("--trust", help="Import code it names; only for files you trust.")]


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
