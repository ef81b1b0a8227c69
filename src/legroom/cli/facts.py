"""`legroom machine`, `workloads` and `schema`: what there is, printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from legroom.backends.base import backend_names
from legroom.cli.commands import MachineCommand, SchemaCommand, WorkloadsCommand
from legroom.machine import probe
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.named_runs import workloads as all_workloads
from legroom.reading import read_all
from legroom.rendering.console import document, say
from legroom.rendering.document import Part, Table, verdict
from legroom.units import format_size

KEYS = ("ram", "limit", "limit_origin", "job", "available", "swap", "shm", "cores")


def machine(asked: MachineCommand) -> None:
    found = probe()
    known = {key: getattr(found, key) for key in KEYS}
    gpus = [{"name": g.name, "total": g.total, "free": g.free} for g in found.gpus]
    say(document({**known, "gpus": gpus, "versions": found.versions}) if asked.json else _machine(found))


def _machine(machine: Machine) -> Iterator[Part]:
    cards = ", ".join(gpu.name for gpu in machine.gpus) or "no GPU"
    yield verdict(f"{format_size(machine.available)} of RAM available, {machine.cores} cores, {cards}", "bold")
    memory = Table(["", "", ""], "lrw")
    memory.add("RAM", format_size(machine.ram))
    limit = "none" if machine.limit is None else format_size(machine.limit)
    memory.add("limit", limit, machine.limit_origin)
    left = "memory that a run started now can use without swapping"
    memory.add("available", format_size(machine.available), f"{left}: the default budget")
    memory.add("swap", format_size(machine.swap))
    memory.add("/dev/shm", format_size(machine.shm), "shared memory between processes")
    memory.add("cores", str(machine.cores))
    for gpu in machine.gpus:
        capability = "" if gpu.capability is None else f", compute capability {gpu.capability[0]}.{gpu.capability[1]}"
        memory.add(gpu.name, format_size(gpu.total), f"{format_size(gpu.free)} free{capability}")
    if not machine.gpus:
        memory.add("GPU", "none", "predict for one with --gpu NAME or --vram SIZE")
    yield memory
    yield ""
    yield ", ".join(f"{name} {version}" for name, version in machine.versions.items())


def workloads(asked: WorkloadsCommand) -> None:
    runs = [one for workload in all_workloads() for one in read_all(workload.name)]
    rows = [{"name": r.name, "description": r.description, "recommended_for": r.recommended_for} for r in runs]
    say(document({"runs": rows}) if asked.json else _workloads(runs))


def _workloads(runs: Sequence[Run]) -> Iterator[Part]:
    count = len({run.name.partition(":")[0] for run in runs})
    yield verdict(f"{len(runs)} named runs of {count} workloads", "bold")
    yield "try: legroom predict mine:full"
    yield ""
    table = Table(["run", "what it is; what it is for"], "lw")
    for run in runs:
        table.add(run.name, f"{run.description}; for {run.recommended_for}")
    yield table


def schema(asked: SchemaCommand) -> None:
    of_run = Run.model_json_schema()
    properties = of_run["properties"]
    properties.pop("source")
    properties["backend"] = dict(sorted({**properties["backend"], "enum": list(backend_names())}.items()))
    say(json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **of_run}, indent=2))
