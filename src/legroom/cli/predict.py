"""`legroom predict RUN...`: what a run will need, item by item, before anything is allocated."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from legroom.cli.budgets import chosen_budget, place_of
from legroom.cli.commands import PredictCommand
from legroom.cli.output import check_writable, job_text, jobs_of, show, unknown_run, unseen_line, unseen_run
from legroom.cli.overrides import split_settings, told_notes, with_backend
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput, NotKnownYet, Unseen
from legroom.fitting.predictor import predict_all
from legroom.model.plan import Prediction
from legroom.model.run import Run
from legroom.predicting.predict import unseen_env
from legroom.reading import Unread, read_each
from legroom.rendering.console import complain, say, status, told
from legroom.rendering.prediction_text import prediction_json, predictions_document


def run(asked: PredictCommand) -> int:
    check_writable("--html", asked.html, force=asked.force)
    if asked.probe and asked.mode == "arithmetic":
        hint = "mode auto or trace"
        raise BadInput("--probe builds the environment, which --mode arithmetic does not", hint=hint)
    machine, where = place_of(asked)
    budget = chosen_budget(machine, asked)
    overrides = with_backend(split_settings(asked.settings), asked.backend)
    by_running = {"--gpu": asked.gpu, "--vram": asked.vram, "--ram": asked.ram}
    with told_notes() as notes, pointing_to_running(asked.runs, by_running):
        read = [read_each(target, overrides=overrides, like=asked.like) for target in asked.runs]
    wanted, unread = [one for found, _ in read for one in found], [one for _, failed in read for one in failed]
    what, shows = f"predicting {', '.join(one.name for one in wanted)}", not asked.json and asked.mode != "arithmetic"
    with pointing_to_running(asked.runs, by_running), status(what, show=shows) as shown:
        how: Any = {"mode": asked.mode, "device": where, "trust": asked.trust, "values": asked.values}
        seen, unseen = _divided(wanted, asked.mode, trust=asked.trust)
        how["progress"] = told(shown)
        predict = partial(predict_all, machine=machine, budget=budget, **how)
        predictions, unknown = _predicted(seen, predict)
    unread += unknown
    scripts = [str(each.reason.path) for each in unread if isinstance(each.reason, NotKnownYet)]
    hint = _by_running([*(str(one.source) for one in _not_known(wanted, predictions)), *scripts], by_running)
    _show(asked, predictions, unseen, unread, notes, hint)
    return EXIT_FINDINGS if unseen or unread or any(p.bad for p in predictions) else EXIT_GOOD


def _not_known(runs: Sequence[Run], predictions: Sequence[Prediction]) -> list[Run]:
    """Return the runs of which it is not known whether they fit."""
    known = {(p.run.name, p.run.source) for p in predictions if p.fits is not None or not p.bad}
    return [run for run in runs if (run.name, run.source) not in known]


def _by_running(sources: Sequence[str], options: Mapping[str, str | None]) -> str:
    """Return how to know what could not be read of scripts; empty where all is known."""
    ways = [rehearsal_command(script, options) for script in dict.fromkeys(sources) if is_script(script)]
    return f"to know the rest, run it on a simulated GPU: {', '.join(ways)}" if ways else ""


def is_script(target: str) -> bool:
    """Return whether a target, or the source of a run, is a Python script that can be run."""
    if not (target.endswith(".py") and Path(target).is_file()):
        return False
    from legroom.reading.programs import is_python  # parses source, which --help must not pay for

    return is_python(target)


def rehearsal_command(
    script: str | None, options: Mapping[str, str | None], program: Sequence[str] | None = None
) -> str:
    """Return the command that predicts a script, or a program with its arguments, by running it."""
    from legroom.reading.programs import required_arguments  # parses source, which --help must not pay for

    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    words = [script, *required_arguments(script)] if script is not None else program or ()
    return shlex.join(["legroom", "predict", *given, "--", "python", *words])


@contextmanager
def pointing_to_running(targets: Sequence[str], options: Mapping[str, str | None]) -> Iterator[None]:
    """Refuse a script that cannot be read or predicted with the command that runs it."""
    try:
        yield
    except BadInput as error:
        from legroom.reading.programs import program_of

        scripts = [target for target in targets if is_script(target)]
        at_fault = str(error.path) if str(error.path) in scripts else None
        script = at_fault or (scripts[0] if len(targets) == len(scripts) == 1 else None)
        program = None if error.path is None or script else program_of(str(error.path))
        if script is None and program is None:
            raise
        way = f"or run it on a simulated GPU: {rehearsal_command(script, options, program)}"
        hint = f"{error.hint}; {way}" if error.hint else way
        kind = NotKnownYet if isinstance(error, NotKnownYet) else BadInput
        raise kind(error.message, hint=hint, path=error.path, line=error.line) from None


def _divided(runs: Sequence[Run], mode: str, *, trust: bool) -> tuple[list[Run], list[Unseen]]:
    """Return the runs that can be predicted, and why the others cannot without trust."""
    if trust or mode == "arithmetic":
        return list(runs), []
    codes = [(run, unseen_env(run)) for run in runs]
    seen = [run for run, code in codes if not code]
    return seen, [Unseen(run.name, code, path=run.source) for run, code in codes if code]


def _predicted(
    runs: Sequence[Run], predict: Callable[[Sequence[Run]], list[Prediction]]
) -> tuple[list[Prediction], list[Unread]]:
    """Return the predictions of the runs, and those of several that cannot be predicted.

    Raises:
        BadInput: none can.
    """
    try:
        return predict(runs) if runs else [], []
    except BadInput as error:
        found: list[Prediction] = []
        failed: list[Unread] = []
        for run in runs if len(runs) > 1 else ():
            try:
                found += predict([run])
            except BadInput as reason:
                failed.append(Unread(run.name, reason))
        if not found:
            raise error from None
        return found, failed


def _show(
    asked: PredictCommand, predictions: Sequence[Prediction], unseen: Sequence[Unseen], unread: Sequence[Unread],
    notes: Sequence[str], hint: str,
) -> None:  # fmt: skip
    jobs = list(jobs_of(predictions, asked.system)) if asked.system else None
    more = [*map(unseen_run, unseen), *(unknown_run(each.name, str(each.reason)) for each in unread)]
    data = partial(prediction_json, predictions, more, jobs, notes)
    if predictions:
        document = partial(predictions_document, predictions, unread)
        show(asked, data, document(asked.everything), page=document(True) if asked.html else None)
    elif asked.json:
        say(data())
    if jobs and not asked.json:
        say(f"\n{job_text(jobs)}")
    said = [str(one.reason) for one in unread] if not predictions and not asked.json else []
    said += map(str, unseen)
    for line in said[:-1]:
        complain(line)
    last = said[-1:]
    if unseen or any(p.footprint.unseen for p in predictions):
        last.append(unseen_line())
    if hint:
        last.append(hint)
    if last:
        complain("; ".join(last))
