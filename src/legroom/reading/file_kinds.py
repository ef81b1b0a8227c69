"""What backends read: which of them knows a kind of YAML, and the runs that a script makes."""

from __future__ import annotations

from typing import Any

from legroom.backends.base import backends
from legroom.model.draft import Draft
from legroom.model.file_kind import FileKind

RUN_SIGNS = frozenset({"algo", "backend", "legroom", "hyperparams"})  # keys that only run files have


def all_kinds() -> list[FileKind]:
    """Return every installed backend's kinds, the default backend's first."""
    return [kind for backend in backends() for kind in backend.file_kinds]


def kind_of(data: dict[Any, Any]) -> FileKind | None:
    """Return the kind that a backend claims, None for a run file.

    The default backend is asked last: its zoo files are any mapping of mappings.
    """
    if set(data) & RUN_SIGNS:
        return None
    return next((kind for b in reversed(backends()) for kind in b.file_kinds if kind.matches(data)), None)


def kind_in_python() -> FileKind | None:
    """Return the kind whose entries may be the `hyperparams` of a Python module."""
    return next((kind for kind in all_kinds() if kind.in_python), None)


def script_drafts(text: str, path: str) -> list[Draft]:
    """Return the runs that a script makes with any of the libraries.

    Raises:
        BadInput: it is not Python.
    """
    return [draft for backend in backends() for draft in backend.script_drafts(text, path)]
