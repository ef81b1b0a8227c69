"""What `legroom train` does, step by step: read, prepare, train, report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from json import dumps
from pathlib import Path
from typing import Any

import typer

from legroom.cli import options
from legroom.cli.overrides import repeated, split_settings, with_backend
from legroom.cli.told_notes import told_notes
from legroom.cli.train_report import report, tell
from legroom.environments.script_classes import named_by_file
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput, LegroomError
from legroom.fitting.predictor import is_hopeless, predictor_at_once
from legroom.fitting.tiers import in_order
from legroom.machine import probe
from legroom.machine.child_process import run_file
from legroom.machine.gpus import with_gpus_by_torch
from legroom.model.machine import Machine
from legroom.model.outcome import Outcome
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.named_runs import find_workload
from legroom.predicting.predict import choose_device
from legroom.reading import read, read_all
from legroom.rendering.console import say, status
from legroom.rendering.training_display import display_for
from legroom.training.prepare import knob_after_failure, prepare, words
from legroom.training.request import Training
from legroom.training.run_folder import RunFolder
from legroom.training.supervise import ChildRecord
from legroom.training.train import is_finished, train, turned_knobs
from legroom.units import format_size, parse_size


def read_runs(
    target: str, settings: Sequence[str], *, like: str | None, backend: str | None, cluster: str | None, sizes: bool,
    laid_over: Callable[[Run], Run],
) -> tuple[Run, list[Run], list[str]]:  # fmt: skip
    """Return the run, those of the same workload to choose from, and what was noted while they were read.

    Args:
        laid_over: lays over a run what the options say.
    """
    overrides = with_backend(split_settings(settings), backend, cluster)
    with told_notes() as notes:
        asked = laid_over(read(target, overrides=overrides, like=like))
    asked = named_by_file(asked, run_file(asked))  # training trusts what it trains
    others = _sizes(target, overrides, like) if sizes else ()
    return asked, [laid_over(one) for one in others], notes


def with_options(run: Run, timesteps: int | None, device: str, seed: int | None) -> Run:
    """Return the run with what the options say.

    Raises:
        BadInput: an option cannot be, or nothing says how long it trains.
    """
    if timesteps is not None:
        run = run.replace(total_timesteps=timesteps)
    if run.total_timesteps is None:
        raise BadInput(f"{run.name} has no total_timesteps", path=run.source, hint="--timesteps N")
    if device not in ("", "cpu", "cuda", "auto"):
        raise BadInput(f"--device {device!r} is not known", hint="cpu, cuda or auto")
    if device:
        run = run.replace(device=device)
    return run if seed is None else run.replace(seed=seed)


def carry_out(
    asked: Training, target: str, *, ram: str | None, vram: str | None, reserve: str, again: Sequence[str], json: bool,
    html: Path | None, notes: Sequence[str],
) -> int:  # fmt: skip
    """Train, and return the exit code.

    Args:
        again: options that give the same run to another command.
    """
    asked = asked.checked()
    if asked.resume and is_finished(asked.folder, asked.run.total_timesteps):
        return _already(asked.folder, json)
    machine, budget = _machine_and_budget(asked.run, ram, vram, reserve)
    if vram is not None and choose_device(asked.run, machine) == "cpu":
        why = "the run's device is cpu" if machine.gpus else "no GPU found on this machine"
        limits = repeated((), ram=ram, vram=vram, reserve=None if reserve == "0%" else reserve)
        fitting = shlex.join(["legroom", "fit", target, *again, *limits])
        tell(f"--vram {vram} is not used: {why}; what fits that GPU: {fitting}")
    _check_possible(asked.run, machine, budget, ram)
    training = prepare(asked, machine, budget, Terminal(quiet=json))
    if training is None:
        return EXIT_FINDINGS
    outcome, record = _train(training, machine, ram, vram)
    report(outcome, record, training, machine, target, json=json, html=html, notes=notes)
    return outcome.exit_code


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


def _train(training: Training, machine: Machine, ram: str | None, vram: str | None) -> tuple[Outcome, ChildRecord]:
    run, predicted, folder = training.run, training.predicted, training.folder
    limit = parse_size(ram, what="--ram") if ram is not None else None
    gpu_limit = machine.gpus[0].free if machine.gpus else None
    if vram is not None and machine.gpus:
        gpu_limit = parse_size(vram, what="--vram")
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
        return train(training, display, next_knob=knob_after_failure(training, machine))


def _already(folder: RunFolder, json: bool) -> int:
    outcome = folder.outcome()
    assert outcome is not None
    if json:
        say(dumps(outcome.to_json(), indent=2))
    else:
        say(f"{folder.path} is finished ({outcome.timesteps:,} steps); a larger --timesteps continues it")
    return EXIT_GOOD
