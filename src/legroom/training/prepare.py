"""prepare(training) -> Training: everything between what was asked for and the first start of the child.

Predicts the run, gives it every saving that costs nothing, makes it fit where that was asked for, takes up what a
folder holds, and refuses what would only be refused after minutes. The command says what it is told through a
`Console`; nothing here writes to a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from legroom.backends.base import backend_of
from legroom.errors import BadInput, LegroomError
from legroom.fitting.predictor import Predictor
from legroom.fitting.search import fit, retreat
from legroom.fitting.tiers import until_one_fits
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.plan import PRICES, SAME_LEARNING, Plan
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits, refused_array
from legroom.predicting.predict import DeviceName, add_up, choose_device, gather
from legroom.training.request import Training, changing_learning, listed
from legroom.training.run_folder import RUN, Predicted
from legroom.training.train import NextKnob, TrainingFailure, turned_knobs
from legroom.units import format_size


class Console(Protocol):
    """Where a command that prepares a training talks to its user."""

    command: str  # as it was given

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


def prepare(asked: Training, machine: Machine, budget: Budget, console: Console) -> Training | None:
    """Return the training, as it will be started; None when it does not fit and no change was agreed to, which is said.

    Raises:
        BadInput: it cannot be trained, or the folder holds another training.
    """
    training = _resumed(asked, machine, console) if asked.resume else None
    if training is None:
        begin = _on_cluster if backend_of(asked.run).spreads else _on_this_machine
        training = begin(asked, machine, budget, console)
        if training is None:
            return None
        training = replace(training, versions=machine.versions)
    return replace(training, host_limit=budget.usable(budget.ram) if budget.ram is not None else None)


def _on_this_machine(training: Training, machine: Machine, budget: Budget, console: Console) -> Training | None:
    asked, fitted = training.asked, None
    if len(training.sizes) > 1:
        asked, fitted = choose(training.sizes, partial(_predictor, machine=machine), budget, console)
    fitted = fitted or _fitted(replace(training, asked=asked), machine, budget, console)
    if fitted is None:
        return None
    run, footprint = fitted
    return training.prepared(asked, run, footprint.device, Predicted.of(footprint))


def knob_after_failure(training: Training, machine: Machine) -> NextKnob | None:
    """Return what finds the run with less memory where memory ran out; None where no knob knows its settings."""
    if backend_of(training.run).spreads:
        return None
    allow = PRICES if training.allow_changes else SAME_LEARNING

    def next_knob(run: Run, failure: TrainingFailure) -> tuple[Run, Predicted | None] | None:
        assert failure.place is not None
        predictor = _quick_predictor(run, machine, "cuda" if training.device == "cuda" else "cpu")
        try:
            found = retreat(predictor.run, failure.place, predictor, allow)
        except LegroomError:  # it is not known what any knob would save
            return None
        return None if found is None else (found[0], Predicted.of(found[1]))

    return next_knob


def _resumed(training: Training, machine: Machine, console: Console) -> Training | None:
    """Return the training that the folder holds, to go on with; None where there is none yet."""
    asked, folder = training.asked, training.folder
    kept = folder.run()
    if kept is None:
        return None
    run, found = training.resumed_run(kept)
    changes = changing_learning(found)
    if changes:
        console.tell(f"changes results from here on: {listed(changes)}")
    ignored = {name: values for name, values in found.items() if name not in changes}
    if ignored:
        console.tell(f"ignored, because the run was started with other values: {listed(ignored)}")
    predicted = None if changes else folder.predicted()
    if predicted is None and not backend_of(run).spreads:
        with console.busy(f"predicting {run.name}"):
            predictor = _quick_predictor(run, machine)
            predicted = Predicted.of(predictor.footprint(predictor.run))
    device = "cuda" if predicted is not None and predicted.gpu is not None else "cpu"
    return replace(training.prepared(asked, run, device, predicted), begun=None if changes else folder.asked())


def _on_cluster(training: Training, machine: Machine, budget: Budget, console: Console) -> Training | None:
    """Return the training of a run whose processes may be on several machines; without savings, which are per process.

    On a cluster every process asks for the memory that it is predicted to need, so that it is placed where that is; the
    cluster's own nodes are not looked at from here.
    """
    asked, device = training.asked, choose_device(training.asked, machine)
    with console.busy(f"predicting {asked.name}"):
        seen, evidence = gather(asked, machine, device=device, trust=True)
        footprint = add_up(seen, evidence)
    if training.cluster not in (None, "local"):
        return training.prepared(
            asked, backend_of(asked).trainer.with_memory_requests(asked, seen, evidence), device, None
        )
    if fits(footprint, budget) is False:
        ways = "fewer environments, or more machines: --cluster ADDRESS"
        console.tell(f"{shortage(asked, footprint, budget)}; {ways}")
        return None
    return training.prepared(asked, asked, device, Predicted.of(footprint))


def _predictor(run: Run, machine: Machine) -> Predictor:
    return Predictor(run, machine, mode="auto", device=choose_device(run, machine), trust=True)


def _quick_predictor(run: Run, machine: Machine, device: DeviceName | None = None) -> Predictor:
    """Return predictions that take seconds: a compiler, which takes minutes, is asked only to make a run fit."""
    known, mode = backend_of(run).trainer.quick_prediction(run)
    return Predictor(known, machine, mode=mode, device=device or choose_device(known, machine), trust=True)


def _fitted(training: Training, machine: Machine, budget: Budget, console: Console) -> tuple[Run, Footprint] | None:
    """Return the run as it will be trained and its footprint; None when it does not fit and no change was agreed to."""
    asked, plain = training.asked, training.plain
    if asked.device == "cuda" and not machine.gpus:
        raise BadInput("--device cuda: no GPU found on this machine", path=asked.source, hint="--device cpu")
    with console.busy(f"predicting {asked.name}"):
        predictor = (_predictor if training.fit else _quick_predictor)(asked, machine)
        chosen = predictor.run if plain else predictor.freely()
        footprint = predictor.footprint(chosen)
    for finding in footprint.findings:
        if finding.name == "no-effect":
            console.tell(f"{finding.message} ({finding.hint})" if finding.hint else finding.message)
    if fits(footprint, budget) is not False:
        if not_known := unknown_words(asked, footprint):
            console.tell(not_known)
        return _trained(predictor, chosen)
    head = shortage(asked, footprint, budget)
    if not training.fit and fits(footprint, replace(budget, vram=None)) is not False:
        # Nothing is lost when a card is full: the update is redone. A host that is full kills.
        console.tell(f"{head}; an update that does not fit is redone in smaller pieces")
        return _trained(predictor, chosen)
    with console.busy(f"{asked.name} does not fit; looking for a plan that fits"):
        plan = fit(chosen, budget, predictor, allow=PRICES if training.fit else SAME_LEARNING)
    agreed = _say_fitted(head, chosen, plan, console) if training.fit else _offer(head, chosen, plan, console)
    return _trained(predictor, plan.run) if agreed else None


def _trained(predictor: Predictor, run: Run) -> tuple[Run, Footprint]:
    """Return the run and what it needs in legroom's own process, whatever script it was read from."""
    return run, add_up(run.model_copy(update={"source": RUN}), predictor.evidence(run))


def _say_fitted(head: str, chosen: Run, plan: Plan, console: Console) -> bool:
    """Say what was done to make the run fit; return whether it does."""
    if not plan.fits:
        least = " and ".join(f"{format_size(n)} on the {place}" for place, n in plan.needed.items())
        console.tell(f"{head}; with every saving applied it still needs {least}")
        return False
    knobs = words(turned_knobs(chosen, plan.run))
    console.tell(f"{head}; fitted with {knobs}: {format_size(plan.after.host.high)}")
    for turn in plan.turns:
        if turn.price == "changes-learning":
            console.tell(f"changes results: {turn.name} {turn.changes[0].before} -> {turn.changes[0].after}")
    return True


def _offer(head: str, chosen: Run, plan: Plan, console: Console) -> bool:
    """Ask whether to train what fits and learns the same; return whether that was agreed to."""
    if not plan.fits:
        console.tell(f"{head}; it cannot fit without changing the training")
        console.tell(f"{console.command} --fit trains a run that fits, and says what changes")
        return False
    knobs = words(turned_knobs(chosen, plan.run))
    console.tell(f"{head}; with {knobs} it needs {format_size(plan.after.host.high)}, same results")
    if console.agrees("Train with these settings?"):
        return True
    console.tell(f"{console.command} --fit")
    return False
