"""From what the user has to a Run: the only parsing, defaulting and mapping of names.

A target is an existing file (`file.yml`, `file.yml:entry`, `train.py`), a named run (`mine:full`, `mine`), or an
algorithm and an environment (`PPO CartPole-v1`), in this order. What kind of file it is, is decided by its content;
readers are imported on first use, since a prediction of a named run must not pay for the parser of scripts. Named runs
of a workload whose own tests read them are valid, so without overrides they skip the checks as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from legroom.backends.default import DEFAULT_BACKEND
from legroom.errors import BadInput, NotKnownYet
from legroom.model.draft import Draft, copied
from legroom.model.run import Run, run_from_trusted
from legroom.reading.reading_budget import bounded_reading
from legroom.reading.targets import is_checked, named_drafts, split_target
from legroom.reading.user_files import read_text
from legroom.reading.workload_options import split_overrides, with_options
from legroom.reading.yamls import Lines, parse_yaml

__all__ = [
    "Unread", "override_names", "read", "read_all", "read_each", "read_given", "run_from_dict", "script_given",
]  # fmt: skip

Overrides = Sequence[tuple[str, str]]

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
        return _runs(target, overrides, like, single=True)[0]


def _runs(target: str, overrides: Overrides, like: str | None, *, single: bool) -> list[Run]:
    keys, options = split_overrides(overrides)
    drafts = named_drafts(target, single=single)
    if drafts and not keys and like is None and is_checked(target):
        data = ({**draft.data, "name": draft.name, "source": draft.path} for draft in drafts)
        return [with_options(run_from_trusted(each), options) for each in data]
    from legroom.reading.files import source_of

    drafts = drafts or source_of(target, keys, like, single=single).drafts
    if single and len(drafts) > 1:
        names = ", ".join(draft.name for draft in drafts[:6]) + (", ..." if len(drafts) > 6 else "")
        hint = f"name one: {target}:{drafts[0].name}"
        raise BadInput(f"holds {len(drafts)} runs: {names}", path=target, hint=hint)
    return [with_options(_checked(laid_over(draft, like), keys), options) for draft in drafts]


def read_all(target: str, *, overrides: Overrides = (), like: str | None = None) -> list[Run]:
    """Return every run that `target` names: all runs of a workload, all entries of a zoo file, all of a script.

    Raises:
        BadInput: there is no such run, or something in one of them cannot be.
    """
    with bounded_reading(target):
        return _runs(target, overrides, like, single=False)


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
    from legroom.reading.files import kind_of, script_drafts

    try:
        if path.endswith(".py"):
            with bounded_reading(path):
                return [draft.name for draft in script_drafts(read_text(path), path)]
        data: Any = parse_yaml(read_text(path), path)[0]
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
    from legroom.reading.files import yaml_source

    runs, first = [], None
    with bounded_reading(name):
        for draft in yaml_source(text, name).drafts:
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
    from legroom.reading.files import python_source
    from legroom.reading.validating import collected_run, is_harmless

    with bounded_reading(name):
        try:
            found = [
                collected_run(each) for each in python_source(text, f"{NO_FOLDER}/{name}", None, None, None).drafts
            ]
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
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "a single value"
        what = f"a run file is a mapping of keys to values, not {kind}"
        raise BadInput(what, path=path, line=1, hint="start with algo: and env:")
    name = data.get("name") if isinstance(data.get("name"), str) else None
    return _checked(Draft(name or "run", path, copied(data), dict(lines or {})), overrides)


def override_names(backend: str = DEFAULT_BACKEND, algo: str | None = None) -> set[str]:
    """Return the bare names (with underscores) that overrides of such a run may use."""
    from legroom.reading.naming import places

    return set(places(backend, algo))


def _checked(draft: Draft, overrides: Overrides) -> Run:
    from legroom.reading.validating import run_from_draft

    return run_from_draft(draft, overrides)


def laid_over(draft: Draft, like: str | None) -> Draft:
    if like is None:
        return draft
    from legroom.reading.completing import completed
    from legroom.reading.files import source_of

    base = source_of(like, (), single=True).drafts[0]
    return completed(draft, _checked(base, ()), like)
