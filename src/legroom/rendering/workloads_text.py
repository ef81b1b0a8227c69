"""The named runs as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from legroom.model.run import Run
from legroom.rendering.layout import Part, Table

JSON_VERSION = 1


def workloads_json(runs: Sequence[Run]) -> str:
    rows = [{"name": r.name, "description": r.description, "recommended_for": r.recommended_for} for r in runs]
    return json.dumps({"legroom": JSON_VERSION, "runs": rows}, indent=2)


def workloads_text(runs: Sequence[Run]) -> Iterator[Part]:
    table = Table(["run", "what it is; what it is for"], "lw")
    for run in runs:
        table.add(run.name, f"{run.description}; for {run.recommended_for}")
    yield table
    yield ""
    yield "try: legroom predict mine:full"
    yield "     legroom predict mine"
    yield '     legroom predict gameboy:default --gpu "RTX 4070"'
    yield "     legroom predict robot:default --num_envs 512"
