"""Build a run's environment once, in a process of its own, to learn its spaces and its memory; and step it if asked to.

Somebody else's environment may print, crash, hang, leak threads or take gigabytes; a fresh Python process keeps all of
that away from the prediction and makes the memory measurable. The child (`env_child`) gets its task as a JSON file and
answers by one: nothing is unpickled, and what the environment prints goes nowhere.

Memory: the first instance also pays for the modules and data that later ones share. Of the environments in one process
each counts as the mean, so that `n x nbytes` is right for that process. Pages of mapped files (libraries) are one and
the same in all workers, so there a worker counts its share.

Stepping (`env_probe`) tells what lean storage would take. It comes after everything else, and what goes wrong in it is
a remark and no failure.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.machine.child_process import how_it_ended, import_path, run_child
from legroom.machine.temporary_folder import temporary_folder
from legroom.model.evidence import EnvLook, EnvTask, Growth, LeanProbe, LeanTimes
from legroom.model.facts import n_workers
from legroom.model.run import Run, Spaces
from legroom.sharing.shared_folder import OFF, VARIABLE

TIMEOUT_S = 60.0
PROBE_TIMEOUT_S = 15.0
PROBE_TIMED_OUT = 75  # the child's exit code: see env_child, which is not imported here since it imports gymnasium
DECLARE = "declare env.spaces to predict without building it"

CHILD = "legroom.environments.env_child"


def look_at_env(
    run: Run, how: EnvTask, *, trust: bool, timeout_s: float = TIMEOUT_S, probe_timeout_s: float = PROBE_TIMEOUT_S
) -> EnvLook:
    """Return what building the run's environment, with its wrappers, tells: spaces, memory and, if asked for, a probe.

    Args:
        how: it is stepped where this says how its observations are stored.
        trust: modules beside the run file may be imported, and functions be called to make it; otherwise only classes
            of installed packages (`own_code` says which runs need no more).
        timeout_s: for everything.
        probe_timeout_s: for stepping it; beyond that there is no probe, but all the rest.

    Raises:
        BadInput: it cannot be imported, made or reset, or takes too long; with the environment's own words.
    """
    if run.env.id is None:
        raise BadInput("the run names no environment", path=run.source, hint="set env.id, or declare env.spaces")
    together = run.env.n_envs if run.env.workers == "dummy" else min(run.env.envs_per_worker, run.env.n_envs)
    task: dict[str, Any] = {
        "id": run.env.id,
        "kwargs": run.env.arguments,
        "wrappers": run.env.wrappers,
        "trust": trust,
        "instances": min(together, 2),
        "preload": [],
        "probe": None if how.storage is None else {**how.storage, "timeout_s": probe_timeout_s},
    }
    answer, probe_fate = _ask_child(run, task, timeout_s)
    lean = answer.get("probe")
    # What the training process and its workers have loaded anyway is not the environment's. The import takes
    # seconds, so it is made first only where the environment turns out to need it too.
    if answer.get("imported_torch") and how.loaded and run.env.workers != "light":
        again = task | {"preload": how.loaded, "probe": None}
        answer, _ = _ask_child(run, again, timeout_s)
    if "error" in answer:
        raise BadInput(answer["error"], path=run.source, hint=answer.get("hint") or DECLARE)
    try:
        spaces = Spaces.model_validate(answer["spaces"])
    except ValueError as wrong:
        raise BadInput(f"env {run.env.id!r} has spaces that cannot be used: {wrong}", path=run.source) from wrong
    nbytes = _mean_nbytes(answer.get("memory"), together, max(n_workers(run), 1))
    if lean is None or "error" in lean:
        return EnvLook(spaces, nbytes, not_probed=lean["error"] if lean else probe_fate)
    return EnvLook(spaces, nbytes, _as_probe(lean))


def _as_probe(data: dict[str, Any]) -> LeanProbe:
    columns = {key: Growth(**growth) for key, growth in data["columns"].items()}
    times = LeanTimes(**data["times"]) if data["times"] else None
    return LeanProbe(**data | {"columns": columns, "times": times})


def _mean_nbytes(memory: list[dict[str, int]] | None, together: int, processes: int) -> int | None:
    """Return the bytes of one instance, given how much the first and perhaps the second added to the child."""
    if not memory:
        return None
    first, more = memory[0], memory[-1]
    anonymous = first["anon"] + (together - 1) * more["anon"]
    mapped = first["file"] + (together - 1) * more["file"]
    return max(0, (anonymous + mapped // processes) // together)


def _ask_child(run: Run, task: dict[str, Any], timeout_s: float) -> tuple[dict[str, Any], str]:
    """Return the child's answer and, where it did not get to answer about the probe, what became of it."""
    with temporary_folder("env") as folder:
        task_file, answer_file, log_file = (folder / name for name in ("task.json", "answer.json", "log"))
        try:
            task_file.write_text(json.dumps(task | {"answer": str(answer_file)}))
        except (TypeError, ValueError) as wrong:
            raise BadInput(f"env.kwargs of {run.env.id!r} are no plain data: {wrong}", path=run.source) from wrong
        # what it shares goes with this folder, however it ends
        shared = OFF if run.memory.shared_data is False else os.environ.get(VARIABLE, str(folder / "shared"))
        environment = {**os.environ, VARIABLE: shared}
        path = import_path(run, own=task["trust"])
        code = run_child(CHILD, path, task_file, log_file, timeout_s=timeout_s, environment=environment)
        with suppress(OSError, ValueError):
            # whatever happened after the answer (a step or a close() that hangs) does not matter any more
            fate = ""
            if task["probe"] and code in (None, PROBE_TIMED_OUT):
                fate = "stepping it took too long"
            elif task["probe"] and code:
                fate = f"it ended its process while it was stepped {how_it_ended(code, log_file)}"
            return json.loads(answer_file.read_bytes()), fate
        raise BadInput(_epitaph(run, code, log_file, timeout_s), path=run.source, hint=DECLARE)


def _epitaph(run: Run, code: int | None, log_file: Path, timeout_s: float) -> str:
    if code is None:
        return f"env {run.env.id!r} was not ready after {timeout_s:g} s"
    return f"env {run.env.id!r} ended its process while it was built {how_it_ended(code, log_file)}"
