"""One chart of every prediction that a bench compared with a measurement."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bench.results import Section, read_sections
from docs.generators.drawing import Point, scatter

MB = 1e6


def gpu_points(sections: Mapping[str, Section]) -> list[Point]:
    return [
        Point(name, number(real) / MB, number(predicted) / MB)
        for title, section in sections.items()
        if title.startswith("GPU memory")
        for name, predicted, real in section.cells("run", "predicted reserved", "real reserved")
    ]


def host_points(sections: Mapping[str, Section]) -> list[Point]:
    rows = sections["Host memory of generated runs, held out"].cells("run (MB)", "measured", "predicted", "between")
    return [
        Point(name, number(measured), number(predicted), *map(number, between.split("-")))
        for name, measured, predicted, between in rows
    ]


def chart() -> str:
    """Return one chart of every prediction that was compared with a measurement, host and GPU."""
    sections = read_sections()
    gpu, host = gpu_points(sections), host_points(sections)
    series = {f"GPU: {len(gpu)} recorded runs": gpu, f"host: {len(host)} trainings, with bands": host}
    return scatter("Predicted and measured peak memory", series, "MB", "measured", "predicted")


def number(cell: str) -> float:
    """Return the number of a cell: `1,875`, `82%`, `+0.5 %`."""
    return float(re.sub(r"[^\d.eE+-]", "", cell))
