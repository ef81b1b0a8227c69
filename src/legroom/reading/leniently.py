"""Reading for those who look for mistakes: whatever can be known of a file's runs, and what is wrong, side by side.

Everywhere else the first problem ends the reading, since a prediction of half a run is worth nothing. A check is the
other way round: a negative batch size in one entry must not hide what is wrong with the other thirty.

A module of constants seldom says the algorithm. A script beside it that imports it does: its constructor call is then
the base that the constants are laid on, as `--like` would do.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from legroom import reading
from legroom.backends.base import algorithm_names, backends
from legroom.errors import BadInput, NotARun
from legroom.model.draft import Draft, copied, get, merged, only_entry
from legroom.reading import constants, yamls
from legroom.reading.file_kinds import (
    all_kinds,
    is_of_another_program,
    is_run_file,
    kind_in_python,
    kind_of,
    script_drafts,
)
from legroom.reading.reading_budget import bounded_reading
from legroom.reading.source import nodes_of, parse_module
from legroom.reading.spoken import spoken_draft
from legroom.reading.user_files import is_directory, read_text, refuse_log
from legroom.reading.validating import LenientRun, lenient_run
from legroom.reading.workload_options import split_overrides, with_options

# What a Python file imports that has to do with training, besides the backends' own packages; others are no subject of
# a check.
LIBRARIES = frozenset({
    "gymnasium", "gym", "torch", "jax", "flax", "rl_zoo3", "tianshou", "cleanrl", "pettingzoo", "supersuit", "sbx",
    "tensorflow", "keras", "mujoco", "pyboy", "envpool", "tracemalloc",
})  # fmt: skip
# Libraries that train and that no rule knows.
OTHER_TRAINERS = frozenset({
    "rl_games", "skrl", "tianshou", "rsl_rl", "d3rlpy", "torchrl", "acme", "dopamine", "elegantrl", "ding", "pfrl",
    "mushroom_rl", "sample_factory", "pufferlib", "sbx", "stable_baselines", "baselines", "spinup", "garage", "rlpyt",
    "trl", "transformers", "pytorch_lightning", "lightning", "rl_zoo3", "mlagents", "xuance", "marllib", "chainerrl",
    "coax", "tf_agents", "tensorforce",
})  # fmt: skip
MOST_SIBLINGS = 60
SLIP = 0.8  # how alike a name is, by difflib, that is taken for a slip of the pen


@dataclass(frozen=True)
class LenientFile:
    """A file and its runs, as far as they can be had; `problems` are about no run in particular.

    Args:
        kind: "run", "constants", "script", or the name of a backend's `FileKind`.
    """

    path: str
    text: str
    kind: str
    runs: tuple[LenientRun, ...]
    problems: tuple[BadInput, ...] = ()


def read_leniently(target: str, *, overrides: Sequence[tuple[str, str]] = (), like: str | None = None) -> LenientFile:
    """Return what there is to say about `target`, a file or a named run.

    Raises:
        BadInput: there is no such run, it is not YAML or not Python, or nothing in it is of a training.
    """
    keys, options = split_overrides(overrides)
    with bounded_reading(target):
        found = _read_file(target, keys, like)
    runs = tuple(one if one.run is None else replace(one, run=with_options(one.run, options)) for one in found.runs)
    return replace(found, runs=runs)


def _read_file(target: str, overrides: Sequence[tuple[str, str]], like: str | None) -> LenientFile:
    named = reading.named_drafts(target, single=False)
    if named:
        path = str(named[0].path)
        runs = tuple(lenient_run(reading.laid_over(draft, like), overrides) for draft in named)
        return LenientFile(path, read_text(path), "run", runs)
    file, entry = reading.split_target(target)
    spoken = spoken_draft(target) if file is None else None
    if spoken is not None:
        return LenientFile(target, "", "run", (lenient_run(reading.laid_over(spoken, like), overrides),))
    if file is None:
        raise reading.no_such_run(target)
    text = read_text(file)
    refuse_log(text, file)
    algo = next((value for name, value in overrides if name in ("algo", "algorithm")), None)
    problems: list[BadInput] = []
    if file.endswith(".py"):
        kind, drafts = _python(text, file, entry, algo, like)
    else:
        kind, drafts, problems = _yaml(text, file, entry, algo, like)
    runs = tuple(lenient_run(reading.laid_over(draft, like), overrides) for draft in drafts)
    if any(each.name == kind and not each.certain for each in all_kinds()):
        runs = tuple(replace(one, problems=()) for one in runs)
    if kind == "script":
        runs = tuple(_of_another_release(one) for one in runs)
    if kind == "run" and like is None and not overrides and _has_other_words(runs):
        raise NotARun("has settings unknown to run files", path=file, hint="'legroom schema' prints what a run file is")
    return LenientFile(file, text, kind, runs, tuple(problems))


def _of_another_release(one: LenientRun) -> LenientRun:
    """Return the run of a script without its foreign arguments: forks and other releases of a library have others.

    What that constructor does with the rest is not known then, either.
    """
    own = tuple(problem for problem in one.problems if not _is_foreign(problem))
    if len(own) == len(one.problems):
        return one
    return replace(one, problems=own, unknown=one.unknown | {("hyperparams",)})


def _has_other_words(runs: Sequence[LenientRun]) -> bool:
    """Return whether a run file has words of another program: one that is like none of ours, or several."""
    told = [each for one in runs for each in one.problems]
    several = [each for each in told if each.message.startswith("unknown key")]
    return len(several) > 1 or any(_is_foreign(each) or each.hint.startswith("it belongs") for each in told)


def _is_foreign(problem: BadInput) -> bool:
    """Return whether a problem is a word of which nothing like it is known: `algo: mappo`, `hyperparams: {layers: 2}`.

    Other programs have `algo`, `env` and `hyperparams` in their settings too. A slip of the pen is like something.
    """
    if problem.message.startswith("unknown algorithm"):
        named = problem.message.split("'")[1] if "'" in problem.message else ""
        known = [name.lower() for backend in backends() for name in algorithm_names(backend.name)]
        return not difflib.get_close_matches(named.lower(), known, n=1, cutoff=SLIP)
    unknown = problem.message.startswith(("unknown key", "backend: "))
    return unknown and not problem.hint.startswith(("did you", "it belongs"))


def lenient_text(text: str, name: str) -> LenientFile:
    """Return what there is to say about the text of a run file that is in no file.

    Raises:
        BadInput: it is not YAML, or nothing in it is of a training.
    """
    with bounded_reading(name):
        data, lines = yamls.parse_yaml(text, name)
        if not isinstance(data, dict):
            hint = "start with algo: and env:"
            raise BadInput("a run file is a mapping of keys to values", path=name, line=1, hint=hint)
        return LenientFile(name, text, "run", (lenient_run(yamls.run_file_draft(data, lines, name)),))


def expanded(target: str) -> list[str]:
    """Return the names of a workload's runs where `target` is a workload, and `target` itself otherwise."""
    if is_directory(target):
        return [target]
    return [draft.name for draft in reading.named_drafts(target, single=False)] or [target]


def is_about_training(tree: ast.Module) -> bool:
    """Return whether the module imports one of the libraries of this trade."""
    libraries = LIBRARIES.union(OTHER_TRAINERS, *(backend.script_packages for backend in backends()))
    for node in nodes_of(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.partition(".")[0] in libraries for name in names):
            return True
    return False


def _yaml(
    text: str, path: str, entry: str | None, algo: str | None, like: str | None
) -> tuple[str, list[Draft], list[BadInput]]:
    data, lines = yamls.parse_yaml(text, path)
    if not isinstance(data, dict):
        hint = "start with algo: and env:"
        raise NotARun("a run file is a mapping of keys to values", path=path, line=1, hint=hint)
    kind = kind_of(data)
    if kind is not None:
        found, problems = kind.lenient_drafts(data, lines, path, entry=entry, algo=algo)
        if not found and like is not None:  # too little to be certain whose settings they are; `like` says it
            found = kind.drafts(data, lines, path, entry=entry, algo=algo)
        return kind.name, found, problems
    settings = constants.settings_draft(data, lines, path) if like is not None and is_of_another_program(data) else None
    if settings is not None:
        return "settings", only_entry([settings], entry, path), []
    if not is_run_file(data):
        others = " and ".join(f"no {name} file" for name in dict.fromkeys(kind.name for kind in all_kinds()))
        hint = "a run file starts with algo: and env:"
        raise NotARun(f"is not a run file: {others}", path=path, hint=hint)
    return "run", only_entry([yamls.run_file_draft(data, lines, path)], entry, path), []


def _python(text: str, path: str, entry: str | None, algo: str | None, like: str | None) -> tuple[str, list[Draft]]:
    tree = parse_module(text, path)
    drafts = script_drafts(text, path)
    if drafts:
        return "script", only_entry(drafts, entry, path)
    kind, entries = kind_in_python(), constants.zoo_entries(text, path)
    if kind is not None and entries is not None:
        return kind.name, kind.drafts(entries, {}, path, entry=entry, algo=algo)
    training = is_about_training(tree)
    try:
        drafts = constants.drafts(text, path)
    except BadInput:
        if not training:
            raise
        return "script", []
    if training and like is None:  # a script of its own kind; what its constants mean is not for us to say
        return "script", []
    return "constants", [_on_script(draft, like) for draft in drafts]


def _on_script(draft: Draft, like: str | None) -> Draft:
    """Return the constants laid over the run of a script beside them that imports them, where there is one."""
    if like is not None or draft.data.get("algo") or draft.path is None:
        return draft
    found = _importer(draft.path)
    if found is None:
        return draft
    draft.base = found.path
    base = copied(found.data)
    own = copied(draft.data)
    every = get(base, ("checkpoint", "every")), get(base, ("eval", "every"))
    steps, length = get(base, ("hyperparams", "n_steps")), get(own, ("hyperparams", constants.EPISODE))
    line = draft.lines.get(("hyperparams", constants.EPISODE))
    if length is not None:
        own["hyperparams"].pop(constants.EPISODE)
        if steps == length and line is not None:
            draft.lines.setdefault(("hyperparams", "n_steps"), line)
    for part, value in zip(("checkpoint", "eval"), every, strict=True):
        if value is not None and isinstance(own.get(part), dict):
            own[part].pop("every", None)  # the script has turned it into environment steps
            draft.settled.add((part, "every"))
    draft.data = merged(base, own)
    draft.unknown = {**found.unknown, **draft.unknown}
    return draft


def _importer(path: str) -> Draft | None:
    """Return the one run of the scripts beside `path` that import it; None when there is none, or several differ."""
    name = Path(path).stem
    imports = re.compile(rf"^\s*(?:from\s+\.?{re.escape(name)}\s+import|import\s+{re.escape(name)}\b)", re.MULTILINE)
    found: list[Draft] = []
    try:
        siblings = sorted(Path(path).parent.glob("*.py"))[:MOST_SIBLINGS]
    except OSError:
        return None
    for sibling in siblings:
        if sibling.name == Path(path).name:
            continue
        try:
            text = read_text(str(sibling))
            if imports.search(text):
                found += script_drafts(text, str(sibling))
        except BadInput:
            continue
    algorithms = {draft.data.get("algo") for draft in found}
    return found[0] if len(algorithms) == 1 else None
