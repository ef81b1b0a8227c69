"""`legroom predict RUN...`: what a run will need, item by item, before anything is allocated."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from legroom.cli import options, scheduler_options
from legroom.cli.help import OUTPUT, WHAT, rarely
from legroom.cli.overrides import split_settings, with_backend
from legroom.cli.told_notes import told_notes
from legroom.cli.trusting import Trust, unknown_run, unseen_line, unseen_run
from legroom.cli.writing import Force, Html, check_writable, show
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput, NotKnownYet, Unseen
from legroom.fitting.predictor import predict_all
from legroom.machine import probe
from legroom.model.machine import Machine
from legroom.model.plan import Prediction
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.predicting.predict import unseen_env
from legroom.reading import Unread, read_each
from legroom.rendering.console import complain, say, status, told
from legroom.rendering.prediction_text import estimate_text, prediction_json, predictions_document

Runs = Annotated[list[str], typer.Argument(metavar="RUN...", help="train.py, run.yaml, ppo.yml:atari, mine:full")]
ModeOption = Annotated[
    options.Mode,
    typer.Option(
        rich_help_panel=rarely(WHAT),
        help="trace follows the networks and needs torch, or XLA for brax; auto traces where it can.",
    ),
]
Probe = Annotated[
    bool,
    typer.Option(
        "--probe", hidden=True, help="Environments are stepped anyway, for a second, wherever they may be built."
    ),
]


class Values(StrEnum):
    """What code gets that reads a tensor's value while it is traced."""

    REFUSE = "refuse"
    ASSUME = "assume"
    REAL = "real"


ValuesOption = Annotated[
    Values,
    typer.Option(
        rich_help_panel=rarely(WHAT),
        help="Where a network reads a tensor's value (.item()): answer unknown, assume a value and list it, or compute"
        " it on the CPU from observations of zeros.",
    ),
]
Everything = Annotated[bool, typer.Option("--all", rich_help_panel=OUTPUT, help="List everything, small items too.")]


def run(
    runs: Runs,
    mode: ModeOption = options.Mode.AUTO,
    device: options.DeviceOption = None,
    cpu_only: options.CpuOnly = False,
    ram: options.Ram = None,
    vram: options.Vram = None,
    gpu: options.GpuName = None,
    reserve: options.Reserve = "0%",
    probe_env: Probe = False,
    backend: options.Backend = None,
    like: options.Like = None,
    settings: options.Settings = None,
    trust: Trust = False,
    values: ValuesOption = Values.REFUSE,
    system: scheduler_options.For = None,
    everything: Everything = False,
    html: Html = None,
    force: Force = False,
    json: options.Json = False,
) -> int:
    """Whether a run fits, and what it needs, item by item. RUN is only read; a command after -- is EXECUTED for seconds
    on a simulated GPU (legroom predict --help --).

    One run gives its bill; several give a comparison. The environment of a run is built where an installed package has
    it. Code that RUN itself names (`module:attr`) is imported only with --trust; without it, what depends on that code
    is unknown. Exit code 1: it does not fit, breaks a rule of its library, or is unknown.

    \b
    legroom predict train.py --gpu "RTX 4070"
    legroom predict mine:full --ram 16GiB --n-envs 2
    legroom predict -- python train.py --batch-size 512

    \b
    legroom predict mine:full mine:small
    legroom predict mine:full --data deposit.csv
    legroom predict gameboy:default --gpu "RTX 4070"
    legroom predict ppo.yml:atari --mode arithmetic --json
    legroom predict constants.py --like gameboy:default
    legroom predict train.py --set env.n_envs=8
    legroom predict run.yaml --trust
    legroom predict train.py --trust --values assume
    legroom predict mine:full mine:small --html mine.html
    legroom predict robot:default --mode trace --gpu "RTX 4090"
    legroom predict ninja:parallel --backend rllib
    legroom predict run.yaml --for slurm
    legroom predict --gpu "RTX 4070" -- python train.py
    """
    check_writable("--html", html, force=force)
    if probe_env and mode == "arithmetic":
        hint = "mode auto or trace"
        raise BadInput("--probe builds the environment, which --mode arithmetic does not", hint=hint)
    machine = options.with_gpu(probe(), gpu)
    budget = options.chosen_budget(machine, ram=ram, vram=vram, reserve=reserve)
    where: Any = options.chosen_device(device, cpu_only, wants_gpu=bool(vram or gpu))
    overrides = with_backend(split_settings(settings or []), backend)
    by_running = {"--gpu": gpu, "--vram": vram, "--ram": ram}
    with told_notes() as notes, pointing_to_running(runs, by_running):
        read = [read_each(target, overrides=overrides, like=like) for target in runs]
    wanted, unread = [one for found, _ in read for one in found], [one for _, failed in read for one in failed]
    what = f"predicting {', '.join(one.name for one in wanted)}"
    with pointing_to_running(runs, by_running), status(what, show=not json and mode != "arithmetic") as shown:
        how: Any = {"mode": mode.value, "device": where, "trust": trust, "values": values.value}
        seen, unseen = _divided(wanted, mode, trust=trust)
        first = "" if json else _first_answer(seen, machine, budget, how)
        if first:
            shown(first)
        tell = told(shown)
        how["progress"] = (lambda text: tell(f"{first}; {text}")) if first else tell
        predict = partial(predict_all, machine=machine, budget=budget, **how)
        predictions, unknown = _predicted(seen, predict)
    unread += unknown
    scripts = [str(each.reason.path) for each in unread if isinstance(each.reason, NotKnownYet)]
    hint = _by_running([*(str(one.source) for one in _not_known(wanted, predictions)), *scripts], by_running)
    jobs = list(scheduler_options.jobs_of(predictions, system)) if system else None
    _show(predictions, unseen, unread, html, jobs, notes, json=json, everything=everything, hint=hint)
    return EXIT_FINDINGS if unseen or unread or any(p.bad for p in predictions) else EXIT_GOOD


def _not_known(runs: Sequence[Run], predictions: Sequence[Prediction]) -> list[Run]:
    """Return the runs of which it is not known whether they fit."""
    known = {(p.run.name, p.run.source) for p in predictions if p.fits is not None or not p.bad}
    return [run for run in runs if (run.name, run.source) not in known]


def _by_running(sources: Sequence[str], options: Mapping[str, str | None]) -> str:
    """Return how to know what could not be read of scripts; empty where all is known."""
    ways = [rehearsal_command(script, options) for script in dict.fromkeys(sources) if is_script(script)]
    return f"to know the rest, run it on a simulated GPU: {', '.join(ways)}" if ways else ""


def _first_answer(runs: Sequence[Run], machine: Machine, budget: Budget, how: Mapping[str, Any]) -> str:
    """Return what arithmetic says at once, to be shown on a terminal until the answer is there; empty elsewhere."""
    if not (runs and sys.stderr.isatty()) or how["mode"] == "arithmetic":
        return ""
    try:
        return estimate_text(predict_all(runs, machine, budget, **{**how, "mode": "arithmetic"}))
    except BadInput:  # what is wrong with it is told in a moment
        return ""


def is_script(target: str) -> bool:
    """Return whether a target, or the source of a run, is a Python script that can be run."""
    if not (target.endswith(".py") and Path(target).is_file()):
        return False
    from legroom.reading.programs import is_python  # parses source, which --help must not pay for

    return is_python(target)


def rehearsal_command(script: str, options: Mapping[str, str | None]) -> str:
    """Return the command that predicts a script by running it."""
    from legroom.reading.programs import required_arguments  # parses source, which --help must not pay for

    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    return shlex.join(["legroom", "predict", *given, "--", "python", script, *required_arguments(script)])


@contextmanager
def pointing_to_running(targets: Sequence[str], options: Mapping[str, str | None]) -> Iterator[None]:
    """Refuse a script that cannot be read or predicted with the command that runs it."""
    try:
        yield
    except BadInput as error:
        from legroom.reading.programs import program_of

        scripts = [target for target in targets if is_script(target)]
        script = (
            str(error.path) if str(error.path) in scripts else scripts[0] if len(targets) == len(scripts) == 1 else ""
        )
        if script:
            command = rehearsal_command(script, options)
        elif error.path is not None and (program := program_of(str(error.path))) is not None:
            given = [word for name, value in options.items() if value is not None for word in (name, value)]
            command = shlex.join(["legroom", "predict", *given, "--", "python", *program])
        else:
            raise
        way = f"or run it on a simulated GPU: {command}"
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
    predictions: Sequence[Prediction], unseen: Sequence[Unseen], unread: Sequence[Unread], html: Path | None,
    jobs: Sequence[dict[str, Any] | None] | None, notes: Sequence[str], *, json: bool, everything: bool, hint: str,
) -> None:  # fmt: skip
    more = [*map(unseen_run, unseen), *(unknown_run(each.name, str(each.reason)) for each in unread)]
    data = partial(prediction_json, predictions, more, jobs, notes)
    if predictions:
        document = partial(predictions_document, predictions, unread)
        show(data, document(everything), json=json, html=html, page=document(True) if html else None)
    elif json:
        say(data())
    if jobs and not json:
        say(f"\n{scheduler_options.job_text(jobs)}")
    said = [str(one.reason) for one in unread] if not predictions and not json else []
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
