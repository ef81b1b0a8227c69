"""prepare(training) -> Training: everything between what was asked for and the first start of the child.

Predicts the run, gives it every saving that costs nothing, makes it fit where that was asked for, takes up what a
folder holds, and refuses what would only be refused after minutes. The command says what it is told through a
`Console`; nothing here writes to a terminal.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from legroom.backends.base import backend_of
from legroom.errors import BadInput, LegroomError
from legroom.fitting.predictor import Predictor
from legroom.fitting.retreat import retreat
from legroom.fitting.search import fit
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.plan import PRICES, SAME_LEARNING, Plan
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.predicting.predict import DeviceName, add_up, choose_device, gather
from legroom.training.choosing import Console, choose, shortage, unknown_words, words
from legroom.training.differing import changing_learning, listed
from legroom.training.failing import Failure
from legroom.training.request import Training
from legroom.training.run_folder import RUN, Predicted
from legroom.training.train import NextKnob, turned_knobs
from legroom.units import format_size


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

    def next_knob(run: Run, failure: Failure) -> tuple[Run, Predicted | None] | None:
        assert failure.place is not None
        # made only now, since most trainings never fail
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
        return training.prepared(asked, backend_of(asked).with_memory_requests(asked, seen, evidence), device, None)
    if fits(footprint, budget) is False:
        ways = "fewer environments, or more machines: --cluster ADDRESS"
        console.tell(f"{shortage(asked, footprint, budget)}; {ways}")
        return None
    return training.prepared(asked, asked, device, Predicted.of(footprint))


def _predictor(run: Run, machine: Machine) -> Predictor:
    return Predictor(run, machine, mode="auto", device=choose_device(run, machine), trust=True)


def _quick_predictor(run: Run, machine: Machine, device: DeviceName | None = None) -> Predictor:
    """Return predictions that take seconds: a compiler, which takes minutes, is asked only to make a run fit."""
    known, mode = backend_of(run).quick_prediction(run)
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
