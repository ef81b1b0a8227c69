"""What `legroom train` leaves behind once a training has ended: the report, a page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from json import dumps
from pathlib import Path

from legroom.backends.base import backend_of
from legroom.cli.trusting import command_to_resume
from legroom.cli.writing import write_page
from legroom.environments.own_code import own_code
from legroom.errors import BadInput
from legroom.model.machine import Machine
from legroom.model.outcome import Outcome, Progress
from legroom.named_runs import find_workload
from legroom.rendering.console import complain, say
from legroom.rendering.document import Document
from legroom.rendering.outcome_text import TrainingReport, outcome_document
from legroom.rendering.printable import printable
from legroom.training.progress_log import read_progress
from legroom.training.request import Training
from legroom.training.run_folder import LOG
from legroom.training.supervise import ChildRecord


def report(
    outcome: Outcome, record: ChildRecord, training: Training, machine: Machine, target: str, *, json: bool,
    html: Path | None = None, notes: Sequence[str] = (),
) -> None:  # fmt: skip
    """Say how it ended, and write the page that was asked for.

    What cannot be written is said and is no error: the training is over, and its figures are in its folder.
    """
    document = _say_outcome(outcome, record, training, machine, target, json, notes)
    if html is not None:
        try:
            write_page(html, document)
        except BadInput as error:
            tell(str(error))
        else:
            tell(f"written: {html}")


def _all_of(name: str, outcome: Outcome, record: ChildRecord, training: Training, machine: Machine) -> TrainingReport:
    predicted = training.predicted
    return TrainingReport(
        name,
        outcome,
        progress=_whole_progress(training.folder.path) or record.progress,
        samples=record.samples,
        moments=record.moments,
        host=predicted.host if predicted else None,
        gpu=predicted.gpu if predicted else None,
        at_host_peak=predicted.at_host_peak if predicted else (),
        host_limit=training.host_limit or machine.available,
        gpu_limit=machine.gpus[0].free if machine.gpus else None,
    )


def _whole_progress(folder: Path) -> Sequence[Progress]:
    """Return what was logged in all sessions of the training, as far as it can be read."""
    try:
        return read_progress(folder / "progress.csv")
    except BadInput:
        return ()


def _say_outcome(
    outcome: Outcome,
    record: ChildRecord,
    training: Training,
    machine: Machine,
    target: str,
    json: bool,
    notes: Sequence[str],
) -> Document:
    """Print how it ended; the same as a document."""
    folder = training.folder.path
    if outcome.status == "failed":
        # without a last word there is only what Python wrote while it went down
        sys.stderr.write(printable(record.end.get("traceback") or _log_tail(folder / LOG)))
        step = record.checkpoint_step
        way = (
            f"resume from step {step:,} with --resume --out {folder}"
            if step is not None
            else "there is no checkpoint yet"
        )
        complain(f"{outcome.error} ({way}; log: {folder / 'train.log'})")
    use = (backend_of(training.run).trainer.export_use, _export_command(training))
    name = training.asked.name if find_workload(target) else target  # which size of it had been chosen
    again = command_to_resume(folder, {target: name})
    document = outcome_document(_all_of(name, outcome, record, training, machine), folder, again=again, export=use)
    say(dumps(outcome.to_json() | {"notes": list(notes)}, indent=2) if json else document)
    return document


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


def tell(line: str) -> None:
    """Write a line for people, beside the result."""
    complain(line)
