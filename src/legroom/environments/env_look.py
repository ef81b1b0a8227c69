"""Build a run's environment once, in a process of its own, to learn its spaces and its memory; and step it if asked to.

Somebody else's environment may print, crash, hang, leak threads or take gigabytes; a fresh Python process keeps all of
that away from the prediction and makes the memory measurable. The child (`env_child`) gets its task as a JSON file and
answers by one: nothing is unpickled, and what the environment prints goes nowhere.

Memory: the first instance also pays for the modules and data that later ones share. Of the environments in one process
each counts as the mean, so that `n x nbytes` is right for that process. Pages of mapped files (libraries) are one and
the same in all workers, so there a worker counts its share.

Stepping (`lean_probe`) tells what lean storage would take. It comes after everything else, and what goes wrong in it is
a remark and no failure.
"""

import json
import sys
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from legroom.environments.objects import PROVIDERS, package_of, texts_of
from legroom.environments.own_code import own_code
from legroom.errors import BadInput
from legroom.machine.cache import cache_folder, digest, read_json, write_json
from legroom.machine.child_process import ask_child, import_path, run_file
from legroom.model.evidence import ColumnGrowth, EnvLook, EnvMemory, EnvTask, LeanProbe
from legroom.model.facts import n_workers
from legroom.model.run import Run, Spaces
from legroom.named_runs import workload_packages
from legroom.sharing.shared_folder import OFF, VARIABLE

TIMEOUT_S = 60.0
PROBE_TIMEOUT_S = 15.0
SLOW = "stepping it took too long"
DECLARE = "declare env.spaces to predict without building it"

CHILD = "legroom.environments.env_child"
NOTHING = {"anon": 0, "file": 0}


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
    task = _task(run, how, trust=trust, probe_timeout_s=probe_timeout_s)
    answer, lean, probe_fate = _answer(run, task, how, timeout_s)
    if "error" in answer:
        raise BadInput(answer["error"], path=run.source, hint=answer.get("hint") or DECLARE)
    try:
        return _as_look(run, answer, lean, probe_fate)
    except ValueError as wrong:
        raise BadInput(f"env {run.env.id!r} has spaces that cannot be used: {wrong}", path=run.source) from wrong


def _as_look(run: Run, answer: dict[str, Any], lean: dict[str, Any] | None, probe_fate: str) -> EnvLook:
    nbytes = _mean_nbytes(answer, _together(run), max(n_workers(run), 1))
    look = EnvLook(Spaces.model_validate(answer["spaces"]), nbytes, memory=_as_memory(answer))
    if lean is None or "error" in lean:
        return replace(look, not_probed=lean["error"] if lean else probe_fate)
    return replace(look, probe=_as_probe(lean))


def _together(run: Run) -> int:
    """Return how many environments one process has."""
    return run.env.n_envs if run.env.workers == "dummy" else min(run.env.envs_per_worker, run.env.n_envs)


def _task(run: Run, how: EnvTask, *, trust: bool, probe_timeout_s: float) -> dict[str, Any]:
    """Return what the child is asked."""
    light = run.env.workers == "light"
    script = run_file(run) if trust and not light else None  # such a worker does not import it
    task: dict[str, Any] = {
        "id": run.env.id,
        "kwargs": run.env.arguments,
        "wrappers": run.env.wrappers,
        "trust": trust,
        "instances": min(_together(run), 2),
        "preload": [],
        "light": light,
        "script": str(script.absolute()) if script is not None and script.suffix == ".py" else None,
        "timeout_s": probe_timeout_s,
        "probe": how.storage,
    }
    if task["script"]:
        task["preload"] = how.loaded  # as such a script does
    return task


def kept_look(run: Run, how: EnvTask) -> EnvLook | None:
    """Return what was found out about the run's environment on this machine before, None where nothing is kept."""
    for asked in [how] * bool(how.storage) + [replace(how, storage=None)]:
        path = _cache_path(run, _task(run, asked, trust=False, probe_timeout_s=PROBE_TIMEOUT_S), how)
        kept: Any = read_json(path) if path is not None else None
        with suppress(TypeError, KeyError, ValueError):
            return _as_look(run, kept["answer"], kept["lean"], "")
    return None


def _answer(
    run: Run, task: dict[str, Any], how: EnvTask, timeout_s: float
) -> tuple[dict[str, Any], dict[str, Any] | None, str]:
    """Return what the child says, what its probe says, and what became of that; kept for the next prediction."""
    path = _cache_path(run, task, how)
    kept: Any = read_json(path) if path is not None else None
    if isinstance(kept, dict) and kept.keys() == {"answer", "lean"}:
        return kept["answer"], kept["lean"], ""
    answer, fate = _asked(run, task, timeout_s)
    lean = answer.get("probe")
    # What the training process and its workers have loaded anyway is not the environment's. The import takes
    # seconds, so it is made first only where the environment turns out to need some of it too.
    if set(how.brings) & set(answer.get("loads") or ()) and run.env.workers != "light":
        answer, _ = _asked(run, task | {"preload": how.loaded, "probe": None}, timeout_s)
    if path is not None and "error" not in answer and not fate and answer.get("stepped"):
        write_json(path, {"answer": answer, "lean": lean})
    return answer, lean, fate


def _cache_path(run: Run, task: dict[str, Any], how: EnvTask) -> Path | None:
    """Return where the answer is kept, by the task and by what is installed; None: nowhere.

    Kept are only environments that depend on nothing else: those of gymnasium, of packages known to register with it
    and of our own workloads, without an argument that may name a file. The user's own may read anything at all.
    """
    names = [task["id"], *(name for each in task["wrappers"] for name in (each if isinstance(each, dict) else [each]))]
    packages = {package_of(name) for name in names} - {""}
    texts = list(texts_of([task["kwargs"], task["wrappers"]]))
    if (
        task["script"]
        or own_code(run).env
        or not packages <= {"ALE", "gymnasium", *PROVIDERS, *workload_packages(own=True)}
    ):
        return None
    if any(set(text) & set("./~") or Path(text).exists() for text in texts if text not in names):
        return None
    files = [Path(entry) for entry in import_path(run, own=False) if entry.endswith("-packages")]
    files += [Path(__file__).with_name(name) for name in ("env_child.py", "lean_probe.py")]
    for spec in map(find_spec, packages & workload_packages()):
        files += sorted(Path(spec.origin).parent.rglob("*.py")) if spec is not None and spec.origin else []
    made = [(str(file), file.stat().st_mtime_ns) for file in files if file.exists()]
    key = digest(json.dumps(task | {"trust": False}, default=str, sort_keys=True), how.loaded, made, sys.version)
    return cache_folder() / f"env-{key}.json"


def _as_memory(answer: dict[str, Any]) -> EnvMemory | None:
    memory, imports = answer.get("memory"), answer.get("imports")
    if not memory or imports is None:
        return None
    script, (half, rest) = answer.get("script") or NOTHING, answer.get("stepped") or (NOTHING, NOTHING)
    first, more = memory[0], memory[-1]
    stepped = (half["anon"] + rest["anon"]) // len(memory)
    alone = len(memory) == 1
    return EnvMemory(
        imports=imports["anon"],
        first=first["anon"] + stepped,
        # of one that was built only once nothing else is known: its data may be everybody's own
        more=first["anon"] + stepped if alone else more["anon"] + more["file"] + stepped,
        mapped=imports["file"] + first["file"] + half["file"] + rest["file"],
        script=script["anon"],
        script_mapped=script["file"],
        growth=max(rest["anon"] // len(memory), 0),
        time_limit=answer.get("time_limit"),
        step_s=answer.get("step_s"),
        episode_mean=answer.get("episode_mean"),
    )


def _as_probe(data: dict[str, Any]) -> LeanProbe:
    columns = {key: ColumnGrowth(**growth) for key, growth in data["columns"].items()}
    return LeanProbe(**data | {"columns": columns})


def _mean_nbytes(answer: dict[str, Any], together: int, processes: int) -> int | None:
    """Return the bytes of one instance, given how much the first and perhaps the second added to the child."""
    memory, imports = answer.get("memory"), answer.get("imports") or NOTHING
    if not memory:
        return None
    first, more = memory[0], memory[-1]
    anonymous = imports["anon"] + first["anon"] + (together - 1) * more["anon"]
    mapped = imports["file"] + first["file"] + (together - 1) * more["file"]
    return max(0, (anonymous + mapped // processes) // together)


def _asked(run: Run, task: dict[str, Any], timeout_s: float) -> tuple[dict[str, Any], str]:
    """Return the child's answer and, where it did not get to answer about the probe, what became of it."""
    path, shared = import_path(run, own=task["trust"]), {VARIABLE: OFF} if run.memory.shared_data is False else {}
    try:
        child = ask_child(CHILD, task, kind="env", timeout_s=timeout_s, path=path, environment=shared)
    except (TypeError, ValueError) as wrong:
        raise BadInput(f"env.kwargs of {run.env.id!r} are not plain data: {wrong}", path=run.source) from wrong
    if child.data is None:
        fate = "was not ready" if child.timed_out else "ended its process while being built"
        raise BadInput(f"env {run.env.id!r} {fate} {child.how}", path=run.source, hint=DECLARE)
    if task["probe"] is None or "probe" in child.data or "error" in child.data:
        return child.data, ""
    slow = child.timed_out or child.data.get("slow")
    return child.data, SLOW if slow else f"it ended its process while being stepped {child.how}"
