"""legroom's own run file: it already has the shape of a Run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from legroom.model.draft import Draft, copied
from legroom.reading.yamls import Lines


def drafts(data: Any, lines: Lines, path: str) -> list[Draft]:
    """Return the one run of a native file. Its name is its own, or the file's."""
    name = data.get("name")
    return [Draft(name if isinstance(name, str) else Path(path).stem, path, copied(data), dict(lines))]
