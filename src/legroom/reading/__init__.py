"""From what the user has to a Run: the only parsing, defaulting and mapping of names.

A target is an existing file (`file.yml`, `file.yml:entry`, `train.py`), a named run (`mine:full`, `mine`), or an
algorithm and an environment (`PPO CartPole-v1`), in this order. What kind of file it is, is decided by its content;
readers are imported on first use, since a prediction of a named run must not pay for the parser of scripts. Named runs
of a workload whose own tests read them are valid, so without overrides they skip the checks as well.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple

from legroom.backends.default import DEFAULT_BACKEND
from legroom.errors import BadInput, NotARun, NotKnownYet
from legroom.model.draft import Draft, get, merged, only_entry
from legroom.model.run import Run, run_from_trusted
from legroom.named_runs import find_workload, run_names, workloads
from legroom.reading import yamls
from legroom.reading.reading_budget import bounded_reading
from legroom.reading.user_files import is_directory, is_file, read_text, refuse_log
from legroom.reading.workload_options import split_overrides, with_options
from legroom.reading.yamls import Lines

__all__ = [
    "Unread", "override_names", "read", "read_all", "read_each", "read_given", "run_from_dict", "script_given",
]  # fmt: skip

Overrides = Sequence[tuple[str, str]]

_FILE_SUFFIXES = (".yaml", ".yml", ".py", ".json")
NO_FOLDER = "/dev/null"  # nothing can be below it: of a script without a folder no neighbours are read


def read(target: str, *, overrides: Overrides = (), like: str | None = None) -> Run:
    """Return the run that `target` names; a bare workload means its default run.

    Args:
        overrides: (name, text of the value) pairs, laid over what the file says; `--name` is an option of a workload.
        like: a named run or file that supplies what `target` does not say.

    Raises:
        BadInput: there is no such run, the file holds several, or something in it cannot be.

    Example:
        >>> import legroom
        >>> legroom.read("mine:full", overrides=[("n_envs", "2")])
        Run(mine:full: MaskablePPO of sb3, legroom_workloads.mine:MineEnv, 2 envs)
    """
    with bounded_reading(target):
        return _read(target, overrides, like)


def _read(target: str, overrides: Overrides, like: str | None) -> Run:
    keys, options = split_overrides(overrides)
    named = named_drafts(target, single=True)
    if named and not keys and like is None and is_checked(target):
        return with_options(_trusted(named[0]), options)
    drafts = named or _from_target(target, keys)
    if len(drafts) > 1:
        names = ", ".join(draft.name for draft in drafts[:6]) + (", ..." if len(drafts) > 6 else "")
        first = drafts[0].name
        raise BadInput(f"holds {len(drafts)} runs: {names}", path=target, hint=f"name one: {target}:{first}")
    return with_options(_checked(laid_over(drafts[0], like), keys), options)


def read_all(target: str, *, overrides: Overrides = (), like: str | None = None) -> list[Run]:
    """Return every run that `target` names: all runs of a workload, all entries of a zoo file, all of a script.

    Raises:
        BadInput: there is no such run, or something in one of them cannot be.
    """
    with bounded_reading(target):
        keys, options = split_overrides(overrides)
        named = named_drafts(target, single=False)
        if named and not keys and like is None and is_checked(target):
            return [with_options(_trusted(draft), options) for draft in named]
        drafts = named or _from_target(target, keys)
        return [with_options(_checked(laid_over(draft, like), keys), options) for draft in drafts]


class Unread(NamedTuple):
    """An entry of a file that cannot be read or predicted, and why."""

    name: str
    reason: BadInput


def read_each(target: str, *, overrides: Overrides = (), like: str | None = None) -> tuple[list[Run], list[Unread]]:
    """Return every run that `target` names, and the entries of a file of several that cannot be read.

    A script of which only running could tell what it needs has no runs, and none is an error.

    Raises:
        BadInput: there is no such run, or none that can be read.
    """
    try:
        return read_all(target, overrides=overrides, like=like), []
    except BadInput as error:
        path, entry = split_target(target)
        names = _entry_names(path) if path is not None and entry is None else []
        runs: list[Run] = []
        unread: list[Unread] = []
        for name in names if len(names) > 1 or isinstance(error, NotKnownYet) else ():
            try:
                runs += read_all(f"{path}:{name}", overrides=overrides, like=like)
            except BadInput as reason:
                unread.append(Unread(name, reason))
        if not runs and not (unread and isinstance(error, NotKnownYet)):
            raise error from None
        return runs, unread


def _entry_names(path: str) -> list[str]:
    """Return the names of the runs of a script, or of the entries of a file that is a mapping of runs."""
    from legroom.reading.file_kinds import kind_of, script_drafts

    try:
        if path.endswith(".py"):
            with bounded_reading(path):
                return [draft.name for draft in script_drafts(read_text(path), path)]
        data: Any = yamls.parse_yaml(read_text(path), path)[0]
    except BadInput:
        return []
    kind = kind_of(data) if isinstance(data, dict) else None
    return [str(name) for name in data] if kind is not None and kind.by_entry else []


def read_given(text: str, name: str) -> list[Run]:
    """Return every run in a YAML or JSON text that was handed over; there is no file, and none is looked at.

    Args:
        name: of the file it was, which may say the algorithm (`ppo.yml`).

    Raises:
        BadInput: it is no run file, or no run in it can be.
    """
    if not name.lower().endswith((".yaml", ".yml", ".json")):
        raise BadInput("is not YAML or JSON by its name", path=name, hint="name it run.yaml")
    with bounded_reading(name):
        return _read_given(text, name)


def _read_given(text: str, name: str) -> list[Run]:
    from legroom.reading.file_kinds import kind_of

    data, _ = yamls.parse_yaml(text, name)
    kind = kind_of(data) if isinstance(data, dict) else None
    if kind is not None and kind.beside:
        hint = f"start with legroom ui PATH, which reads the {kind.beside} beside it"
        raise BadInput("a saved config.yml does not name its algorithm", path=name, hint=hint)
    runs, first = [], None
    for draft in _from_yaml(text, name, None, None):
        try:
            runs.append(_checked(draft, ()))
        except BadInput as error:
            first = first or error
    if first is not None and not runs:
        raise first
    return runs


def script_given(text: str, name: str) -> list[tuple[Run, list[str]]]:
    """Return the runs of a script that was handed over, each with the settings that it does not tell.

    Those have their defaults in the run, and so has what is wrong. There is no folder: modules that the script imports
    are not known.

    Raises:
        BadInput: it is not Python, makes no run, or something in it cannot be.
    """
    from legroom.reading.validating import is_harmless, lenient_run

    with bounded_reading(name):
        try:
            found = [lenient_run(draft) for draft in _from_python(text, f"{NO_FOLDER}/{name}", None, None)]
            if wrong := next((problem for each in found if each.run is None for problem in each.problems), None):
                raise wrong
        except BadInput as error:
            path = None if error.path is None else str(error.path).removeprefix(f"{NO_FOLDER}/")
            raise BadInput(error.message, hint=error.hint, path=path, line=error.line) from None
    return [
        (each.run, sorted(".".join(map(str, key)) for key in each.unknown if not is_harmless(key)))
        for each in found
        if each.run is not None and each.algo_known
    ]


def run_from_dict(data: Any, *, path: str | None = None, lines: Lines | None = None, overrides: Overrides = ()) -> Run:
    """Return the Run that `data`, in the shape of a run file, describes.

    Args:
        path, lines: where it was read: the file, and the line of each key path.
        overrides: (name, text of the value) pairs, laid over the data in order.

    Raises:
        BadInput: something in it cannot be; says where and the way out.
    """
    from legroom.reading import validating

    return validating.run_from_dict(data, path=path, lines=lines, overrides=overrides)


def override_names(backend: str = DEFAULT_BACKEND, algo: str | None = None) -> set[str]:
    """Return the bare names (with underscores) that overrides of such a run may use."""
    from legroom.reading.naming import places

    return set(places(backend, algo))


def _checked(draft: Draft, overrides: Overrides) -> Run:
    from legroom.reading.validating import run_from_draft

    return run_from_draft(draft, overrides)


def named_drafts(target: str, *, single: bool) -> list[Draft]:
    """Return the drafts of a named run or workload; none when `target` is a file or no such run."""
    if split_target(target)[0] is not None:
        return []
    workload, _, run = target.partition(":")
    found = find_workload(workload)
    if found is None:
        return []
    files = found.run_files()
    names = [run] if run or ":" in target else [found.default] if single else list(files)
    return [_named(f"{workload}:{name}", str(files[name])) for name in names if name in files]


def is_checked(target: str) -> bool:
    """Return whether the runs of the workload that `target` names are known to be valid."""
    found = find_workload(target.partition(":")[0])
    return found is not None and found.checked


def _trusted(draft: Draft) -> Run:
    return run_from_trusted({**draft.data, "name": draft.name, "source": draft.path})


def _from_target(target: str, overrides: Overrides) -> list[Draft]:
    file, entry = split_target(target)
    if file is not None:
        return _from_file(file, entry, overrides)
    from legroom.reading.spoken import spoken_draft

    spoken = spoken_draft(target)
    if spoken is None:
        raise no_such_run(target)
    return [spoken]


def split_target(target: str) -> tuple[str | None, str | None]:
    """Return the existing file that `target` starts with, and the entry after the colon."""
    if is_file(target):
        return target, None
    at = target.find(":")
    while at > 0:
        if is_file(target[:at]):
            return target[:at], target[at + 1 :] or None
        at = target.find(":", at + 1)
    return None, None


def _named(name: str, path: str) -> Draft:
    data, lines = yamls.parse_yaml(read_text(path), path)
    draft = yamls.run_file_draft(data, lines, path)
    draft.name = name
    return draft


def _from_file(path: str, entry: str | None, overrides: Overrides) -> list[Draft]:
    text = read_text(path)
    refuse_log(text, path)
    algo = next((value for name, value in overrides if name in ("algo", "algorithm")), None)
    if path.endswith(".py"):
        return _from_python(text, path, entry, algo)
    return _from_yaml(text, path, entry, algo)


def _from_yaml(text: str, path: str, entry: str | None, algo: str | None) -> list[Draft]:
    data, lines = yamls.parse_yaml(text, path)
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "a single value"
        hint = "start with algo: and env:"
        raise BadInput(f"a run file is a mapping of keys to values, not {kind}", path=path, line=1, hint=hint)
    from legroom.reading.composing import composed
    from legroom.reading.file_kinds import is_of_another_program, kind_of

    of_hydra = isinstance(data.get("defaults"), list)
    data = composed(data, path)
    foreign = kind_of(data)
    if foreign is not None:
        return foreign.drafts(data, lines, path, entry=entry, algo=algo)
    if of_hydra or is_of_another_program(data):
        return only_entry([_own_settings(data, lines, path)], entry, path)
    return only_entry([yamls.run_file_draft(data, lines, path)], entry, path)


def _own_settings(data: dict[str, Any], lines: Lines, path: str) -> Draft:
    from legroom.reading.constants import settings_draft

    found = settings_draft(data, lines, path)
    if found is None:
        hint = "a run file starts with algo: and env:"
        raise NotARun("no training settings found in this file", path=path, hint=hint)
    return found


def _from_python(text: str, path: str, entry: str | None, algo: str | None) -> list[Draft]:
    from legroom.reading import constants
    from legroom.reading.file_kinds import kind_in_python, script_drafts

    found = script_drafts(text, path)
    if not found:
        kind, entries = kind_in_python(), constants.zoo_entries(text, path)
        if kind is not None and entries is not None:
            return kind.drafts(entries, {}, path, entry=entry, algo=algo)
        found = _own_program(text, path)
    return only_entry(found, entry, path)


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


def laid_over(draft: Draft, like: str | None) -> Draft:
    """Return the draft on top of the run that `like` names."""
    if like is None:
        return draft
    from legroom.reading.completing import completed

    bases = named_drafts(like, single=True) or _from_target(like, ())
    return completed(draft, _checked(bases[0], ()), like)


def no_such_run(target: str) -> BadInput:
    """Return the error for a target that is neither file nor named run, with the nearest name of that kind."""
    head, _, run = target.partition(":")
    if is_directory(target):
        return BadInput("is a directory", path=target, hint="name a run file in it")
    looks_like_file = "/" in target or "\\" in target or "." in head
    workload = find_workload(head)
    if workload is None and looks_like_file:
        try:
            read_text(head if head.lower().endswith(_FILE_SUFFIXES) else target)
        except BadInput as error:
            return error
    names = run_names()
    if workload is not None:
        names = [name for name in names if name.startswith(f"{head}:")]
    bare = [w.name for w in workloads()]
    if not bare:  # a source checkout that was installed before it had entry points for them
        return BadInput(f"no file and no named run {target!r}", hint="no workload is registered: reinstall legroom")
    close = difflib.get_close_matches(target.lower(), names if run else [*bare, *names], n=1, cutoff=0.5)
    listed = ", ".join(names if workload is not None else bare)
    hint = f"did you mean {close[0]!r}? there is {listed}" if close else f"there is {listed}, or give a file"
    return BadInput(f"no file and no named run {target!r}", hint=hint)
