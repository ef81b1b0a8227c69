"""`legroom predict -- COMMAND...`: the user's program as it is, run on a card that is not there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

from legroom.cli.budgets import chosen_budget, with_gpu
from legroom.cli.commands import PredictProgramCommand, RehearsalOptions
from legroom.cli.output import check_writable, job_of, show, write_text
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


def run(asked: PredictProgramCommand) -> int:
    from legroom.backends.program.attach_api import by_default
    from legroom.backends.program.attached_search import cure_of, with_savings

    check_writable("--html", asked.html, force=asked.force)
    check_writable("-o", asked.output, force=asked.force)
    printed: Printed = "stderr" if asked.json else "as it is" if asked.everything else "end if it fails"
    prediction = rehearser(asked, output=printed)(asked.command)
    if asked.command and (savings := cure_of(prediction.rehearsal)) is not None:
        with status(
            f"rehearsing again with {', '.join(set(savings) - set(by_default()))} attached", show=not asked.json
        ):
            tried = with_savings(asked.command, savings, rehearser(asked), has_gpu=not asked.cpu_only)
        prediction = with_cure(prediction, tried, asked.command)
    job = job_of(prediction.footprint, asked.system, by_legroom=False) if asked.system else None
    more = {"job": job} if asked.system else {}
    told = program_document(prediction, everything=asked.everything)
    page = program_document(prediction, everything=True) if asked.html else None
    show(asked, partial(program_json, prediction, **more), told, page)
    if job is not None and not asked.json:
        say(f"\n{job['text']}")
    if asked.output is not None:
        _write_run(asked.output, prediction.rehearsal)
    return prediction.exit_code


class Rehearser(Protocol):
    """Rehearses a command, with the environment given or ours, and returns what it will need."""

    def __call__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> ProgramPrediction: ...


def rehearser(asked: RehearsalOptions, output: Printed = "kept") -> Rehearser:
    """Return what rehearses a command as the options say.

    Args:
        output: where what the program prints goes; while it is kept for its end, a live line says how far it is.

    Raises:
        BadInput: options that contradict each other or cannot be read.
    """
    from legroom.backends.program.program_bill import predicted
    from legroom.backends.program.rehearsing import RehearsalPlan, rehearse
    from legroom.predicting.gpu import CONTEXT_BYTES, CONTEXT_ERROR

    if not 0 < asked.seconds <= 86_400:
        raise BadInput(f"--seconds {asked.seconds:g} is out of range", hint="more than 0, at most 86400")
    if asked.updates is not None and asked.updates < 1:
        raise BadInput(f"--updates {asked.updates} is out of range", hint="at least 1")
    if asked.cpu_only and (asked.gpu or asked.vram):
        raise BadInput("--cpu-only contradicts --gpu and --vram", hint="give one of them")
    here = probe()
    machine, cards = with_cards(here, asked.gpu)
    if asked.cpu_only:
        machine = replace(machine, gpus=())
    budget = chosen_budget(machine, asked)
    budget = replace(budget, host_only=asked.ram is not None and budget.vram is None)
    beside = CONTEXT_BYTES + CONTEXT_ERROR  # the upper end, which the verdict counts too
    real = here.available // 2 if asked.real_limit is None else parse_size(asked.real_limit, what="--real-limit")
    plan = RehearsalPlan(
        card=None if asked.cpu_only else card_for(machine, budget.vram if asked.vram else None),
        cards=cards,
        limit=None if budget.vram is None else max(0, budget.usable(budget.vram) - beside),
        values=asked.values,
        small=0 if asked.small == "0" else parse_size(asked.small, what="--small"),
        ram=None if asked.ram is None else budget.ram,
        real_limit=real,
        seconds=asked.seconds,
        updates=asked.updates,
        writes="kept" if asked.keep_writes else "discarded",
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


def with_cards(machine: Machine, name: str | None) -> tuple[Machine, int]:
    """Return the machine as if it had the named cards, and how many; `2x RTX 3090` names two.

    Raises:
        BadInput: no such card is known, or none or too many are asked for.
    """
    several = SEVERAL.fullmatch(name or "")
    if several is None:
        return with_gpu(machine, name), 1
    count = int(several[1])
    if not 1 <= count <= 64:
        raise BadInput(f"--gpu {name!r}: {count} GPUs are out of range", hint="1 to 64")
    return with_gpu(machine, several[2]), count


def card_for(machine: Machine, vram: int | None) -> Gpu:
    """Return the card that the program finds: the machine's or the named one, with the memory that was given."""
    card = machine.gpus[0] if machine.gpus else find_gpu(DEFAULT_CARD).as_gpu()
    return card if vram is None else replace(card, total=vram, free=vram)
