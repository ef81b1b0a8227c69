"""`legroom predict -- COMMAND...`: the user's program as it is, run on a card that is not there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from legroom.cli import options, scheduler_options
from legroom.cli.help import BUDGET, OUTPUT, WHAT, rarely
from legroom.cli.writing import Force, Html, check_writable, show, write_text
from legroom.errors import BadInput, LegroomError
from legroom.machine import probe
from legroom.machine.gpu_table import find_gpu
from legroom.model.machine import Gpu, Machine
from legroom.model.rehearsal import ProgramPrediction, Rehearsal
from legroom.rendering.attached_text import with_cure
from legroom.rendering.console import complain, say, status
from legroom.rendering.program_text import program_document, program_json
from legroom.rendering.run_file import run_file
from legroom.units import parse_size

if TYPE_CHECKING:
    from legroom.backends.program.launching import Output as Printed

DEFAULT_CARD = "RTX 4090"  # that a program finds where no card is named, without a limit
SEVERAL = re.compile(r"\s*(\d+)\s*[x×]\s*(\S.*)")


class Values(StrEnum):
    """What a program gets that reads a value from the card."""

    ASSUME = "assume"
    REAL = "real"


Command = Annotated[
    list[str] | None, typer.Argument(metavar="-- COMMAND...", help="Your command, as you would type it.")
]
GpuName = Annotated[
    str | None,
    typer.Option("--gpu", metavar="NAME", rich_help_panel=BUDGET, help='GPU to fit: "RTX 4070", "2x RTX 3090".'),
]
Seconds = Annotated[float, typer.Option(metavar="N", rich_help_panel=rarely(WHAT), help="Stop after N seconds.")]
Updates = Annotated[
    int | None, typer.Option(metavar="N", rich_help_panel=rarely(WHAT), help="Stop after N optimizer steps.")
]
ValuesOption = Annotated[
    Values,
    typer.Option(
        rich_help_panel=rarely(WHAT), help="Values read from the GPU: assumed and listed, or computed on the CPU."
    ),
]
Small = Annotated[
    str,
    typer.Option(metavar="SIZE", rich_help_panel=rarely(WHAT), help="GPU tensors up to this size keep their values."),
]
RealLimit = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        rich_help_panel=rarely(WHAT),
        help="Stop it at this much real host memory; default: half of what is free.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", rich_help_panel=rarely(OUTPUT), help="Write the equivalent run file (SB3)."
    ),
]
Again = Annotated[
    bool,
    typer.Option("--again", rich_help_panel=rarely(WHAT), help="Run a JAX program despite a cached result."),
]
KeepWrites = Annotated[
    bool,
    typer.Option("--keep-writes", rich_help_panel=rarely(WHAT), help="Keep the files that your program writes."),
]
Everything = Annotated[
    bool, typer.Option("--all", rich_help_panel=OUTPUT, help="List everything, and show the program's own output.")
]


def run(
    command: Command = None,
    gpu: GpuName = None,
    vram: options.Vram = None,
    ram: options.Ram = None,
    reserve: options.Reserve = "0%",
    cpu_only: options.CpuOnly = False,
    seconds: Seconds = 60.0,
    updates: Updates = None,
    values: ValuesOption = Values.ASSUME,
    small: Small = "1MiB",
    real_limit: RealLimit = None,
    again: Again = False,
    keep_writes: KeepWrites = False,
    everything: Everything = False,
    system: scheduler_options.For = None,
    output: Output = None,
    html: Html = None,
    force: Force = False,
    json: options.Json = False,
) -> int:
    """Whether your program fits, and what it needs, line by line. Your program is EXECUTED, unedited, for seconds, on
    a simulated GPU: its tensors there take no memory. Files that it writes are discarded; requests that it sends are
    real.

    It runs in its own interpreter and is stopped once nothing new happens. With --gpu or --vram, a request that does
    not fit raises torch.OutOfMemoryError at its line. Experiment trackers are set offline (WANDB_MODE); the program
    can see LEGROOM_REHEARSAL=1. Exit code 1: it does not fit, leaks, or that is unknown; 2: the program failed.

    \b
    legroom predict -- python train.py --batch-size 512
    legroom predict --gpu "RTX 4070" -- python train.py
    legroom predict --vram 8GiB --ram 16GiB -- python -m package.train

    \b
    legroom predict --seconds 30 --html memory.html -- uv run train.py
    legroom predict --for slurm -- python train.py
    """
    from legroom.backends.program.attach_api import by_default
    from legroom.backends.program.attached_search import cure_of, with_savings

    check_writable("--html", html, force=force)
    check_writable("-o", output, force=force)
    options_given = partial(
        rehearser, gpu=gpu, vram=vram, ram=ram, reserve=reserve, cpu_only=cpu_only, seconds=seconds, updates=updates,
        values=values, small=small, real_limit=real_limit, again=again, keep_writes=keep_writes,
    )  # fmt: skip
    printed: Printed = "stderr" if json else "as it is" if everything else "end if it fails"
    prediction = options_given(output=printed)(command or [])
    if command and (savings := cure_of(prediction.rehearsal)) is not None:
        with status(f"rehearsing again with {', '.join(set(savings) - set(by_default()))} attached", show=not json):
            tried = with_savings(command, savings, options_given(output="kept"), has_gpu=not cpu_only)
        prediction = with_cure(prediction, tried, command)
    job = scheduler_options.job_of(prediction.footprint, system, by_legroom=False) if system else None
    more = {"job": job} if system else {}
    told = program_document(prediction, everything=everything)
    page = program_document(prediction, everything=True) if html else None
    show(partial(program_json, prediction, **more), told, json=json, html=html, page=page)
    if job is not None and not json:
        say(f"\n{job['text']}")
    if output is not None:
        _write_run(output, prediction.rehearsal)
    return prediction.exit_code


class Rehearser(Protocol):
    """Rehearses a command, with the environment given or ours, and returns what it will need."""

    def __call__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> ProgramPrediction: ...


def rehearser(
    *,
    gpu: str | None,
    vram: str | None,
    ram: str | None,
    reserve: str,
    cpu_only: bool,
    seconds: float,
    updates: int | None,
    values: Values = Values.ASSUME,
    small: str = "1MiB",
    real_limit: str | None,
    again: bool = False,
    keep_writes: bool = False,
    output: Printed = "kept",
) -> Rehearser:
    """Return what rehearses a command as the options say.

    Args:
        output: where what the program prints goes; while it is kept for its end, a live line says how far it is.

    Raises:
        BadInput: options that contradict each other or cannot be read.
    """
    from legroom.backends.program.program_bill import predicted
    from legroom.backends.program.rehearsing import RehearsalPlan, rehearse
    from legroom.predicting.gpu import CONTEXT_BYTES, CONTEXT_ERROR

    _check_numbers(seconds, updates)
    if cpu_only and (gpu or vram):
        raise BadInput("--cpu-only contradicts --gpu and --vram", hint="give one of them")
    here = probe()
    machine, cards = with_cards(here, gpu)
    if cpu_only:
        machine = replace(machine, gpus=())
    budget = options.chosen_budget(machine, ram=ram, vram=vram, reserve=reserve)
    budget = replace(budget, host_only=ram is not None and budget.vram is None)
    beside = CONTEXT_BYTES + CONTEXT_ERROR  # the upper end, which the verdict counts too
    plan = RehearsalPlan(
        card=None if cpu_only else card_for(machine, budget.vram if vram else None),
        cards=cards,
        limit=None if budget.vram is None else max(0, budget.usable(budget.vram) - beside),
        values=values.value,
        small=0 if small == "0" else parse_size(small, what="--small"),
        ram=None if ram is None else budget.ram,
        real_limit=here.available // 2 if real_limit is None else parse_size(real_limit, what="--real-limit"),
        seconds=seconds,
        updates=updates,
        again=again,
        writes="kept" if keep_writes else "discarded",
    )

    def rehearsed(command: Sequence[str], environment: Mapping[str, str] | None = None) -> ProgramPrediction:
        with status(f"running {shlex.join(command)} on a simulated GPU", show=output == "end if it fails") as tell:
            seen = rehearse(command, plan, output=output, environment=environment, progress=tell, told=complain)
        return predicted(seen, budget)

    return rehearsed


def _write_run(output: Path, seen: Rehearsal) -> None:
    """Write the run file that would be the same as the one model that the program makes; else say why not."""
    from legroom.reading import read

    if len(seen.same_runs) != 1:
        complain(f"-o {output}: not written: the program makes {len(seen.same_runs)} models of known libraries")
        return
    run = seen.same_runs[0].run
    text = run_file(run, head=[f"the same as: {shlex.join(seen.command)}"])
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "run.yaml"
        copy.write_text(text, encoding="utf-8")
        try:
            read(str(copy))
        except LegroomError as error:
            complain(f"-o {output}: not written: its run file could not be read again: {error}")
            return
    write_text("-o", output, text)
    unnamed = " (its environment is not registered: predict, check and fit read it; train needs env.id)"
    complain(f"written: {output}{'' if run.env.id else unnamed}")


def _check_numbers(seconds: float, updates: int | None) -> None:
    if not 0 < seconds <= 86_400:
        raise BadInput(f"--seconds {seconds:g} is out of range", hint="more than 0, at most 86400")
    if updates is not None and updates < 1:
        raise BadInput(f"--updates {updates} is out of range", hint="at least 1")


def with_cards(machine: Machine, name: str | None) -> tuple[Machine, int]:
    """Return the machine as if it had the named cards, and how many; `2x RTX 3090` names two.

    Raises:
        BadInput: no such card is known, or none or too many are asked for.
    """
    several = SEVERAL.fullmatch(name or "")
    if several is None:
        return options.with_gpu(machine, name), 1
    count = int(several[1])
    if not 1 <= count <= 64:
        raise BadInput(f"--gpu {name!r}: {count} GPUs are out of range", hint="1 to 64")
    return options.with_gpu(machine, several[2]), count


def card_for(machine: Machine, vram: int | None) -> Gpu:
    """Return the card that the program finds: the machine's or the named one, with the memory that was given."""
    card = machine.gpus[0] if machine.gpus else find_gpu(DEFAULT_CARD).as_gpu()
    return card if vram is None else replace(card, total=vram, free=vram)
