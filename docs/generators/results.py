"""The sections that the benches write into bench/RESULTS.md, and one chart of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.generators.drawing import Point, scatter

RESULTS = Path(__file__).resolve().parent.parent.parent / "bench" / "RESULTS.md"
MB = 1e6


@dataclass(frozen=True)
class Section:
    """One table of RESULTS.md."""

    name: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def cells(self, *names: str) -> list[tuple[str, ...]]:
        """Return these columns of the rows that have them all."""
        places = [self.columns.index(name) for name in names]
        return [tuple(row[i] for i in places) for row in self.rows if all(row[i] for i in places)]


def read_sections(text: str) -> dict[str, Section]:
    """Return the sections of a results file by name."""
    found = {}
    for part in re.split(r"(?m)^## ", text)[1:]:
        name, _, rest = part.partition("\n")
        lines = [line for line in rest.splitlines() if line.startswith("|")]
        note = rest.split("\n|", 1)[0].strip()
        if len(lines) >= 2:
            head, _, *rows = [tuple(_cells(line)) for line in lines]
            found[name] = Section(name, note, head, tuple(rows))
    return found


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def gpu_points(sections: Mapping[str, Section]) -> list[Point]:
    return [
        Point(name, number(real) / MB, number(predicted) / MB)
        for title, section in sections.items()
        if title.startswith("GPU memory")
        for name, predicted, real in section.cells("run", "predicted reserved", "real reserved")
    ]


def host_points(sections: Mapping[str, Section]) -> list[Point]:
    rows = sections["Host memory of real SB3 runs"].cells("run (MB)", "measured", "predicted", "low", "high")
    return [Point(name, *(number(cell) for cell in cells)) for name, *cells in rows]


def chart() -> str:
    """Return one chart of every prediction that was compared with a measurement, host and GPU."""
    sections = read_sections(RESULTS.read_text())
    gpu, host = gpu_points(sections), host_points(sections)
    series = {f"GPU: {len(gpu)} recorded runs": gpu, f"host: {len(host)} trainings, with bands": host}
    return scatter("Predicted and measured peak memory", series, "MB", "measured", "predicted")


def number(cell: str) -> float:
    """Return the number of a cell: `1,875`, `82%`, `+0.5 %`."""
    return float(re.sub(r"[^\d.eE+-]", "", cell))
