"""Write a table into bench/RESULTS.md: one section per bench, replaced by name, so that it shows the latest of each.

Every section carries the date, the versions and the command that reproduces it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
TITLE = "# Results\n\nWritten by the benches; each section is replaced when its bench runs again.\n"
PACKAGES = ("torch", "stable-baselines3", "numpy", "jax", "brax", "ray")


def write_section(
    name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], command: str, *, path: Path = RESULTS
) -> None:
    """Print the table and put it into the results file as section `name`, in place of an earlier one."""
    table = _table(columns, rows)
    print(f"{name}\n{table}")
    today = datetime.now(tz=UTC).date().isoformat()
    section = f"## {name}\n\n{today}, {_versions()}. Reproduce with `{command}`.\n\n{table}\n"
    sections = _read(path)
    sections[name] = section
    path.write_text("\n".join([TITLE, *sections.values()]))


def _read(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    parts = re.split(r"(?m)^(?=## )", path.read_text())[1:]
    return {part.split("\n", 1)[0].removeprefix("## "): part.rstrip("\n") + "\n" for part in parts}


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in (columns, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
