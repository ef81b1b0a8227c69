"""The fresh process that `asking` starts: builds the environment, carries out one task, writes its answer as JSON.

Another task plugs in as a line of `TASKS`: a function of the environment (a gymnasium one, built but not reset), what
it was built from, a folder for files of its own and the arguments it was asked with, that returns plain data.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from legroom.errors import BadInput

CLOSE_TIMEOUT_S = 2.0
TASKS = {
    "leak": "legroom.profiling.child:measure_leak",
    "lines": "legroom.profiling.tracking:find_lines",
    "c_lines": "legroom.profiling.line_deltas:find_c_lines",
    "observation": "legroom.profiling.observation:observe",
    "pace": "legroom.profiling.pace:measure_pace",
    "cprofile": "legroom.profiling.functions:write_cprofile",
    "parallel": "legroom.profiling.scaling:measure_scaling",
}
BUILD_THEIR_OWN = ("parallel",)  # these get None for the environment: they make theirs in further processes


def main() -> None:
    """Carry out the task file named on the command line (after the path the bootstrap took)."""
    task = json.loads(Path(sys.argv[2]).read_text())
    envs: list[Any] = []
    _write(Path(task["answer"]), _answer(task, envs))
    # Environments may own processes and windows; one that does not let go must not keep us.
    timer = threading.Timer(CLOSE_TIMEOUT_S, os._exit, (0,))
    timer.daemon = True
    timer.start()
    for env in envs:
        with suppress(BaseException):
            env.close()
    os._exit(0)


def measure_leak(env: Any, built_from: dict[str, Any], folder: str, **arguments: Any) -> dict[str, Any]:
    """Return `measuring.measure`'s result as plain data."""
    return asdict(import_module("legroom.profiling.measuring").measure(env, **arguments))


def _answer(task: dict[str, Any], envs: list[Any]) -> dict[str, Any]:
    """Return the task's answer, or `{"error": …}` in one line; the environment goes into `envs`."""
    try:
        env_make = import_module("legroom.backends.env_make")
    except ModuleNotFoundError as missing:
        return {"missing": missing.name or "gymnasium"}
    module, _, function = TASKS[task["what"]].partition(":")
    perform = getattr(import_module(module), function)
    env = task["env"]
    try:
        if task["what"] not in BUILD_THEIR_OWN:
            envs.append(env_make.build(env["id"], env["kwargs"], env["wrappers"]))
        answer: dict[str, Any] = perform(envs[0] if envs else None, env, task["folder"], **task["arguments"])
    except env_make.EnvError as failed:
        return {"error": _one_line(env["id"], str(failed))}
    except BadInput as refused:
        return {"error": f"env {refused.message}", "hint": refused.hint}
    return answer


def _one_line(env_id: str, text: str) -> str:
    return text if repr(env_id) in text else f"env {env_id!r}: {text}"


def _write(answer_file: Path, answer: dict[str, Any]) -> None:
    partial = answer_file.with_suffix(".partial")
    partial.write_text(json.dumps(answer))
    partial.replace(answer_file)
