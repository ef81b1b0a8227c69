"""The child process that is asked about brax runs: the task's file in, the answer's file out; see `compiling`.

XLA reads its flags when jax is imported, and what is measured is this process: so nothing of jax is imported before the
flags are set, and every question has a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path

from legroom.device import xla_target
from legroom.errors import BadInput, MissingExtra
from legroom.machine.child_process import write_answer

EPOCH_MODULE, EVALUATION_MODULE = "jit__fun", "jit_generate_eval_unroll"  # as jax names what it compiles


def main() -> None:
    """Do what the task file says, and write the answer."""
    task = json.loads(Path(sys.argv[-1]).read_bytes())

    def say(text: str) -> None:
        with Path(task["progress"]).open("a") as file:
            file.write(text + "\n")

    if task.get("cores") and hasattr(os, "sched_setaffinity"):  # before XLA counts them
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task["cores"]])
    if task["what"] == "plan":
        modules = "|".join((EPOCH_MODULE, EVALUATION_MODULE))
        _add_flags(f"--xla_dump_to={task['folder']}/dump --xla_dump_hlo_module_re={modules}")
    if "target" in task:
        _add_flags(xla_target.FLAGS)
    try:
        answer = import_module("legroom.backends.brax.compiling").QUESTIONS[task["what"]](task, say)
    except BadInput as wrong:
        answer = {"error": wrong.message, "hint": wrong.hint}
    except MissingExtra as missing:
        answer = {"missing": missing.package}
    except ModuleNotFoundError as missing:
        answer = {"missing": missing.name}
    write_answer(Path(task["answer"]), answer)
    os._exit(0)  # a compilation may still be going on in a thread


def _add_flags(flags: str) -> None:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
