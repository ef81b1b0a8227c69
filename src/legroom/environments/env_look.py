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
import os
import sys
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from legroom.environments.look_sources import is_same, state
from legroom.environments.objects import package_of, texts_of
from legroom.environments.script_classes import named_by_file
from legroom.errors import BadInput
from legroom.machine.cache import cache_folder, digest, read_json, write_json
from legroom.machine.child_process import ask_child, import_path, run_file
from legroom.model.evidence import ColumnGrowth, EnvLook, EnvMemory, EnvTask, LeanProbe
from legroom.model.facts import n_workers
from legroom.model.run import Run, Spaces
from legroom.sharing.shared_folder import OFF, VARIABLE

TIMEOUT_S = 60.0
PROBE_TIMEOUT_S = 15.0
SLOW = "stepping it took too long"
DECLARE = "declare env.spaces to predict without building it"

CHILD = "legroom.environments.env_child"
NOTHING = {"anon": 0, "file": 0}
MOST_FILES, LONGEST_PATH = 2_000, 1_000


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
    if not any(cache_folder().glob("env-*.json")):  # before all files beside the run are looked at
        return None
    named, asked_before = named_by_file(run, run_file(run)), [how] * bool(how.storage) + [replace(how, storage=None)]
    for trust, asked in product((True, False), asked_before):
        task = _task(named if trust else run, asked, trust=trust, probe_timeout_s=PROBE_TIMEOUT_S)
        path = _cache_path(run, task, how)
        kept: Any = _kept(path)
        with suppress(TypeError, KeyError, ValueError):
            return _as_look(run, kept["answer"], kept["lean"], "")
    return None


def _answer(
    run: Run, task: dict[str, Any], how: EnvTask, timeout_s: float
) -> tuple[dict[str, Any], dict[str, Any] | None, str]:
    """Return what the child says, what its probe says, and what became of that; kept for the next prediction."""
    path = _cache_path(run, task, how)
    kept = _kept(path)
    if kept is not None:
        return kept["answer"], kept["lean"], ""
    answer, fate = _asked(run, task, timeout_s)
    lean, sources = answer.get("probe"), answer.pop("sources", None)
    # What the training process and its workers have loaded anyway is not the environment's. The import takes
    # seconds, so it is made first only where the environment turns out to need some of it too.
    if set(how.brings) & set(answer.get("loads") or ()) and run.env.workers != "light":
        again = task | {"preload": how.loaded, "probe": None}
        answer, _ = _asked(run, again, timeout_s)
        answer.pop("sources", None)  # those of the first, which did more
    if path is not None and "error" not in answer and not fate and answer.get("stepped") and sources is not None:
        write_json(path, {"answer": answer, "lean": lean, "sources": state(sources, os.environ)})
    return answer, lean, fate


def _kept(path: Path | None) -> dict[str, Any] | None:
    """Return what is kept of an earlier look whose files and variables are as they were; None where nothing is."""
    kept: Any = read_json(path) if path is not None else None
    whole = isinstance(kept, dict) and kept.keys() == {"answer", "lean", "sources"}
    return kept if whole and is_same(kept["sources"], os.environ) else None


def _cache_path(run: Run, task: dict[str, Any], how: EnvTask) -> Path | None:
    """Return where the answer is kept: by the task, by what is installed, by the user's own files; None: nowhere."""
    folders = [Path(entry) for entry in import_path(run, own=task["trust"])]
    installed = [_stamp(folder) for folder in folders if folder.name in ("site-packages", "dist-packages")]
    own = []
    for folder in dict.fromkeys(folders[-2:]) if task["trust"] else ():
        found = list(islice(chain(folder.glob("*.py"), folder.glob("*/*.py")), MOST_FILES))
        if len(found) == MOST_FILES:
            return None
        own += [_stamp(file) for file in sorted(found)]
    data = [_stamp(Path(text)) for text in texts_of(task["kwargs"]) if len(text) < LONGEST_PATH and Path(text).exists()]
    package = None
    with suppress(ImportError, ValueError):
        package = find_spec(package_of(task["id"])) if ":" in task["id"] else None
    if package is not None and package.origin and package.submodule_search_locations:
        own += [_stamp(file) for file in sorted(Path(package.origin).parent.rglob("*.py"))[:MOST_FILES]]
    code = [_stamp(Path(__file__).with_name(name)) for name in ("env_child.py", "lean_probe.py", "look_sources.py")]
    key = digest(json.dumps(task, default=str, sort_keys=True), how.loaded, installed, own, data, code, sys.version)
    return cache_folder() / f"env-{key}.json"


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:  # a link that leads nowhere, or where nobody may look: it cannot be imported either
        return str(path), 0, 0
    return str(path), found.st_mtime_ns, found.st_size


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
