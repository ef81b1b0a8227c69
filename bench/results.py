"""The rows that the benches measured, one file of bench/results/ for each table, with date, versions and command.

`bench/RESULTS.md` says in a line what each of them shows; a test compares the dates.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).with_suffix("")  # the folder beside this file
PACKAGES = ("torch", "stable-baselines3", "numpy", "jax", "brax", "ray")


@dataclass(frozen=True)
class Section:
    """One table of a bench."""

    name: str
    date: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def cells(self, *names: str) -> list[tuple[str, ...]]:
        """Return these columns of the rows that have them all."""
        places = [self.columns.index(name) for name in names]
        return [tuple(row[i] for i in places) for row in self.rows if all(row[i] for i in places)]


def write_section(
    name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], command: str, *, folder: Path = RESULTS
) -> None:
    """Print the table and write it to the file of that name, in place of an earlier one."""
    cells = [[str(cell) for cell in row] for row in rows]
    print(f"{name}\n{_table([list(columns), *cells])}")
    today = datetime.now(tz=UTC).date().isoformat()
    head = {"name": name, "date": today, "versions": _versions(), "command": command, "columns": list(columns)}
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n" for key, value in head.items()]
    body = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in cells)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file_name(name)).write_text(f'{{\n{"".join(lines)}  "rows": [\n{body}\n  ]\n}}\n')


def read_sections(folder: Path = RESULTS) -> dict[str, Section]:
    """Return the tables of a folder by name."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        told = json.loads(file.read_text())
        rows = tuple(tuple(row) for row in told["rows"])
        found[told["name"]] = Section(told["name"], told["date"], tuple(told["columns"]), rows)
    return found


def file_name(name: str) -> str:
    """Return the file of a table."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".json"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
