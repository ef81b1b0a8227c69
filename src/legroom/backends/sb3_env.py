"""Build a run's environment once, in a process of its own, to learn its spaces and its memory.

Somebody else's environment may print, crash, hang, leak threads or take gigabytes; a fresh Python process keeps all of
that away from the prediction and makes the memory measurable. The child (`env_child`) gets its task as a JSON file and
answers by one: nothing is unpickled, and what the environment prints goes nowhere.

Memory: the first instance also pays for the modules and data that later ones share. Of the environments in one process
each counts as the mean, so that `n x nbytes` is right for that process. Pages of mapped files (libraries) are one and
the same in all workers, so there a worker counts its share.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.model.facts import n_workers
from legroom.model.run import Run, Spaces

TIMEOUT_S = 60.0
DECLARE = "declare env.spaces to predict without building it"

# -P and the path as an argument: a json.py in the working directory must not be the child's json.
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from legroom.backends import env_child as c; c.main()"
)


def build_spaces(run: Run, *, timeout_s: float = TIMEOUT_S) -> tuple[Spaces, int | None]:
    """Return the spaces of the run's environment with its wrappers, and the bytes of one instance (None if unknown).

    Raises:
        BadInput: it cannot be imported, made or reset, or takes too long; with the environment's own words.
    """
    if run.env.id is None:
        raise BadInput("the run names no environment", path=run.source, hint="set env.id, or declare env.spaces")
    together = run.env.n_envs if run.env.workers == "dummy" else min(run.env.envs_per_worker, run.env.n_envs)
    task: dict[str, Any] = {
        "id": run.env.id,
        "kwargs": run.env.kwargs if run.env.grid is None else {"grid": run.env.grid} | run.env.kwargs,
        "wrappers": run.env.wrappers,
        "instances": min(together, 2),
        "preload": [],
    }
    # What the training process and SB3's workers have loaded anyway is not the environment's. The import takes
    # seconds, so it is made first only where the environment turns out to need it too.
    answer = _ask_child(run, task, timeout_s)
    if answer.get("imported_torch") and run.env.workers != "light":
        answer = _ask_child(run, task | {"preload": ["torch", "stable_baselines3"]}, timeout_s)
    if "error" in answer:
        raise BadInput(answer["error"], path=run.source, hint=answer.get("hint") or DECLARE)
    try:
        spaces = Spaces.model_validate(answer["spaces"])
    except ValueError as wrong:
        raise BadInput(f"env {run.env.id!r} has spaces that cannot be used: {wrong}", path=run.source) from wrong
    return spaces, _mean_nbytes(answer.get("memory"), together, max(n_workers(run), 1))


def _mean_nbytes(memory: list[dict[str, int]] | None, together: int, processes: int) -> int | None:
    """Return the bytes of one instance, given how much the first and perhaps the second added to the child."""
    if not memory:
        return None
    first, more = memory[0], memory[-1]
    anonymous = first["anon"] + (together - 1) * more["anon"]
    mapped = first["file"] + (together - 1) * more["file"]
    return max(0, (anonymous + mapped // processes) // together)


def _ask_child(run: Run, task: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="legroom-env-") as folder:
        task_file, answer_file, log_file = (Path(folder, name) for name in ("task.json", "answer.json", "log"))
        try:
            task_file.write_text(json.dumps(task | {"answer": str(answer_file)}))
        except (TypeError, ValueError) as wrong:
            raise BadInput(f"env.kwargs of {run.env.id!r} are no plain data: {wrong}", path=run.source) from wrong
        code = _run_child(_import_path(run), task_file, log_file, timeout_s)
        with suppress(OSError, ValueError):
            # whatever happened after the answer (a close() that hangs) does not matter any more
            return json.loads(answer_file.read_bytes())
        raise BadInput(_epitaph(run, code, log_file, timeout_s), path=run.source, hint=DECLARE)


def _run_child(path: list[str], task_file: Path, log_file: Path, timeout_s: float) -> int | None:
    """Run the child to its end and return its exit code; None when it took too long."""
    command = [sys.executable, "-P", "-c", _BOOTSTRAP, json.dumps(path), str(task_file)]
    with log_file.open("wb") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
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


def _import_path(run: Run) -> list[str]:
    """Return the child's sys.path: modules beside the run file, then the working directory, then ours."""
    file = run.source or ""
    while file and not Path(file).is_file():
        file = file.rpartition(":")[0]  # `ppo.yml:ALE/Pong-v5` is an entry of a file
    here = str(Path.cwd())
    beside = str(Path(file).absolute().parent) if file else here
    return [beside, here, *(entry or here for entry in sys.path)]


def _epitaph(run: Run, code: int | None, log_file: Path, timeout_s: float) -> str:
    if code is None:
        return f"env {run.env.id!r} was not ready after {timeout_s:g} s"
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    lines = log_file.read_text(errors="replace").strip().splitlines()
    last = f": {lines[-1][:300]}" if lines else ""
    return f"env {run.env.id!r} ended its process while it was built ({how}){last}"
