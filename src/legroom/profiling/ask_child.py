"""Let a fresh child process build an environment and do something with it.

Somebody else's environment may print, crash, hang, leak threads or take gigabytes; a process of its own keeps all that
away from the caller, and nothing of the caller's is in the memory that is measured. Task and answer are JSON files:
nothing is unpickled. What the environment prints goes nowhere, its last words on stderr into the message where it dies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from legroom.errors import BadInput, MissingExtra
from legroom.machine.child_process import how_it_ended, run_child
from legroom.machine.temporary_folder import temporary_folder
from legroom.sharing.shared_folder import VARIABLE

BUILD_TIMEOUT_S = 60.0
CHILD = "legroom.profiling.profiling_child"


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
    with temporary_folder("profile") as folder:
        task_file, answer_file, log_file = (folder / name for name in ("task.json", "answer.json", "log"))
        task = {"what": what, "env": {**env}, "arguments": arguments, "answer": str(answer_file), "folder": str(folder)}
        try:
            task_file.write_text(json.dumps(task))
        except (TypeError, ValueError) as wrong:
            raise BadInput(f"the arguments of env {env['id']!r} are not plain data: {wrong}") from wrong
        # what it shares goes with this folder, however it ends
        shared = os.environ.get(VARIABLE, str(folder / "shared"))
        environment = {**os.environ, VARIABLE: shared, **(extra or {})}
        code = run_child(CHILD, env["path"], task_file, log_file, timeout_s=timeout_s, environment=environment)
        try:
            answer: dict[str, Any] = json.loads(answer_file.read_bytes())
        except (OSError, ValueError):
            raise BadInput(_epitaph(env["id"], code, log_file, timeout_s)) from None
    if "missing" in answer:
        raise MissingExtra("profile", answer["missing"], what="legroom profile")
    if "error" in answer:
        raise BadInput(answer["error"], hint=answer.get("hint", ""))
    return answer


def _epitaph(env_id: str, code: int | None, log_file: Path, timeout_s: float) -> str:
    if code is None:
        return f"env {env_id!r} was not done after {timeout_s:g} s"
    return f"env {env_id!r} ended its process {how_it_ended(code, log_file)}"
