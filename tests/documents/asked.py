"""The command, asked about the five documents: each question once, its answer as a document.

Every test of this folder is a promise of one of them, with its words as the docstring or as the first column of a
table. A promise without a mark is kept; `document_error` marks what the document has wrong, and the test shows what is
right; `needs_gpu` marks what a GPU alone can show, here on a simulated one. `docs/documents.md` counts them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.cli.in_process import legroom

GIB, MIB = 2**30, 2**20
ROOM = ("--ram", "64GiB")  # the same on every machine


def ran(*words: object, code: int = 0, **options: Any) -> str:
    """What a command prints, having ended with that exit code."""
    done = legroom(*words, **options)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@cache
def predicted(*words: str) -> dict[str, Any]:
    """The prediction of the one run that is named, by arithmetic unless `--mode trace` follows its networks."""
    room = () if "--ram" in words else ROOM
    mode = () if "--mode" in words else ("--mode", "arithmetic")
    done = legroom("predict", *words, *room, *mode, "--json")
    assert done.returncode in (0, 1), done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    return run


@cache
def fitted(*words: str) -> dict[str, Any]:
    """What `legroom fit` makes of a run, by arithmetic."""
    return json.loads(ran("fit", *words, "--mode", "arithmetic", "--json"))


@cache
def bill(*words: str) -> dict[str, int]:
    """The bytes of every item of that prediction."""
    return {item["name"]: item["count"] * item["nbytes"] for item in predicted(*words)["items"]}


def gib(nbytes: float) -> float:
    return round(nbytes / GIB, 2)


def of_program(*words: object, cwd: Path, code: int) -> str:
    """The same in a process of its own, which a program after `--` needs."""
    command = [sys.executable, "-m", "legroom", *map(str, words)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
