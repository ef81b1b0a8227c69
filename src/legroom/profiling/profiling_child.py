"""The fresh process that `asking` starts: builds the environment, carries out one task, writes its answer as JSON.

Another task plugs in as a line of `TASKS`: a function of the environment (a gymnasium one, built but not reset), what
it was built from, a folder for files of its own and the arguments it was asked with, that returns plain data.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.machine.child_process import close_and_leave, write_answer

TASKS = {
    "leak": "legroom.profiling.profiling_child:measure_leak",
    "lines": "legroom.profiling.tracking:find_lines",
    "c_lines": "legroom.profiling.line_deltas:find_c_lines",
    "observation": "legroom.profiling.observation:observe",
    "cprofile": "legroom.profiling.stepping:write_cprofile",
    "parallel": "legroom.profiling.scaling:measure_scaling",
}
BUILD_THEIR_OWN = ("parallel",)  # these get None for the environment: they make theirs in further processes


def main() -> None:
    """Carry out the task file named on the command line (after the path the bootstrap took)."""
    task = json.loads(Path(sys.argv[2]).read_text())
    envs: list[Any] = []
    write_answer(Path(task["answer"]), _answer(task, envs))
    close_and_leave(envs)


def measure_leak(env: Any, built_from: dict[str, Any], folder: str, **arguments: Any) -> dict[str, Any]:
    """Return `measuring.measure`'s result as plain data."""
    return asdict(import_module("legroom.profiling.measuring").measure(env, **arguments))


def _answer(task: dict[str, Any], envs: list[Any]) -> dict[str, Any]:
    """Return the task's answer, or `{"error": …}` in one line; the environment goes into `envs`."""
    try:
        env_make = import_module("legroom.environments.env_make")
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
