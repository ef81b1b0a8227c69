"""Let a fresh child process build an environment and do something with it.

Somebody else's environment may print, crash, hang, leak threads or take gigabytes; a process of its own keeps all that
away from the caller, and nothing of the caller's is in the memory that is measured. Task and answer are JSON files:
nothing is unpickled. What the environment prints goes nowhere, its last words on stderr into the message where it dies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from legroom.errors import BadInput, MissingExtra

BUILD_TIMEOUT_S = 60.0

# -P and the path as an argument: a json.py in the working directory must not be the child's json.
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from legroom.profiling import child as c; c.main()"
)


def ask_child(
    what: str, env: Mapping[str, Any], *, timeout_s: float, extra: Mapping[str, str] | None = None, **arguments: Any
) -> dict[str, Any]:
    """Return the answer of a fresh process to the task `what` (a name in `child.TASKS`).

    Args:
        env: as `loading.env_task` makes it.
        timeout_s: for all of it; the child is ended then.
        extra: environment variables for the child, besides ours.
        arguments: for the task, as plain data.

    Raises:
        BadInput: the environment cannot be built, raised, ended its process or took too long.
        MissingExtra: the child lacks a package.
    """
    with tempfile.TemporaryDirectory(prefix="legroom-profile-") as folder:
        task_file, answer_file, log_file = (Path(folder, name) for name in ("task.json", "answer.json", "log"))
        task = {"what": what, "env": {**env}, "arguments": arguments, "answer": str(answer_file), "folder": folder}
        try:
            task_file.write_text(json.dumps(task))
        except (TypeError, ValueError) as wrong:
            raise BadInput(f"the arguments of env {env['id']!r} are no plain data: {wrong}") from wrong
        code = _run_child(list(env["path"]), task_file, log_file, timeout_s, extra or {})
        try:
            answer: dict[str, Any] = json.loads(answer_file.read_bytes())
        except (OSError, ValueError):
            raise BadInput(_epitaph(env["id"], code, log_file, timeout_s)) from None
    if "missing" in answer:
        raise MissingExtra("profile", answer["missing"], what="legroom profile")
    if "error" in answer:
        raise BadInput(answer["error"], hint=answer.get("hint", ""))
    return answer


def _run_child(
    path: list[str], task_file: Path, log_file: Path, timeout_s: float, extra: Mapping[str, str]
) -> int | None:
    """Run the child to its end and return its exit code; None when it took too long."""
    command = [sys.executable, "-P", "-c", _BOOTSTRAP, json.dumps(path), str(task_file)]
    with log_file.open("wb") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **extra},
        )
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end_group(child)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End the child and whatever the environment started beside it."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # start_new_session made its id the group's
    child.kill()
    child.wait()


def _epitaph(env_id: str, code: int | None, log_file: Path, timeout_s: float) -> str:
    if code is None:
        return f"env {env_id!r} was not done after {timeout_s:g} s"
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    lines = log_file.read_text(errors="replace").strip().splitlines()
    last = f": {lines[-1][:300]}" if lines else ""
    return f"env {env_id!r} ended its process ({how}){last}"
