"""Which of a workload's runs `legroom train WORKLOAD --fit` trains, and how shortages are put into words.

A workload's runs are one idea in several sizes. The one to train is the first of them, the default at the head, that
fits as it is or by knobs that leave what is learned alone: smaller pieces of a minibatch instead of a smaller network.
Only where no knob of that kind is left, the next smaller run is better than the larger one with a changed learning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit
from legroom.model.footprint import Footprint
from legroom.model.plan import PRICES
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.named_runs import find_workload
from legroom.training.train import turned_knobs
from legroom.units import format_size

SAME_LEARNING = PRICES[:2]


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


def in_order(workload: str, runs: Sequence[Run]) -> list[Run]:
    """Return a workload's runs with its default first, without those that are another training than it."""
    known = find_workload(workload)
    default = f"{workload}:{known.default}" if known is not None else ""
    apart = {f"{workload}:{run}" for run in known.apart} if known is not None else set()
    return sorted((run for run in runs if run.name not in apart), key=lambda run: run.name != default)


def choose(
    runs: Sequence[Run], look: Callable[[Run], Predictor], budget: Budget, console: Console
) -> tuple[Run, tuple[Run, Footprint] | None]:
    """Return the run to train as it is written, and as it fits with its footprint; say which and why.

    Where none fits without changing what it learns, that is the first one, and None.

    Args:
        look: predicts a run; not asked for those after the one that is chosen.
    """
    for asked in runs:
        with console.busy(f"predicting {asked.name}"):
            predictor = look(asked)
            chosen = predictor.freely()
            footprint = predictor.footprint(chosen)
        if fits(footprint, budget) is not False:
            said = f"{asked.name} fits: {needs(footprint)}"
            console.tell(f"{unknown_words(asked, footprint) or said}; training it as it is")
            return asked, (chosen, footprint)
        with console.busy(f"{asked.name} does not fit; looking for a plan that fits"):
            plan = fit(chosen, budget, predictor, allow=SAME_LEARNING)
        head = shortage(asked, footprint, budget)
        if plan.fits:
            knobs = words(turned_knobs(chosen, plan.run))
            console.tell(f"{head}; with {knobs}, it needs {needs(plan.after)}, same results: training that")
            return asked, (plan.run, plan.after)
        console.tell(f"{head}; it cannot fit without changing the training")
    return runs[0], None


def shortage(asked: Run, footprint: Footprint, budget: Budget) -> str:
    """Return what a run needs and what there is, as text."""
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
