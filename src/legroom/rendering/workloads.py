"""The named runs as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Group
from rich.table import Table

from legroom.model.run import Run

JSON_VERSION = 1


def workloads_json(runs: Sequence[Run]) -> str:
    rows = [{"name": r.name, "description": r.description, "recommended_for": r.recommended_for} for r in runs]
    return json.dumps({"legroom": JSON_VERSION, "runs": rows}, indent=2)


def workloads_text(runs: Sequence[Run]) -> Group:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("run", no_wrap=True)
    table.add_column("what it is")
    table.add_column("recommended for")
    for run in runs:
        table.add_row(run.name, run.description, run.recommended_for)
    return Group(
        table,
        "",
        "try: legroom predict mine:full",
        "     legroom predict mine                                (all its runs, compared)",
        '     legroom predict gameboy:default --gpu "RTX 4070"',
        "     legroom predict robot:default --num_envs 512",
    )
