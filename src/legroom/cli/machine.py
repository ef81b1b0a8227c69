"""`legroom machine`: what there is to run on."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.cli import options
from legroom.machine import probe
from legroom.model.machine import Machine
from legroom.rendering.console import document, say
from legroom.rendering.layout import Part, Table, verdict
from legroom.units import format_size


def run(json: options.Json = False) -> None:
    """What this machine has: RAM, container limit, swap, shared memory, GPUs, library versions.

    \b
    legroom machine
    legroom machine --json
    """
    machine = probe()
    known = {key: getattr(machine, key) for key in ("ram", "limit", "available", "swap", "shm", "cores")}
    gpus = [{"name": g.name, "total": g.total, "free": g.free} for g in machine.gpus]
    say(document({**known, "gpus": gpus, "versions": machine.versions}) if json else _text(machine))


def _text(machine: Machine) -> Iterator[Part]:
    cards = ", ".join(gpu.name for gpu in machine.gpus) or "no GPU"
    yield verdict(f"{format_size(machine.available)} of RAM available, {machine.cores} cores, {cards}", "bold")
    memory = Table(["", "", ""], "lrw")
    memory.add("RAM", format_size(machine.ram))
    limit = "none" if machine.limit is None else format_size(machine.limit)
    memory.add("container limit", limit, "" if machine.limit is None else "the smallest of this process's cgroups")
    memory.add("available", format_size(machine.available), "what a run started now can use without swapping")
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
