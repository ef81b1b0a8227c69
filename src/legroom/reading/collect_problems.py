"""Reading for those who look for mistakes: whatever can be known of a file's runs, and what is wrong, side by side.

Everywhere else the first problem ends the reading, since a prediction of half a run is worth nothing. A check is the
other way round: a negative batch size in one entry must not hide what is wrong with the other thirty.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from legroom.backends.base import algorithm_names, backends
from legroom.errors import BadInput, NotARun
from legroom.reading import laid_over
from legroom.reading.files import all_kinds, source_of
from legroom.reading.naming import SLIP
from legroom.reading.reading_budget import bounded_reading
from legroom.reading.targets import named_drafts
from legroom.reading.user_files import is_directory
from legroom.reading.validating import CollectedRun, collected_run
from legroom.reading.workload_options import split_overrides, with_options
from legroom.reading.yamls import parse_yaml, run_file_draft


@dataclass(frozen=True)
class CollectedFile:
    """A file and its runs, as far as they can be had; kind and problems are those of its `Source`."""

    path: str
    text: str
    kind: str
    runs: tuple[CollectedRun, ...]
    problems: tuple[BadInput, ...] = ()


def read_collecting(
    target: str, *, overrides: Sequence[tuple[str, str]] = (), like: str | None = None
) -> CollectedFile:
    """Return what there is to say about `target`, a file or a named run.

    Raises:
        BadInput: there is no such run, it is not YAML or not Python, or nothing in it is of a training.
    """
    keys, options = split_overrides(overrides)
    with bounded_reading(target):
        found = source_of(target, keys, like, single=False, collect=True)
        runs = [collected_run(laid_over(draft, like), keys) for draft in found.drafts]
    if any(each.name == found.kind and not each.certain for each in all_kinds()):
        runs = [replace(one, problems=()) for one in runs]
    if found.kind == "script":
        runs = [_of_another_release(one) for one in runs]
    if found.kind == "run" and like is None and not keys and _has_other_words(runs):
        hint = "'legroom schema' prints what a run file is"
        raise NotARun("has settings unknown to run files", path=found.path, hint=hint)
    runs = [one if one.run is None else replace(one, run=with_options(one.run, options)) for one in runs]
    return CollectedFile(found.path, found.text, found.kind, tuple(runs), tuple(found.problems))


def collected_text(text: str, name: str) -> CollectedFile:
    """Return what there is to say about the text of a run file that is in no file.

    Raises:
        BadInput: it is not YAML, or nothing in it is of a training.
    """
    with bounded_reading(name):
        data, lines = parse_yaml(text, name)
        if not isinstance(data, dict):
            hint = "start with algo: and env:"
            raise BadInput("a run file is a mapping of keys to values", path=name, line=1, hint=hint)
        return CollectedFile(name, text, "run", (collected_run(run_file_draft(data, lines, name)),))


def _of_another_release(one: CollectedRun) -> CollectedRun:
    """Return the run of a script without its foreign arguments: forks and other releases of a library have others.

    What that constructor does with the rest is not known then, either.
    """
    own = tuple(problem for problem in one.problems if not _is_foreign(problem))
    if len(own) == len(one.problems):
        return one
    return replace(one, problems=own, unknown=one.unknown | {("hyperparams",)})


def _has_other_words(runs: Sequence[CollectedRun]) -> bool:
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


def expanded(target: str) -> list[str]:
    """Return the names of a workload's runs where `target` is a workload, and `target` itself otherwise."""
    if is_directory(target):
        return [target]
    return [draft.name for draft in named_drafts(target, single=False)] or [target]
