"""The machine as text and as JSON."""

from __future__ import annotations

import json

from rich.console import Group
from rich.table import Table

from legroom.model.machine import Machine
from legroom.units import format_size

JSON_VERSION = 1


def machine_json(machine: Machine) -> str:
    return json.dumps(
        {
            "legroom": JSON_VERSION,
            "ram": machine.ram,
            "limit": machine.limit,
            "available": machine.available,
            "swap": machine.swap,
            "shm": machine.shm,
            "cores": machine.cores,
            "gpus": [{"name": g.name, "total": g.total, "free": g.free} for g in machine.gpus],
            "versions": machine.versions,
        },
        indent=2,
    )


def machine_text(machine: Machine) -> Group:
    memory = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    memory.add_column(no_wrap=True)
    memory.add_column(justify="right", no_wrap=True)
    memory.add_column()
    memory.add_row("RAM", format_size(machine.ram), "")
    limit = "none" if machine.limit is None else format_size(machine.limit)
    memory.add_row("container limit", limit, "" if machine.limit is None else "the smallest of this process's cgroups")
    memory.add_row("available", format_size(machine.available), "what a run started now can use without swapping")
    memory.add_row("swap", format_size(machine.swap), "")
    memory.add_row("/dev/shm", format_size(machine.shm), "shared memory between processes")
    memory.add_row("cores", str(machine.cores), "")
    for gpu in machine.gpus:
        capability = "" if gpu.capability is None else f", compute capability {gpu.capability[0]}.{gpu.capability[1]}"
        memory.add_row(gpu.name, format_size(gpu.total), f"{format_size(gpu.free)} free{capability}")
    if not machine.gpus:
        memory.add_row("GPU", "none", "predict for one with --gpu NAME or --vram SIZE")
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    return Group(memory, "", versions)
