"""What backends read: which of them knows a kind of YAML, and the runs that a script makes."""

from __future__ import annotations

from typing import Any

from legroom.backends.base import backends
from legroom.model.draft import Draft, FileKind
from legroom.reading.naming import PARTS, did_you_mean

MOST_FOREIGN = 1  # keys that a run file has no place for, in what is a run file all the same
RUN_SIGNS = frozenset({"algo", "backend", "legroom", "hyperparams"})  # keys that only run files have


def all_kinds() -> list[FileKind]:
    """Return every installed backend's kinds, the default backend's first."""
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


def kind_in_python() -> FileKind | None:
    """Return the kind whose entries may be the `hyperparams` of a Python module."""
    return next((kind for kind in all_kinds() if kind.in_python), None)


def script_drafts(text: str, path: str) -> list[Draft]:
    """Return the runs that a script makes with any of the libraries.

    Raises:
        BadInput: it is not Python.
    """
    return [draft for backend in backends() for draft in backend.reader.script_drafts(text, path)]
