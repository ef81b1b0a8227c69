"""`legroom machine`: what there is to run on."""

from __future__ import annotations

from legroom.cli import options
from legroom.machine import probe
from legroom.rendering.console import say
from legroom.rendering.machine_text import machine_json, machine_text


def run(json: options.Json = False) -> None:
    """What this machine has: RAM, container limit, swap, shared memory, GPUs, library versions.

    \b
    legroom machine
    legroom machine --json
    """
    machine = probe()
    say(machine_json(machine) if json else machine_text(machine))
