"""`legroom diff OLD NEW`: what a change of a run or a script does to its memory, and which value does it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from legroom.checking.subject_reader import read_subject
from legroom.cli import options
from legroom.comparing.differences import Difference, compare
from legroom.comparing.named_values import changed_values
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.machine import probe
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.reading.project_file import read_project
from legroom.reading.user_files import is_file
from legroom.rendering.console import say
from legroom.rendering.difference_text import difference_json, difference_text


def run(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The version before: a run, or a file.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The version after.")],
    ram: options.Ram = None,
    vram: options.Vram = None,
    gpu: options.GpuName = None,
    reserve: options.Reserve = "0%",
    cpu_only: options.CpuOnly = False,
    json: options.Json = False,
) -> int:
    """How a change affects memory, and which value causes it. Nothing is executed.

    A budget is what --ram, --vram and --gpu give, or [tool.legroom] in the pyproject.toml above NEW. Exit code 1: a run
    of NEW is over it.

    \b
    legroom diff old/train.py train.py
    legroom diff mine:small mine:full --ram 16GiB
    git show HEAD~1:run.yaml > old.yaml; legroom diff old.yaml run.yaml
    """
    project = read_project(new)
    ram, vram, gpu = ram or project.ram, vram or project.vram, gpu or project.gpu
    machine = options.with_gpu(probe(), gpu)
    budget = options.chosen_budget(machine, ram=ram, vram=vram, reserve=reserve)
    given = Budget(budget.ram if ram else None, budget.vram if vram or gpu else None, budget.reserve, "given", "given")
    device: Any = options.chosen_device(None, cpu_only, wants_gpu=bool(vram or gpu))
    before, after = (_runs(target, machine, given) for target in (old, new))
    if before and after:
        found = [each for each in compare(before, after, machine, given, device) if _is_change(each)]
    else:
        found = _by_names(old, new)
    say(difference_json(found, given) if json else difference_text(found, given))
    return EXIT_FINDINGS if any(each.fits is False for each in found) else EXIT_GOOD


def _runs(target: str, machine: Machine, budget: Budget) -> list[Run]:
    """Return the runs of a target; none where it is a program in which none can be read."""
    try:
        subject = read_subject(target, machine=machine, budget=budget)
    except BadInput as error:
        if is_file(target) and not error.message.startswith("not valid"):
            return []
        raise
    return [one.run for one in (*subject.runs, *subject.guessed)]


def _is_change(each: Difference) -> bool:
    return bool(each.causes) or each.before is None or each.after is None or each.fits is False


def _by_names(old: str, new: str) -> list[Difference]:
    """Return the values of programs that changed, by their names.

    Raises:
        BadInput: one of them is no file that can be read.
    """
    texts = []
    for target in (old, new):
        try:
            texts.append(Path(target).read_text(encoding="utf-8", errors="replace"))
        except OSError as error:
            raise BadInput(error.strerror or str(error), path=target) from None
    causes = changed_values(*texts, python=new.endswith(".py"))
    return [Difference(new, None, None, tuple(causes))] if causes else []
