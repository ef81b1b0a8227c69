"""The one reader of files: which kind of file a text is, and the drafts of the runs in it.

What a file is, its content decides. Those who look for mistakes (`collect_problems`) have what is wrong collected where
others get the first problem as an error, and settings whose meaning is not certain are left alone for them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, NamedTuple

from legroom.backends.base import backends
from legroom.errors import BadInput, NotARun
from legroom.model.draft import Draft, FileKind, get, merged, only_entry
from legroom.reading.naming import PARTS, did_you_mean
from legroom.reading.targets import named_drafts, no_such_run, split_target, spoken_draft
from legroom.reading.user_files import read_text, refuse_log
from legroom.reading.yamls import Lines, parse_yaml, run_file_draft

MOST_FOREIGN = 1  # keys that a run file has no place for, in what is a run file all the same
RUN_SIGNS = frozenset({"algo", "backend", "legroom", "hyperparams"})  # keys that only run files have
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


class Source(NamedTuple):
    """What stands in a file."""

    path: str
    text: str
    kind: str  # "run", "settings", "constants", "script", or the name of a backend's `FileKind`
    drafts: list[Draft]
    problems: Sequence[BadInput] = ()  # about no run in particular


def source_of(
    target: str, overrides: Sequence[tuple[str, str]], like: str | None = None, *, single: bool, collect: bool = False
) -> Source:
    """Return the drafts of the runs that `target` names.

    Args:
        single: a bare workload means its default run.
        collect: collect what is wrong, as far as the rest can be read.

    Raises:
        BadInput: there is no such run, or it cannot be read.
    """
    named = named_drafts(target, single=single)
    if named:
        path = str(named[0].path)
        return Source(path, read_text(path) if collect else "", "run", named)
    file, entry = split_target(target)
    if file is None:
        spoken = spoken_draft(target)
        if spoken is None:
            raise no_such_run(target)
        return Source(target, "", "run", [spoken])
    text = read_text(file)
    refuse_log(text, file)
    algo = next((value for name, value in overrides if name in ("algo", "algorithm")), None)
    read = python_source if file.endswith(".py") else yaml_source
    return read(text, file, entry, algo, like, collect=collect)


def yaml_source(
    text: str,
    path: str,
    entry: str | None = None,
    algo: str | None = None,
    like: str | None = None,
    *,
    collect: bool = False,
) -> Source:
    """Return the runs of a YAML or JSON text.

    Raises:
        BadInput: it is not YAML, or a run in it cannot be read.
        NotARun: it is something else.
    """
    data, lines = parse_yaml(text, path)
    if not isinstance(data, dict):
        what = (
            f"a run file is a mapping of keys to values, not {'a list' if isinstance(data, list) else 'a single value'}"
        )
        raise NotARun(what, path=path, line=1, hint="start with algo: and env:")
    if isinstance(data.get("defaults"), list):  # what those files say would be missing
        hint = "legroom predict -- python SCRIPT runs the program that composes it"
        raise NotARun("its defaults: name other files, which only its own program composes", path=path, hint=hint)
    claimed = kind_of(data)
    if claimed is not None:
        problems: list[BadInput] = []
        found = claimed.drafts(data, lines, path, entry=entry, algo=algo, problems=problems if collect else None)
        if not found and like is not None:  # too little to be certain whose settings they are; `like` says it
            found = claimed.drafts(data, lines, path, entry=entry, algo=algo)
        return Source(path, text, claimed.name, found, problems)
    if is_of_another_program(data):
        settings = _settings(data, lines, path) if like is not None or not collect else None
        if settings is not None:
            return Source(path, text, "settings", only_entry([settings], entry, path))
    elif not collect or is_run_file(data):
        return Source(path, text, "run", only_entry([run_file_draft(data, lines, path)], entry, path))
    hint = "a run file starts with algo: and env:"
    raise NotARun("no training settings found in this file", path=path, hint=hint)


def _settings(data: dict[str, Any], lines: Lines, path: str) -> Draft | None:
    from legroom.reading.constants import settings_draft

    return settings_draft(data, lines, path)


def python_source(
    text: str, path: str, entry: str | None, algo: str | None, like: str | None, *, collect: bool = False
) -> Source:
    """Return the runs of a script or of a module of constants.

    Raises:
        BadInput: it is not Python, or makes no run.
    """
    from legroom.reading import constants
    from legroom.reading.source import parse_module

    tree = parse_module(text, path)
    found = script_drafts(text, path)
    if found:
        return Source(path, text, "script", only_entry(found, entry, path))
    if not collect:
        return Source(path, text, "constants", only_entry(_own_program(text, path), entry, path))
    training = is_about_training(tree)
    try:
        found = constants.drafts(text, path)
    except BadInput:
        if not training:
            raise
        found = []
    if training and (like is None or not found):  # a script of its own kind: what its constants mean is not certain
        return Source(path, text, "script", [])
    return Source(path, text, "constants", found)


def _own_program(text: str, path: str) -> list[Draft]:
    """Return the runs of a script with a loop of its own: the settings that it loads, over its constants.

    Raises:
        BadInput: it has neither.
    """
    from legroom.reading import constants
    from legroom.reading.interpreter.follower import loaded_settings
    from legroom.reading.source import parse_module

    settings, line = loaded_settings(parse_module(text, path), path)
    lines = {key: line for key, _ in constants.walked_settings(settings)}
    loaded = constants.settings_draft(settings, lines, path)
    try:
        found = constants.drafts(text, path)
    except BadInput:
        if loaded is None:
            raise
        found = [loaded]
    if loaded is not None and len(found) == 1 and found[0] is not loaded:
        found[0].data = merged(found[0].data, loaded.data)
        found[0].lines |= loaded.lines
        found[0].others = loaded.others | found[0].others
        found[0].used = loaded.used + found[0].used
        found[0].unknown = {key: why for key, why in found[0].unknown.items() if get(loaded.data, key) is None}
    return found


def is_about_training(tree: ast.Module) -> bool:
    """Return whether the module imports one of the libraries of this trade."""
    from legroom.reading.source import nodes_of

    libraries = LIBRARIES.union(OTHER_TRAINERS, *(backend.script_packages for backend in backends()))
    for node in nodes_of(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.partition(".")[0] in libraries for name in names):
            return True
    return False


def all_kinds() -> list[FileKind]:
    return [kind for backend in backends() for kind in backend.reader.file_kinds]


def kind_of(data: dict[Any, Any]) -> FileKind | None:
    """Return the kind that a backend claims, None for a run file.

    The default backend is asked last: its zoo files are any mapping of mappings.
    """
    if is_run_file(data):
        return None
    return next((kind for b in reversed(backends()) for kind in b.reader.file_kinds if kind.matches(data)), None)


def is_run_file(data: dict[Any, Any]) -> bool:
    """Return whether a mapping is one of our own files: other programs' settings have `algo` or `hyperparams` too."""
    if "legroom" in data:
        return True
    return (
        bool(set(data) & RUN_SIGNS) and len(_foreign(data)) <= MOST_FOREIGN and not isinstance(data.get("algo"), dict)
    )


def is_of_another_program(data: dict[Any, Any]) -> bool:
    """Return whether most keys of a mapping are none of a run file, nor meant for one.

    Of one or two keys, a section tells: a run file that is misspelt begins with words.
    """
    foreign = _foreign(data)
    several = len(data) > 2 or any(isinstance(data[key], dict) for key in foreign)
    return not is_run_file(data) and 2 * len(foreign) > len(data) and several


def _foreign(data: dict[Any, Any]) -> list[Any]:
    return [key for key in data if key not in PARTS[()] and not did_you_mean(str(key), PARTS[()]).startswith("did")]


def script_drafts(text: str, path: str) -> list[Draft]:
    """Return the runs that a script makes with any of the libraries.

    Raises:
        BadInput: it is not Python.
    """
    return [draft for backend in backends() for draft in backend.reader.script_drafts(text, path)]
