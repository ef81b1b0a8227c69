"""`legroom workloads`: the named runs that ship with legroom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from legroom.cli import options
from legroom.model.run import Run
from legroom.named_runs import workloads
from legroom.reading import read_all
from legroom.rendering.console import document, say
from legroom.rendering.document import Part, Table, verdict


def run(json: options.Json = False) -> None:
    """The reference workloads, their named runs, and the commands to try.

    \b
    legroom workloads
    legroom workloads --json
    """
    runs = [one for workload in workloads() for one in read_all(workload.name)]
    rows = [{"name": r.name, "description": r.description, "recommended_for": r.recommended_for} for r in runs]
    say(document({"runs": rows}) if json else _text(runs))


def _text(runs: Sequence[Run]) -> Iterator[Part]:
    count = len({run.name.partition(":")[0] for run in runs})
    yield verdict(f"{len(runs)} named runs of {count} workloads", "bold")
    yield "try: legroom predict mine:full"
    yield ""
    table = Table(["run", "what it is; what it is for"], "lw")
    for run in runs:
        table.add(run.name, f"{run.description}; for {run.recommended_for}")
    yield table
