"""`legroom` called in this process: what it prints and its exit code, without the start of an interpreter."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from legroom.cli.main import main
from legroom.reading import reading_budget


def legroom(
    *arguments: object, cwd: Path | None = None, stdin: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command as a process of its own would, in a folder and with further variables of the environment."""
    out, err, words = io.StringIO(), io.StringIO(), [str(each) for each in arguments]
    with (
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.dict(os.environ, environment),
        patch.object(sys, "path", [*sys.path]),
        patch.object(reading_budget, "_by_timer", False),  # which the command changes
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO((stdin or "").encode()))),
    ):
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
