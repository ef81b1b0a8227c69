"""What a reader passed over or filled in: collected beside the run, since a run file has no place for it.

Whoever wants to tell the user opens a `collected_notes()` around the reading; without one, notes are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MOST_NAMED = 12  # keys or sections that a note names; of more the rest is counted
_NOTES: ContextVar[list[str] | None] = ContextVar("reading_notes", default=None)


@contextmanager
def collected_notes() -> Iterator[list[str]]:
    """Collect what is noted inside the block, each note once."""
    notes: list[str] = []
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


def note(text: str) -> None:
    """Add a note for the code that collects them."""
    notes = _NOTES.get()
    if notes is not None and text not in notes:
        notes.append(text)


def listed(names: list[str], most: int = MOST_NAMED) -> str:
    """Names of a note, cut to a readable number."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
