"""Ask XLA what a brax run needs, without running it: the parent of `compile_child`.

Imports no jax: a process that has compiled a training step holds a gigabyte for it, which is the child's and goes with
it. What the child says it is doing is handed on, since a compilation takes minutes.
"""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from legroom.device.xla_target import ENVIRONMENT
from legroom.environments.own_code import own_code
from legroom.errors import BadInput, MissingExtra
from legroom.machine.child_process import how_it_ended, import_path, run_child
from legroom.machine.temporary_folder import temporary_folder
from legroom.machine.versions import is_installed
from legroom.model.run import Run

CHILD = "legroom.backends.brax.compile_child"
TIMEOUT_S = 3600.0
PACKAGES = ("jax", "brax")
Progress = Callable[[str], None]
Question = Literal["shapes", "compile", "mark", "plan"]


def ask_compiler(
    what: Question, run: Run, *, progress: Progress = lambda _: None, timeout_s: float = TIMEOUT_S, **more: Any
) -> dict[str, Any]:
    """Return what a fresh process answers about the run; see `compiling`.

    Args:
        progress: is told what goes on, from another thread.
        more: for the question, as plain data: `one_unroll`, `evaluation`, `training_steps`; `cores` to do with.

    Raises:
        BadInput: brax refuses the run, its environment cannot be made, or the child died.
        MissingExtra: jax or brax is not installed.
    """
    for package in PACKAGES:
        if not is_installed(package):
            raise MissingExtra("jax", package, what="compiling a brax run")
    with temporary_folder("compile") as folder:
        task_file, answer_file, log_file, progress_file = (
            folder / name for name in ("task.json", "answer.json", "log", "progress")
        )
        task = {
            "what": what, "run": run.model_dump(), "answer": str(answer_file), "progress": str(progress_file),
            "folder": str(folder), **more,
        }  # fmt: skip
        try:
            task_file.write_text(json.dumps(task))
        except (TypeError, ValueError) as wrong:
            raise BadInput(f"the settings of {run.name} are not plain data: {wrong}", path=run.source) from wrong
        # No device but the CPU, whatever there is: no memory of a GPU is taken, and the answer is the same everywhere.
        environment = {
            **os.environ, **ENVIRONMENT, "JAX_ENABLE_COMPILATION_CACHE": "0", "TF_CPP_MIN_LOG_LEVEL": "3",
        }  # fmt: skip
        path = import_path(run, own=bool(own_code(run).names))
        finished = threading.Event()
        listener = threading.Thread(target=_listen, args=(progress_file, progress, finished), daemon=True)
        listener.start()
        try:
            code = run_child(CHILD, path, task_file, log_file, timeout_s=timeout_s, environment=environment)
        finally:
            finished.set()
            listener.join()
        try:
            answer: dict[str, Any] = json.loads(answer_file.read_bytes())
        except (OSError, ValueError):
            raise BadInput(_epitaph(run, code, log_file, timeout_s), path=run.source) from None
    if "missing" in answer:
        raise MissingExtra("jax", answer["missing"], what="compiling a brax run")
    if "error" in answer:
        raise BadInput(answer["error"], path=run.source, hint=answer.get("hint", ""))
    return answer


def _listen(progress_file: Path, progress: Progress, finished: threading.Event) -> None:
    """Hand on every new line until the child is done."""
    heard = 0
    while not finished.wait(0.5):
        try:
            lines = progress_file.read_text().splitlines()
        except OSError:
            continue
        for line in lines[heard:]:
            progress(line)
        heard = len(lines)


def _epitaph(run: Run, code: int | None, log_file: Path, timeout_s: float) -> str:
    if code is None:
        return f"compiling {run.name} was not done after {timeout_s:g} s"
    return f"compiling {run.name} ended its process {how_it_ended(code, log_file)}"
