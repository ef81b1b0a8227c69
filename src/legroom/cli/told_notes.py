"""What readers noted about a run, on standard error: what they passed over, filled in, or read from other files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from legroom.reading.reading_notes import collected_notes
from legroom.rendering.console import complain


@contextmanager
def told_notes() -> Iterator[list[str]]:
    """Collect what is noted while a run is read inside the block, and tell it at its end."""
    with collected_notes() as notes:
        yield notes
    for each in notes:
        complain(each)
