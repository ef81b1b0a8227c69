"""`legroom machine`: what there is to run on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from legroom.cli import options
from legroom.machine import probe
from legroom.machine.history import PastRun, band_scale, past_runs
from legroom.model.machine import Machine
from legroom.rendering.console import document, say
from legroom.rendering.document import Part, Table, verdict
from legroom.units import format_size

KEYS = ("ram", "limit", "limit_origin", "job", "available", "swap", "shm", "cores")


def run(
    json: options.Json = False,
    history: Annotated[
        bool,
        typer.Option("--history", help="List past trainings on this machine: predicted, measured, effect on bands."),
    ] = False,
) -> None:
    """Show this machine's RAM, container limit, swap, shared memory, GPUs and library versions.

    \b
    legroom machine
    legroom machine --history
    legroom machine --json
    """
    if history:
        runs = past_runs()
        say(_history_document(runs) if json else _history(runs))
        return
    machine = probe()
    known = {key: getattr(machine, key) for key in KEYS}
    gpus = [{"name": g.name, "total": g.total, "free": g.free} for g in machine.gpus]
    say(document({**known, "gpus": gpus, "versions": machine.versions}) if json else _text(machine))


def _text(machine: Machine) -> Iterator[Part]:
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


def _history(runs: Sequence[PastRun]) -> Iterator[Part]:
    if not runs:
        yield "no training was predicted and measured here yet; legroom train, watch and MemoryCallback record them"
        return
    table = Table(["run", "predicted", "between", "measured", "error", "", "by", "on"], "lrrrrlll")
    for run in runs:
        table.add(
            run.name, format_size(run.predicted), f"{format_size(run.low)} - {format_size(run.high)}",
            format_size(run.measured), f"{run.error:+.1%}", "" if run.inside else "outside", run.seen_by,
            time.strftime("%Y-%m-%d", time.localtime(run.when)),
        )  # fmt: skip
    yield table
    yield ""
    for way, mine in _by_way(runs).items():
        inside = sum(run.inside for run in mine)
        scale = f"bands are now {band_scale(way, runs):.2f} times as wide"
        yield f"{way}: {inside} of {len(mine)} inside their band; {scale}"


def _history_document(runs: Sequence[PastRun]) -> str:
    scales = {way: band_scale(way, runs) for way in _by_way(runs)}
    return document({"runs": [asdict(run) | {"inside": run.inside} for run in runs], "band_scales": scales})


def _by_way(runs: Sequence[PastRun]) -> dict[str, list[PastRun]]:
    return {way: [run for run in runs if run.way == way] for way in dict.fromkeys(run.way for run in runs)}
