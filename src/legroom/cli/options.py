"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from legroom.cli.help import BUDGET, OUTPUT, WHAT, rarely
from legroom.errors import BadInput
from legroom.model.machine import Machine
from legroom.model.verdict import Budget
from legroom.units import LARGEST, parse_size


class Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


class Mode(StrEnum):
    AUTO = "auto"
    TRACE = "trace"
    ARITHMETIC = "arithmetic"


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. n_envs=2; or --n-envs 2."),
]
Like = Annotated[
    str | None,
    typer.Option(metavar="RUN", rich_help_panel=rarely(WHAT), help="Take settings that the file lacks from this run."),
]
Backend = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=rarely(WHAT), help="Predict as if the run used this backend."),
]
DeviceOption = Annotated[
    Device | None,
    typer.Option(rich_help_panel=rarely(BUDGET), help="Device to train on; default: cuda if there is one."),
]
CpuOnly = Annotated[bool, typer.Option("--cpu-only", rich_help_panel=rarely(BUDGET), help="The same as --device cpu.")]
Ram = Annotated[
    str | None, typer.Option(metavar="SIZE", rich_help_panel=BUDGET, help="Host memory to fit into, e.g. 16GiB.")
]
Vram = Annotated[
    str | None, typer.Option(metavar="SIZE", rich_help_panel=BUDGET, help="GPU memory to fit into, e.g. 8GiB.")
]
GpuName = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", rich_help_panel=BUDGET, help='GPU to fit, e.g. "RTX 4070".')
]
Reserve = Annotated[
    str,
    typer.Option(metavar="SHARE", rich_help_panel=rarely(BUDGET), help="Share of the budget to keep free, e.g. 10%."),
]
Json = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print JSON and nothing else.")]


def chosen_device(device: Device | None, cpu_only: bool, wants_gpu: bool) -> str | None:
    """Return the device the options ask for; a GPU budget alone means cuda.

    Raises:
        BadInput: --cpu-only together with a GPU.
    """
    if cpu_only and (device is Device.CUDA or (wants_gpu and device is None)):
        raise BadInput("--cpu-only contradicts --device cuda, --gpu and --vram", hint="give one of them")
    if cpu_only:
        return Device.CPU.value
    if device is not None:
        return device.value
    return Device.CUDA.value if wants_gpu else None


def with_gpu(machine: Machine, name: str | None) -> Machine:
    """Return the machine as if it had the named GPU, idle, and no other; of several of that name, say which is meant.

    Raises:
        BadInput: no such card is known.
    """
    if name is None:
        return machine
    from legroom.machine.gpu_table import ambiguity, find_gpu
    from legroom.rendering.console import complain

    if (line := ambiguity(name)) is not None:
        complain(line)
    return replace(machine, gpus=(find_gpu(name).as_gpu(),))


def chosen_budget(machine: Machine, *, ram: str | None, vram: str | None, reserve: str) -> Budget:
    """Return the budget the options give, and what is available on this machine where they give none.

    Raises:
        BadInput: a size or share that cannot be read.
    """
    ram_bytes, ram_origin = machine.available, f"available {machine.place}"
    if ram is not None:
        ram_bytes, ram_origin = parse_size(ram, what="--ram"), "given"
    vram_bytes, vram_origin = None, ""
    if machine.gpus:
        vram_bytes, vram_origin = machine.gpus[0].free, f"free on a {machine.gpus[0].name}"
    if vram is not None:
        vram_bytes, vram_origin = parse_size(vram, what="--vram"), "given"
    mappable = None if ram is not None else LARGEST if machine.maps_anything else machine.ram + machine.swap
    return Budget(ram_bytes, vram_bytes, parse_share(reserve), ram_origin, vram_origin, mappable)


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
