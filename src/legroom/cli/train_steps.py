"""What `legroom train` does, step by step: read, prepare, train, report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

import typer

from legroom.cli import options
from legroom.cli.overrides import repeated, split_settings, with_backend
from legroom.cli.told_notes import told_notes
from legroom.cli.train_report import report, tell
from legroom.cli.writing import check_writable
from legroom.environments.script_classes import named_by_file
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput, LegroomError
from legroom.fitting.predictor import is_hopeless, predictor_at_once
from legroom.fitting.tiers import in_order
from legroom.machine import probe
from legroom.machine.child_process import run_file
from legroom.machine.gpus import with_gpus_by_torch
from legroom.model.machine import Machine
from legroom.model.plan import PRICES
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.named_runs import find_workload
from legroom.predicting.predict import choose_device
from legroom.reading import read, read_all
from legroom.rendering.console import say, status
from legroom.rendering.training_display import display_for
from legroom.training.choosing import words
from legroom.training.prepare import Request, knob_after_failure, prepare
from legroom.training.run_folder import RunFolder
from legroom.training.train import Ended, NextKnob, Training, is_finished, train, turned_knobs
from legroom.units import format_size, parse_size


@dataclass(frozen=True)
class Asked:
    """The options of the command, as they were given."""

    target: str
    timesteps: int | None
    device: str
    seed: int | None
    out: Path | None
    pictures: bool
    resume: bool
    plain: bool
    checkpoint_every: int | None
    fit: bool
    retries: int
    allow_changes: bool
    backend: str | None
    cluster: str | None
    ram: str | None
    vram: str | None
    reserve: str
    like: str | None
    settings: list[str]
    html: Path | None
    force: bool
    json: bool

    def again(self) -> list[str]:
        """Return the options that give the same run and budget to another command."""
        budget = {"ram": self.ram, "vram": self.vram, "reserve": None if self.reserve == "0%" else self.reserve}
        return repeated(self.settings, like=self.like, backend=self.backend, **budget)

    def laid_over(self, run: Run) -> Run:
        """Return the run with what the options say.

        Raises:
            BadInput: an option cannot be, or nothing says how long it trains.
        """
        if self.timesteps is not None:
            run = run.replace(total_timesteps=self.timesteps)
        if run.total_timesteps is None:
            raise BadInput(f"{run.name} has no total_timesteps", path=run.source, hint="--timesteps N")
        if self.device not in ("", "cpu", "cuda", "auto"):
            raise BadInput(f"--device {self.device!r} is not known", hint="cpu, cuda or auto")
        if self.device:
            run = run.replace(device=self.device)
        return run if self.seed is None else run.replace(seed=self.seed)


def carry_out(given: Asked) -> int:
    """Train, and return the exit code."""
    check_writable("--html", given.html, force=given.force)
    overrides = with_backend(split_settings(given.settings), given.backend, given.cluster)
    with told_notes() as notes:
        asked = given.laid_over(read(given.target, overrides=overrides, like=given.like))
    asked = named_by_file(asked, run_file(asked))  # training trusts what it trains
    others = _sizes(given.target, overrides, given.like) if given.fit else ()
    request = Request(
        asked, [given.laid_over(one) for one in others], given.out, resume=given.resume, plain=given.plain,
        fit=given.fit, cluster=given.cluster, pictures=given.pictures, checkpoint_every=given.checkpoint_every,
        allow_changes=given.allow_changes,
    ).checked()  # fmt: skip
    folder = request.folder(request.asked)
    if given.resume and is_finished(folder, request.asked.total_timesteps):
        return _already(folder, given.json)
    machine, budget = _machine_and_budget(asked, given.ram, given.vram, given.reserve)
    if given.vram is not None and choose_device(asked, machine) == "cpu":
        why = "the run's device is cpu" if machine.gpus else "no GPU found on this machine"
        fitting = shlex.join(["legroom", "fit", given.target, *given.again()])
        tell(f"--vram {given.vram} is not used: {why}; what fits that GPU: {fitting}")
    _check_possible(asked, machine, budget, given.ram)
    training = prepare(request, machine, budget, Terminal(quiet=given.json))
    if training is None:
        return EXIT_FINDINGS
    next_knob = knob_after_failure(training, machine, PRICES if given.allow_changes else PRICES[:2])
    ended = _train(training, machine, next_knob, given)
    report(ended, training, machine, given.target, json=given.json, html=given.html, notes=notes)
    return ended.exit_code


class Terminal:
    """Standard error, and the user at the terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.command = shlex.join(["legroom", *sys.argv[1:]])

    def tell(self, line: str) -> None:
        tell(line)

    def busy(self, text: str) -> AbstractContextManager[Any]:
        return status(text, show=not self._quiet)

    def agrees(self, question: str) -> bool:
        answers = sys.stdin.isatty() and sys.stderr.isatty() and not self._quiet
        return answers and typer.confirm(question, default=True, err=True)


def _sizes(target: str, overrides: Sequence[tuple[str, str]], like: str | None) -> Sequence[Run]:
    """Return the runs of a workload to choose from, none where one of them or a file was named."""
    if find_workload(target) is None or Path(target).exists():
        return ()
    return in_order(target, read_all(target, overrides=overrides, like=like))


def _machine_and_budget(run: Run, ram: str | None, vram: str | None, reserve: str) -> tuple[Machine, Budget]:
    machine = probe()
    if run.device != "cpu":
        machine = with_gpus_by_torch(machine)
    return machine, options.chosen_budget(machine, ram=ram, vram=vram, reserve=reserve)


def _check_possible(run: Run, machine: Machine, budget: Budget, ram: str | None) -> None:
    """Refuse at once what no saving makes fit.

    Raises:
        LegroomError: the budget is below what the libraries take.
    """
    quick = predictor_at_once(run, machine, trust=True)
    if ram is not None and quick is not None and is_hopeless(quick.footprint(quick.run), budget):
        need = format_size(quick.footprint(quick.run).host.nbytes)
        given = format_size(parse_size(ram, what="--ram"))
        raise LegroomError(f"does not fit: {run.name} needs about {need} of RAM, --ram gives {given}")


def _train(training: Training, machine: Machine, next_knob: NextKnob | None, given: Asked) -> Ended:
    run, predicted, folder = training.run, training.predicted, training.folder
    limit = parse_size(given.ram, what="--ram") if given.ram is not None else None
    gpu_limit = machine.gpus[0].free if machine.gpus else None
    if given.vram is not None and machine.gpus:
        gpu_limit = parse_size(given.vram, what="--vram")
    display = display_for(
        sys.stderr,
        run.name,
        run.total_timesteps or 0,
        host_predicted=predicted.host if predicted else None,
        host_limit=limit or machine.available,
        gpu_predicted=predicted.gpu if predicted else None,
        gpu_limit=gpu_limit,
    )
    with display:
        knobs = turned_knobs(training.asked, run)
        display.say(f"training {run.name} in {folder.path}" + (f", with {words(knobs)}" if knobs else ""))
        if limit is not None:
            display.say(
                f"limit {format_size(limit)} of host memory (--ram): watched by legroom, not enforced by the system; "
                "close to it, training restarts from a checkpoint with less memory"
            )
        return train(training, display, next_knob=next_knob, retries=given.retries)


def _already(folder: RunFolder, json: bool) -> int:
    outcome = folder.outcome()
    assert outcome is not None
    if json:
        say(dumps(outcome.to_json(), indent=2))
    else:
        say(f"{folder.path} is finished ({outcome.timesteps:,} steps); a larger --timesteps continues it")
    return EXIT_GOOD
