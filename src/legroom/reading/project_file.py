"""`[tool.legroom]` of the pyproject.toml above a file: what a project wants of every check.

[tool.legroom]
ignore = ["LR012"]          # rules, by code or name
ram = "16GiB"               # budget
vram = "8GiB"
gpu = "RTX 4070"            # card
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.reading.naming import did_you_mean
from legroom.reading.user_files import exists, is_directory, is_file

FILE = "pyproject.toml"


@dataclass(frozen=True)
class Project:
    """What the project's file says; `folder` is where it lies, None where there is none."""

    folder: Path | None = None
    ignore: tuple[str, ...] = ()
    ram: str | None = None
    vram: str | None = None
    gpu: str | None = None


def read_project(target: str) -> Project:
    """Return the settings of the nearest pyproject.toml with such a table, upwards from a file; empty where none is.

    Raises:
        BadInput: the file or its table cannot be read.
    """
    path = Path(target)
    if not exists(path):  # a named run
        return Project()
    start = path.resolve()
    for folder in (start, *start.parents) if is_directory(start) else start.parents:
        file = folder / FILE
        if is_file(file) and (table := _table(file)) is not None:
            return _checked(table, file)
    return Project()


def _table(file: Path) -> dict[str, Any] | None:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        if isinstance(error, tomllib.TOMLDecodeError):
            raise BadInput(f"not valid TOML: {error}", path=file) from None
        return None
    table = data.get("tool", {}).get("legroom") if isinstance(data.get("tool", {}), dict) else None
    return table if isinstance(table, dict) else None


def _checked(table: dict[str, Any], file: Path) -> Project:
    names = [field.name for field in fields(Project) if field.name != "folder"]
    for key, value in table.items():
        if key not in names:
            raise BadInput(
                f"[tool.legroom] has no key {key!r}", path=file, hint=did_you_mean(key, names, ", ".join(names))
            )
        texts = value if key == "ignore" and isinstance(value, list) else [value]
        if (key == "ignore") != isinstance(value, list) or not all(isinstance(text, str) for text in texts):
            kind = "a list of rules" if key == "ignore" else "a text"
            raise BadInput(f"[tool.legroom] {key} = {value!r} is not {kind}", path=file)
    given = {key: value for key, value in table.items() if key != "ignore"}
    return Project(file.parent, tuple(table.get("ignore", ())), **given)
