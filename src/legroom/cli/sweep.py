"""`legroom sweep RUN --param KEY=VALUES`: trains a grid of settings, as many at once as memory allows."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from legroom.catalog import BACKENDS, load, require_backend
from legroom.cli import options
from legroom.cli.overrides import split_settings
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, EXIT_INTERRUPTED, EXIT_TRAINING_FAILED, BadInput
from legroom.machine import probe
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.reading import read
from legroom.rendering.console import say, status
from legroom.rendering.sweep import SweepLine, sweep_text
from legroom.sweeping.folder import RESULT, SweepFolder
from legroom.sweeping.grid import Parameter, Point, parse_parameters
from legroom.sweeping.plan import make_trials
from legroom.sweeping.trial import DEFAULT_METRIC, MEASURES, SERVICES_NBYTES, Sweep, Trial
from legroom.training.folder import RunFolder
from legroom.training.progress_log import read_progress
from legroom.units import format_size, parse_size


def run(
    target: Annotated[str, typer.Argument(metavar="RUN", help="mine:ultra_light, run.yaml, ppo.yml:CartPole-v1")],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="KEY=V1,V2|KEY=A..B", help="What to vary; keys as for --set. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the trials go; all nodes must see it.")] = None,
    cluster: Annotated[
        str, typer.Option(metavar="local|auto|ADDRESS", help="Ray on this machine, or a cluster that runs already.")
    ] = "local",
    metric: Annotated[
        str, typer.Option(metavar="NAME", help="A figure of the score, or seconds, or peak.")
    ] = DEFAULT_METRIC,
    mode: Annotated[str, typer.Option(metavar="max|min", help="Default: max; min for seconds and peak.")] = "",
    concurrent: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Trials at once, at most; default: as many as fit.")
    ] = None,
    timesteps: Annotated[int | None, typer.Option(min=1, help="Environment steps of each trial.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the sweep in --out.")] = False,
    ram: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory for all trials together; default: what is available.")
    ] = None,
    like: options.Like = None,
    settings: options.Settings = None,
    json: options.Json = False,
) -> int:
    """Train a grid of settings on Ray Tune, as many trials at once as there is memory for by prediction.

    Each trial is a training of its own in DIR/trials/NNN, with checkpoints. One that takes more than was predicted is
    run again with what was measured; one that fails does not end the sweep. Ctrl-C: trials write checkpoints, --resume
    goes on. Exit code 1: a trial fits no node. 4: no trial finished. 130: stopped.

    \b
    legroom sweep run.yaml --param learning_rate=1e-4,3e-4 --out sweeps/lr
    legroom sweep run.yaml --param seed=0..9 --out sweeps/ten_seeds
    legroom sweep robot:quick --param seed=1,2 --ram 8GiB --out sweeps/robot
    legroom sweep ppo.yml:CartPole-v1 --param n_steps=128,256 --out sweeps/steps
    legroom sweep run.yaml --param seed=0..3 --metric seconds --out sweeps/speed
    legroom sweep run.yaml --param seed=0..9 --cluster auto --out /shared/seeds
    legroom sweep run.yaml --param seed=0..9 --out sweeps/seeds --resume
    """
    parameters = parse_parameters(param or [])
    if mode not in ("", "max", "min"):
        raise BadInput(f"--mode {mode!r} is neither max nor min")
    chosen_mode: Any = mode or MEASURES.get(metric, "max")
    if out is None:
        raise BadInput("a sweep needs a folder", hint="--out DIR")
    folder = SweepFolder(out)
    RunFolder(out).check(resume=resume)
    base = split_settings(settings or [])
    budget = parse_size(ram, what="--ram") if ram is not None else None
    begin = load("ray.run_sweep")  # a missing package and a missing cluster are said before anything is predicted
    if cluster != "local":
        load("ray.find_cluster")(cluster)
    identity = {
        "run": target,
        "params": {parameter.key: list(parameter.values) for parameter in parameters},
        "settings": [list(pair) for pair in base],
    }

    def read_point(point: Point) -> Run:
        one = read(target, overrides=[*base, *point], like=like)
        return one if timesteps is None else one.replace(total_timesteps=timesteps)

    machine, line, began = probe(), SweepLine(), time.monotonic()
    with RunFolder(out).locked():
        trials = _resumed(folder, identity, timesteps) if resume else None
        if trials is None:
            trials = _planned(parameters, read_point, machine, quiet=json)
            folder.keep(identity, trials)
        declared = budget if budget is not None else max(machine.available - SERVICES_NBYTES, 1)
        if not json:
            line.say(
                f"{len(trials)} trials in {out}; each requests {_requests(trials)}; {format_size(declared)} declared"
            )
        try:
            swept = begin(
                trials, folder, cluster=cluster, declared=declared, num_cpus=max(machine.cores, 1),
                concurrent=concurrent, show=(lambda view: None) if json else line, say=line.say,
            )  # fmt: skip
        except load("ray.TooLarge") as large:
            trial: Trial = large.trial
            what = ", ".join(f"{key}={value}" for key, value in trial.params.items())
            need = f"trial {trial.number:03d} ({what}) needs {format_size(trial.requested)}"
            line.say(f"{need}, the largest node declares {format_size(large.most)} (legroom fit makes it smaller)")
            return EXIT_FINDINGS
        finally:
            line.clear()
        sweep = Sweep(
            target, metric, chosen_mode, swept.declared, swept.results, time.monotonic() - began, swept.most_at_once
        )
        data = sweep.to_json()
        folder.write(RESULT, data)
        _draw(data, folder)
    again = "" if all(trial["status"] == "finished" for trial in data["trials"]) else _command_to_resume(resume)
    if json:
        say(dumps(data, indent=2))
        if again:
            line.say(f"go on with: {again}")
    else:
        say(sweep_text(data, str(out), resume=again))
    if swept.is_stopped:
        return EXIT_INTERRUPTED
    return EXIT_GOOD if any(trial["status"] == "finished" for trial in data["trials"]) else EXIT_TRAINING_FAILED


def _planned(parameters: tuple[Parameter, ...], read_point: Any, machine: Machine, *, quiet: bool) -> list[Trial]:
    first = read_point(tuple((parameter.key, parameter.values[0]) for parameter in parameters))
    if first.backend not in BACKENDS:
        raise BadInput(f"{first.name}: runs of backend {first.backend} cannot be trained yet", path=first.source)
    require_backend(first.backend)
    with status(f"predicting {first.name}", show=not quiet):
        return make_trials(parameters, read_point, machine)


def _resumed(folder: SweepFolder, identity: dict[str, Any], timesteps: int | None) -> list[Trial] | None:
    """Return the trials that the folder holds; None where none was begun.

    Raises:
        BadInput: it holds another sweep.
    """
    held = folder.identity()
    if held is None:
        return None
    for part, value in identity.items():
        if held.get(part) != value:
            raise BadInput(
                f"holds another sweep: its {part} is {held.get(part)}, not {value}",
                path=folder.path,
                hint="resume with the command it was begun with, or start anew in another --out",
            )
    trials = folder.trials()
    if timesteps is None:
        return trials
    return [
        replace(t, asked=t.asked.replace(total_timesteps=timesteps), run=t.run.replace(total_timesteps=timesteps))
        for t in trials
    ]


def _requests(trials: list[Trial]) -> str:
    sizes = sorted({trial.requested for trial in trials})
    return format_size(sizes[0]) + (f" to {format_size(sizes[-1])}" if len(sizes) > 1 else "")


def _draw(data: dict[str, Any], folder: SweepFolder) -> None:
    logs = [folder.trial(number).path / "progress.csv" for number in range(len(data["trials"]))]
    try:
        curves = [read_progress(log) if log.exists() else [] for log in logs]
        load("rendering.sweep_chart")(data, curves, folder.path / "sweep.svg")
    except OSError as error:
        sys.stderr.write(f"legroom: the chart cannot be written: {error.strerror or error}\n")


def _command_to_resume(resume: bool) -> str:
    given = [argument for argument in sys.argv[1:] if argument != "--json"]
    return shlex.join(["legroom", *given, *([] if resume else ["--resume"])])
