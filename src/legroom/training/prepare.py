"""prepare(request) -> Training: everything between what was asked for and the first start of the child.

Predicts the run, gives it every saving that costs nothing, makes it fit where that was asked for, takes up what a
folder holds, and refuses what would only be refused after minutes. The command says what it is told through a
`Console`; nothing here writes to a terminal.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from legroom.backends.base import backend_of, no_cluster, require_packages
from legroom.cluster.reaching import refuse_unreachable
from legroom.errors import BadInput, LegroomError
from legroom.fitting.predictor import Predictor
from legroom.fitting.retreat import retreat
from legroom.fitting.search import fit
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.plan import PRICES, SAME_LEARNING, Plan, Price
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.predicting.predict import DeviceName, add_up, choose_device, gather
from legroom.training.choosing import Console, choose, shortage, unknown_words, words
from legroom.training.differing import Differences, changing_learning, differences, listed, refuse, with_changes
from legroom.training.failing import Failure
from legroom.training.run_folder import Predicted, RunFolder
from legroom.training.train import NextKnob, Training, turned_knobs
from legroom.units import format_size


def _without_env(run: Run) -> BadInput:
    """Return the refusal of a run whose spaces are known, and whose environment only the script makes."""
    if run.source is not None and Path(run.source).suffix == ".py":
        hint = f"run the program itself: legroom train -- python {shlex.quote(str(run.source))}"
        return BadInput("creates its environment itself", path=run.source, hint=hint)
    return BadInput(
        "the run names no environment", path=run.source,
        hint="set env.id to package.module:Class, or run your own program: legroom train -- python train.py",
    )  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What was asked for.

    Args:
        asked: the run, with what the options say laid over it.
        sizes: runs of the same workload to choose from, the preferred one first; `asked` alone where it was named.
        out: the folder to train in; None: one of its own.
        plain: as the library does it, without savings.
        fit: with knobs turned until it fits, those that change what is learned too.
        cluster: local, auto, or the address of a cluster; None: nothing was said.
        allow_changes: a resume may take over what changes learning.
    """

    asked: Run
    sizes: Sequence[Run] = ()
    out: Path | None = None
    resume: bool = False
    plain: bool = False
    fit: bool = False
    cluster: str | None = None
    pictures: bool = False
    checkpoint_every: int | None = None
    allow_changes: bool = False

    def folder(self, run: Run) -> RunFolder:
        return RunFolder(self.out) if self.out is not None else RunFolder.default(run)

    def checked(self) -> Request:
        """Return the request for the size that its folder was begun with; nothing is predicted or built for that.

        Raises:
            BadInput: it contradicts itself, or what it asks for cannot be trained.
            MissingExtra: a package that it needs is not installed.
        """
        if self.fit and self.plain:
            raise BadInput("--plain contradicts --fit", hint="give one of them")
        if self.resume and self.out is None:
            raise BadInput("--resume needs a folder", hint="--out DIR")
        kept = self.folder(self.asked).run() if self.resume else None
        asked = next((one for one in self.sizes if kept is not None and one.name == kept.name), self.asked)
        backend = backend_of(asked)
        require_packages(asked)
        if self.cluster is not None and not backend.spreads:
            raise no_cluster(f"{asked.name} uses backend {backend.name}", asked.source)
        if asked.env.id is None:
            raise _without_env(asked)
        backend.refuse_training(asked, fit=self.fit, resume=self.resume, pictures=self.pictures)
        if self.cluster not in (None, "local", "auto"):
            refuse_unreachable(self.cluster)
        self.folder(asked).check(resume=self.resume)
        if asked.eval is not None and asked.eval.on_training_envs:  # which only a script can do
            asked = asked.replace(eval=asked.eval.model_copy(update={"on_training_envs": False}))
        checked = replace(self, asked=asked)
        if kept is not None:
            checked.resumed_run(kept)
        return checked

    def resumed_run(self, kept: Run) -> tuple[Run, Differences]:
        """Return the run that resuming continues with, and what differs from the one the folder was begun with.

        Raises:
            BadInput: something differs that changes learning, and that was not allowed.
        """
        asked, folder = self.asked, self.folder(self.asked)
        found = differences(folder.asked() or kept, asked)
        changes = changing_learning(found)
        for fixed in ("backend", "algo"):  # nothing of what was learned would fit
            refuse({name: values for name, values in changes.items() if name[0] == fixed}, folder.path)
        if not self.allow_changes:
            refuse(changes, folder.path)
        if asked.seed is not None and asked.seed != kept.seed:
            hint = "drop --seed"
            raise BadInput(f"was started with seed {kept.seed}, not {asked.seed}", path=folder.path, hint=hint)
        run = with_changes(kept, changes) if changes else kept
        return run.replace(total_timesteps=asked.total_timesteps, checkpoint=asked.checkpoint or kept.checkpoint), found

    def training(self, asked: Run, run: Run, device: str, predicted: Predicted | None) -> Training:
        """Return the training of the run that came of what was asked for."""
        return Training(
            asked,
            run,
            self.folder(asked),
            device,
            predicted,
            resume=self.resume,
            checkpoint_every=self.checkpoint_every,
            pictures=self.pictures,
            cluster=self.cluster or "local",
        )


def prepare(request: Request, machine: Machine, budget: Budget, console: Console) -> Training | None:
    """Return the training, as it will be started; None when it does not fit and no change was agreed to, which is said.

    Raises:
        BadInput: it cannot be trained, or the folder holds another training.
    """
    training = _resumed(request, machine, console) if request.resume else None
    if training is None:
        begin = _on_cluster if backend_of(request.asked).spreads else _on_this_machine
        training = begin(request, machine, budget, console)
        if training is None:
            return None
        training = replace(training, versions=machine.versions)
    return replace(training, host_limit=budget.usable(budget.ram) if budget.ram is not None else None)


def _on_this_machine(request: Request, machine: Machine, budget: Budget, console: Console) -> Training | None:
    asked, fitted = request.asked, None
    if len(request.sizes) > 1:
        asked, fitted = choose(request.sizes, partial(_predictor, machine=machine), budget, console)
    fitted = fitted or _fitted(replace(request, asked=asked), machine, budget, console)
    if fitted is None:
        return None
    run, footprint = fitted
    return request.training(asked, _seeded(run), footprint.device, Predicted.of(footprint))


def knob_after_failure(training: Training, machine: Machine, allow: Sequence[Price]) -> NextKnob | None:
    """Return what finds the run with less memory where memory ran out; None where no knob knows its settings."""
    backend = backend_of(training.run)
    if backend.spreads:
        return None
    device: DeviceName = "cuda" if training.device == "cuda" else "cpu"

    def next_knob(run: Run, failure: Failure) -> tuple[Run, Predicted | None] | None:
        assert failure.place is not None
        known, mode = backend.quick_prediction(run)  # made only now, since most trainings never fail
        predictor = Predictor(known, machine, mode=mode, device=device, trust=True)
        try:
            found = retreat(predictor.run, failure.place, predictor, allow)
        except LegroomError:  # it is not known what any knob would save
            return None
        return None if found is None else (found[0], Predicted.of(found[1]))

    return next_knob


def _resumed(request: Request, machine: Machine, console: Console) -> Training | None:
    """Return the training that the folder holds, to go on with; None where there is none yet."""
    asked, folder = request.asked, request.folder(request.asked)
    kept = folder.run()
    if kept is None:
        return None
    run, found = request.resumed_run(kept)
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
    training = request.training(asked, run, device, predicted)
    return replace(training, begun=None if changes else folder.asked())


def _on_cluster(request: Request, machine: Machine, budget: Budget, console: Console) -> Training | None:
    """Return the training of a run whose processes may be on several machines; without savings, which are per process.

    On a cluster every process asks for the memory that it is predicted to need, so that it is placed where that is; the
    cluster's own nodes are not looked at from here.
    """
    asked, device = request.asked, choose_device(request.asked, machine)
    with console.busy(f"predicting {asked.name}"):
        seen, evidence = gather(asked, machine, device=device, trust=True)
        footprint = add_up(seen, evidence)
    run = _seeded(asked)
    if request.cluster not in (None, "local"):
        return request.training(asked, backend_of(run).with_memory_requests(run, seen, evidence), device, None)
    if fits(footprint, budget) is False:
        ways = "fewer environments, or more machines: --cluster ADDRESS"
        console.tell(f"{shortage(asked, footprint, budget)}; {ways}")
        return None
    return request.training(asked, run, device, Predicted.of(footprint))


def _seeded(run: Run) -> Run:
    return run if run.seed is not None else run.replace(seed=secrets.randbelow(2**31))


def _predictor(run: Run, machine: Machine) -> Predictor:
    return Predictor(run, machine, mode="auto", device=choose_device(run, machine), trust=True)


def _quick_predictor(run: Run, machine: Machine) -> Predictor:
    """Return predictions that take seconds: a compiler, which takes minutes, is asked only to make a run fit."""
    known, mode = backend_of(run).quick_prediction(run)
    return Predictor(known, machine, mode=mode, device=choose_device(known, machine), trust=True)


def _fitted(request: Request, machine: Machine, budget: Budget, console: Console) -> tuple[Run, Footprint] | None:
    """Return the run as it will be trained and its footprint; None when it does not fit and no change was agreed to."""
    asked, plain = request.asked, request.plain
    if asked.device == "cuda" and not machine.gpus:
        raise BadInput("--device cuda: no GPU found on this machine", path=asked.source, hint="--device cpu")
    with console.busy(f"predicting {asked.name}"):
        predictor = (_predictor if request.fit else _quick_predictor)(asked, machine)
        chosen = predictor.run if plain else predictor.freely()
        footprint = predictor.footprint(chosen)
    for finding in footprint.findings:
        if finding.name == "no-effect":
            console.tell(f"{finding.message} ({finding.hint})" if finding.hint else finding.message)
    if fits(footprint, budget) is not False:
        if not_known := unknown_words(asked, footprint):
            console.tell(not_known)
        return chosen, footprint
    head = shortage(asked, footprint, budget)
    if not request.fit and fits(footprint, replace(budget, vram=None)) is not False:
        # Nothing is lost when a card is full: the update is redone. A host that is full kills.
        console.tell(f"{head}; an update that does not fit is redone in smaller pieces")
        return chosen, footprint
    with console.busy(f"{asked.name} does not fit; looking for a plan that fits"):
        plan = fit(chosen, budget, predictor, allow=PRICES if request.fit else SAME_LEARNING)
    agreed = _say_fitted(head, chosen, plan, console) if request.fit else _offer(head, chosen, plan, console)
    return (plan.run, plan.after) if agreed else None


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
    if console.agrees("Train so?"):
        return True
    console.tell(f"{console.command} --fit")
    return False
