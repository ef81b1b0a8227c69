"""What `legroom train` does, step by step: read, prepare, train, report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from json import dumps
from pathlib import Path
from typing import Any

from legroom.backends.base import backend_of
from legroom.cli.budgets import chosen_budget
from legroom.cli.commands import TrainCommand
from legroom.cli.output import check_writable, command_to_resume, write_page
from legroom.cli.overrides import repeated, split_settings, told_notes, with_backend
from legroom.environments.own_code import own_code
from legroom.environments.script_classes import named_by_file
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput, LegroomError
from legroom.fitting.predictor import is_hopeless, predictor_at_once
from legroom.fitting.tiers import in_order
from legroom.machine import probe
from legroom.machine.child_process import run_file
from legroom.machine.gpus import with_gpus_by_torch
from legroom.model.machine import Machine
from legroom.model.outcome import Outcome, Progress
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.named_runs import find_workload
from legroom.predicting.predict import choose_device
from legroom.reading import read, read_all
from legroom.rendering.console import complain, is_drawn_on, say, status
from legroom.rendering.outcome_text import TrainingReport, outcome_document
from legroom.rendering.printable import printable
from legroom.rendering.training_display import MemoryGauge, TerminalDisplay
from legroom.training.prepare import knob_after_failure, prepare, words
from legroom.training.progress_log import read_progress
from legroom.training.request import PICTURES_EVERY, Training
from legroom.training.run_folder import LOG
from legroom.training.supervise import ChildRecord
from legroom.training.train import is_finished, train, turned_knobs
from legroom.units import format_size, parse_size


def carry_out(asked: TrainCommand) -> int:
    """Train, and return the exit code."""
    check_writable("--html", asked.html, force=asked.force)
    training, notes = _training(asked)
    if asked.resume and is_finished(training.folder, training.run.total_timesteps):
        return _already(training, asked)
    machine = probe()
    if training.run.device != "cpu":
        machine = with_gpus_by_torch(machine)
    budget = chosen_budget(machine, asked)
    if asked.vram is not None and choose_device(training.run, machine) == "cpu":
        why = "the run's device is cpu" if machine.gpus else "no GPU found on this machine"
        again = repeated(
            asked.settings, like=asked.like, backend=asked.backend, ram=asked.ram, vram=asked.vram,
            reserve=None if asked.reserve == "0%" else asked.reserve,
        )  # fmt: skip
        fitting = shlex.join(["legroom", "fit", asked.target, *again])
        complain(f"--vram {asked.vram} is not used: {why}; what fits that GPU: {fitting}")
    _check_possible(training.run, machine, budget, asked.ram)
    prepared = prepare(training, machine, budget, Terminal(quiet=asked.json))
    if prepared is None:
        return EXIT_FINDINGS
    outcome, record = _train(prepared, machine, asked)
    _report(asked, outcome, record, prepared, machine, notes)
    return outcome.exit_code


def _training(asked: TrainCommand) -> tuple[Training, list[str]]:
    """Return the training that is asked for, and what was noted while its run was read."""
    overrides = with_backend(split_settings(asked.settings), asked.backend, asked.cluster)
    with told_notes() as notes:
        run = _with_options(read(asked.target, overrides=overrides, like=asked.like), asked)
    run = named_by_file(run, run_file(run))  # training trusts what it trains
    sizes: Sequence[Run] = ()
    if asked.fit and find_workload(asked.target) is not None and not Path(asked.target).exists():
        sizes = in_order(asked.target, read_all(asked.target, overrides=overrides, like=asked.like))
    training = Training(
        run, str(asked.out or ""), resume=asked.resume, checkpoint_every=asked.checkpoint_every, cluster=asked.cluster,
        pictures_every=PICTURES_EVERY if asked.visualization else None, asked=run, plain=asked.plain, fit=asked.fit,
        sizes=[_with_options(one, asked) for one in sizes], retries=asked.retries, allow_changes=asked.allow_changes,
    )  # fmt: skip
    return training.checked(), notes


def _with_options(run: Run, asked: TrainCommand) -> Run:
    """Return the run with what the options say.

    Raises:
        BadInput: an option cannot be, or nothing says how long it trains.
    """
    if asked.timesteps is not None:
        run = run.replace(total_timesteps=asked.timesteps)
    if run.total_timesteps is None:
        raise BadInput(f"{run.name} has no total_timesteps", path=run.source, hint="--timesteps N")
    if asked.device not in ("", "cpu", "cuda", "auto"):
        raise BadInput(f"--device {asked.device!r} is not known", hint="cpu, cuda or auto")
    run = run.replace(device=asked.device) if asked.device else run
    return run if asked.seed is None else run.replace(seed=asked.seed)


class Terminal:
    """Standard error, and the user at the terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.command = shlex.join(["legroom", *sys.argv[1:]])

    def tell(self, line: str) -> None:
        complain(line)

    def busy(self, text: str) -> AbstractContextManager[Any]:
        return status(text, show=not self._quiet)

    def agrees(self, question: str) -> bool:
        while sys.stdin.isatty() and sys.stderr.isatty() and not self._quiet:
            sys.stderr.write(f"{question} [Y/n]: ")
            sys.stderr.flush()
            if not (line := sys.stdin.readline()):  # Ctrl-D
                raise KeyboardInterrupt
            if (answer := line.strip().lower()) in ("", "y", "yes", "n", "no"):
                return answer[:1] != "n"
        return False


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


def _train(training: Training, machine: Machine, asked: TrainCommand) -> tuple[Outcome, ChildRecord]:
    run, predicted, folder = training.run, training.predicted, training.folder
    limit = parse_size(asked.ram, what="--ram") if asked.ram is not None else None
    gpu_limit = machine.gpus[0].free if machine.gpus else None
    if asked.vram is not None and machine.gpus:
        gpu_limit = parse_size(asked.vram, what="--vram")
    host, gpu = (predicted.host, predicted.gpu) if predicted else (None, None)
    display = TerminalDisplay(
        run.total_timesteps or 0,
        sys.stderr,
        host=MemoryGauge("host", host, limit or machine.available),
        gpu=None if gpu is None else MemoryGauge("GPU", gpu, gpu_limit),
        live=is_drawn_on(sys.stderr),
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


def _already(training: Training, asked: TrainCommand) -> int:
    outcome = training.folder.outcome()
    assert outcome is not None
    done = f"{training.folder.path} is finished ({outcome.timesteps:,} steps); a larger --timesteps continues it"
    say(dumps(outcome.to_json(), indent=2) if asked.json else done)
    return EXIT_GOOD


def _report(
    asked: TrainCommand,
    outcome: Outcome,
    record: ChildRecord,
    training: Training,
    machine: Machine,
    notes: Sequence[str],
) -> None:
    """Say how it ended, and write the page that was asked for.

    What cannot be written is said and is no error: the training is over, and its figures are in its folder.
    """
    folder, predicted = training.folder.path, training.predicted
    if outcome.status == "failed":
        # without a last word there is only what Python wrote while it went down
        sys.stderr.write(printable(record.end.get("traceback") or _log_tail(folder / LOG)))
        step = record.checkpoint_step
        way = "there is no checkpoint yet"
        if step is not None:
            way = f"resume from step {step:,} with --resume --out {folder}"
        complain(f"{outcome.error} ({way}; log: {folder / 'train.log'})")
    name = training.asked.name if find_workload(asked.target) else asked.target  # which size of it had been chosen
    report = TrainingReport(
        name,
        outcome,
        progress=_whole_progress(folder) or record.progress,
        samples=record.samples,
        moments=record.moments,
        host=predicted.host if predicted else None,
        gpu=predicted.gpu if predicted else None,
        at_host_peak=predicted.at_host_peak if predicted else (),
        host_limit=training.host_limit or machine.available,
        gpu_limit=machine.gpus[0].free if machine.gpus else None,
    )
    again = command_to_resume(folder, {asked.target: name})
    export = (backend_of(training.run).trainer.export_use, _export_command(training))
    document = outcome_document(report, folder, again=again, export=export)
    say(dumps(outcome.to_json() | {"notes": list(notes)}, indent=2) if asked.json else document)
    if asked.html is not None:
        try:
            write_page(asked.html, document)
            complain(f"written: {asked.html}")
        except BadInput as error:
            complain(str(error))


def _whole_progress(folder: Path) -> Sequence[Progress]:
    """Return what was logged in all sessions of the training, as far as it can be read."""
    try:
        return read_progress(folder / "progress.csv")
    except BadInput:
        return ()


def _log_tail(path: Path, lines: int = 15) -> str:
    try:
        text = path.read_text(errors="replace")
    except OSError:  # there is none, or the disk fails: that is what ended it
        return ""
    return "".join(line + "\n" for line in text.splitlines()[-lines:])


def _export_command(training: Training) -> str:
    """Return the command that writes what was learned to a file; empty where the backend writes none."""
    folder, name = training.folder.path, backend_of(training.run).trainer.export_file
    if Path(name).exists():
        name = f"{folder.name}-{name}"
    trust = ["--trust"] if own_code(training.run).policy else []  # which has just been imported to train it
    return shlex.join(["legroom", "export", str(folder), name, *trust]) if name else ""
