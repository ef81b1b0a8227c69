"""The fresh process that `profile` starts: builds the environment, carries out one task, writes its answer.

Another task plugs in as a line of `TASKS`: a function of the environment (a gymnasium one, built but not reset), what
it was built from, a folder for files of its own and the arguments it was asked with, that returns plain data.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.machine.child_process import close_and_leave, write_answer
from legroom.sharing.shared_folder import VARIABLE

TASKS = {
    "leak": "legroom.watching.measuring:measure_leak",
    "cprofile": "legroom.watching.measuring:write_cprofile",
    "lines": "legroom.watching.leak_lines:find_lines",
    "c_lines": "legroom.watching.leak_lines:find_c_lines",
    "observation": "legroom.watching.observation:observe",
    "parallel": "legroom.watching.side_by_side:measure_scaling",
}
BUILD_THEIR_OWN = ("parallel",)  # these get None for the environment: they make theirs in further processes


def main() -> None:
    """Carry out the task file named on the command line."""
    task = json.loads(Path(sys.argv[-1]).read_bytes())
    os.environ.setdefault(VARIABLE, str(Path(task["folder"], "shared")))  # what it shares goes with this folder
    envs: list[Any] = []
    write_answer(Path(task["answer"]), _answer(task, envs))
    close_and_leave(envs)


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
        text, env_id = str(failed), repr(env["id"])
        return {"error": text if env_id in text else f"env {env_id}: {text}"}
    except BadInput as refused:
        return {"error": f"env {refused.message}", "hint": refused.hint}
    return answer
