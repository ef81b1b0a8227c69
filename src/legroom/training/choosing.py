"""Says which of a workload's runs `legroom train WORKLOAD --fit` trains, and puts shortages into words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from legroom.fitting.predictor import Predictor
from legroom.fitting.tiers import until_one_fits
from legroom.model.footprint import Footprint
from legroom.model.run import Run
from legroom.model.verdict import Budget, refused_array
from legroom.training.train import turned_knobs
from legroom.units import format_size


class Console(Protocol):
    """Where a command that prepares a training talks to its user.

    Attributes:
        command: as it was given.
    """

    command: str

    def tell(self, line: str) -> None:
        """Write a line for people, beside the result."""

    def busy(self, text: str) -> AbstractContextManager[Any]:
        """Show what is being worked on."""

    def agrees(self, question: str) -> bool:
        """Ask, where there is somebody to answer."""


def choose(
    runs: Sequence[Run], look: Callable[[Run], Predictor], budget: Budget, console: Console
) -> tuple[Run, tuple[Run, Footprint] | None]:
    """Return the run to train as it is written, and as it fits with its footprint; say which and why.

    Where none fits without changing what it learns, that is the first one, and None.

    Args:
        look: predicts a run; not asked for those after the one that is chosen.
    """

    def seen(run: Run) -> Predictor:
        with console.busy(f"predicting {run.name}"):
            return look(run)

    for asked, plan, taken in until_one_fits(runs, seen, budget):
        if not taken:
            console.tell(f"{shortage(asked, plan.before, budget)}; it cannot fit without changing the training")
            continue
        if plan.turns:
            knobs, head = words(turned_knobs(plan.asked, plan.run)), shortage(asked, plan.before, budget)
            console.tell(f"{head}; with {knobs}, it needs {needs(plan.after)}, same results: training that")
        else:
            said = unknown_words(asked, plan.after) or f"{asked.name} fits: {needs(plan.after)}"
            console.tell(f"{said}; training it as it is")
        return asked, (plan.run, plan.after)
    return runs[0], None


def shortage(asked: Run, footprint: Footprint, budget: Budget) -> str:
    """Return what a run needs and what there is, as text; or why its library refuses it."""
    if footprint.refused:
        return f"{asked.name} is invalid: {footprint.refused}"
    if (refused := refused_array(footprint, budget)) and footprint.host.high <= budget.usable(budget.ram or 0):
        return f"{asked.name}: {refused}"
    place, peak, have = "host", footprint.host, budget.ram or 0
    if footprint.gpu is not None and peak.high <= budget.usable(have):
        place, peak, have = "GPU", footprint.gpu, budget.vram or 0
    return f"{asked.name} needs {format_size(peak.high)} of {place} memory, {format_size(have)} available"


def unknown_words(asked: Run, footprint: Footprint) -> str:
    """Return why it is unknown whether a run fits, as text; empty where that is known."""
    return f"{asked.name}: unknown whether it fits: {'; '.join(footprint.unknown)}" if footprint.unknown else ""


def needs(footprint: Footprint) -> str:
    """Return the most that a run needs, as text."""
    gpu = f" and {format_size(footprint.gpu.high)} of GPU memory" if footprint.gpu is not None else ""
    return f"{format_size(footprint.host.high)} of host memory{gpu}"


def words(knobs: dict[str, Any]) -> str:
    """Return knobs and their settings as text."""
    return ", ".join(f"{name}={value}" for name, value in knobs.items() if value is not None)
