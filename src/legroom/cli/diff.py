"""`legroom diff OLD NEW`: what a change of a run or a script does to its memory, and which value does it."""

from __future__ import annotations

from collections.abc import Sequence
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
    found, read, whole = _by_runs(old, new, machine, given, device)
    if not whole:
        found += _by_names(old, new, found)
    say(difference_json(found, given, read=read) if json else difference_text(found, given, read=read))
    return EXIT_FINDINGS if any(each.fits is False for each in found) else EXIT_GOOD


def _by_runs(old: str, new: str, machine: Machine, budget: Budget, device: Any) -> tuple[list[Difference], bool, bool]:
    """Return the runs of which memory changed, whether both versions have runs, and whether they have nothing else."""
    (before, kind), (after, _) = (_runs(target, machine, budget) for target in (old, new))
    if not before or not after:
        return [], False, False
    found = compare(before, after, machine, budget, device)
    return [each for each in found if _is_change(each)], True, kind == "run"


def _runs(target: str, machine: Machine, budget: Budget) -> tuple[list[Run], str]:
    """Return the runs of a target, none where it is a file in which none can be read, and the kind of the file."""
    try:
        subject = read_subject(target, machine=machine, budget=budget)
    except BadInput:
        if is_file(target):
            return [], ""
        raise
    return [one.run for one in (*subject.runs, *subject.guessed)], subject.kind


def _is_change(each: Difference) -> bool:
    only_one = (each.before is None) != (each.after is None)
    return bool(each.causes or each.minor) or only_one or each.fits is False


def _by_names(old: str, new: str, known: Sequence[Difference]) -> list[Difference]:
    """Return the values that changed, by their names, and that no run says.

    Raises:
        BadInput: one of them is no file that can be read.
    """
    texts = []
    if not (is_file(old) and is_file(new)):  # a named run, or an entry of a file
        return []
    for target in (old, new):
        try:
            texts.append(Path(target).read_text(encoding="utf-8", errors="replace"))
        except OSError as error:
            raise BadInput(error.strerror or str(error), path=target) from None
    said = [cause for each in known for cause in (*each.causes, *each.minor)]
    told = {_last(cause.key) for cause in said}
    pairs = [(cause.before, cause.after) for cause in said]
    if any("\0" in text for text in texts):  # an archive
        return []
    values = changed_values(texts[0], texts[1], paths=(old, new))
    left = [each for each in values if _last(each.key) not in told and (each.before, each.after) not in pairs]
    return [Difference(new, None, None, tuple(left))] if left else []


def _last(key: str) -> str:
    return key.rpartition(".")[2].replace("-", "_").lower()
