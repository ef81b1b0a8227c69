"""What there is to fit into, as the options of commands say it: a machine, its budget, a device."""

from __future__ import annotations

from dataclasses import replace

from legroom.cli.commands import LimitOptions, PlaceOptions
from legroom.errors import BadInput
from legroom.machine import probe
from legroom.machine.gpu_table import ambiguity, find_gpu
from legroom.model.machine import Machine
from legroom.model.verdict import Budget
from legroom.predicting.predict import DeviceName
from legroom.rendering.console import complain
from legroom.units import LARGEST, parse_size


def place_of(asked: PlaceOptions, *, wants_gpu: bool = False) -> tuple[Machine, DeviceName | None]:
    """Return the machine and the device that options ask for; a GPU budget alone means cuda.

    Raises:
        BadInput: they contradict each other, or one cannot be read.
    """
    machine = with_gpu(probe(), asked.gpu)
    device: DeviceName | None = getattr(asked, "device", None)
    wants_gpu = wants_gpu or bool(asked.vram or asked.gpu)
    if asked.cpu_only and (device == "cuda" or (wants_gpu and device is None)):
        raise BadInput("--cpu-only contradicts --device cuda, --gpu and --vram", hint="give one of them")
    return machine, "cpu" if asked.cpu_only else device or ("cuda" if wants_gpu else None)


def with_gpu(machine: Machine, name: str | None) -> Machine:
    """Return the machine as if it had the named GPU, idle, and no other; of several of that name, say which is meant.

    Raises:
        BadInput: no such card is known.
    """
    if name is None:
        return machine
    if (line := ambiguity(name)) is not None:
        complain(line)
    return replace(machine, gpus=(find_gpu(name).as_gpu(),))


def chosen_budget(machine: Machine, asked: LimitOptions) -> Budget:
    """Return the budget the options give, and what is available on this machine where they give none.

    Raises:
        BadInput: a size or share that cannot be read.
    """
    ram_bytes, ram_origin = machine.available, f"available {machine.place}"
    if asked.ram is not None:
        ram_bytes, ram_origin = parse_size(asked.ram, what="--ram"), "given"
    vram_bytes, vram_origin = None, ""
    if machine.gpus:
        vram_bytes, vram_origin = machine.gpus[0].free, f"free on a {machine.gpus[0].name}"
    if asked.vram is not None:
        vram_bytes, vram_origin = parse_size(asked.vram, what="--vram"), "given"
    mappable = None if asked.ram is not None else LARGEST if machine.maps_anything else machine.ram + machine.swap
    return Budget(ram_bytes, vram_bytes, parse_share(asked.reserve), ram_origin, vram_origin, mappable)


def parse_share(text: str) -> float:
    """Return `10%` or `0.1` as 0.1.

    Raises:
        BadInput: it is no share between 0 and 1.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise BadInput(f"--reserve {text!r} is not a share", hint="write it as 10% or 0.1")
    return share
