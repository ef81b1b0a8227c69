"""`legroom sweep RUN --param KEY=VALUES`: trains a grid of settings, as many at once as memory allows."""

from __future__ import annotations

from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from legroom.cli import options
from legroom.cli.help import BUDGET, CLUSTER, OUTPUT, rarely
from legroom.cli.overrides import split_settings
from legroom.cli.trusting import Trust, command_to_resume
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, EXIT_INTERRUPTED, EXIT_TRAINING_FAILED, BadInput
from legroom.rendering.console import LINES, complain, say, status
from legroom.rendering.sweep_text import SweepLine, sweep_document
from legroom.sweeping.grid import parse_parameters
from legroom.sweeping.sweep_grid import SweepTask, sweep_grid
from legroom.sweeping.trial import DEFAULT_METRIC, MEASURES, TooLarge
from legroom.training.run_folder import RunFolder
from legroom.units import format_size, parse_size

Target = Annotated[str, typer.Argument(metavar="RUN", help="run.yaml, train.py, ppo.yml:ID, mine:ultra_light")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="KEY=V1,V2", help="Setting to vary; also seed=0..9. Repeatable."),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", rich_help_panel=OUTPUT, help="Folder of the trials; all nodes must see it."),
]
Cluster = Annotated[
    str, typer.Option(metavar="WHERE", rich_help_panel=CLUSTER, help="Ray cluster: local, auto or its address.")
]
Metric = Annotated[
    str,
    typer.Option(
        metavar="NAME", rich_help_panel=rarely(OUTPUT), help="Metric to rank by: one of the score, or seconds, or peak."
    ),
]
ModeName = Annotated[
    str, typer.Option(metavar="max|min", rich_help_panel=rarely(OUTPUT), help="Default: max; min for seconds and peak.")
]
Concurrent = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", rich_help_panel=BUDGET, help="Trials at once; default: as many as fit."),
]
Timesteps = Annotated[int | None, typer.Option(min=1, metavar="N", help="Environment steps of each trial.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the sweep in --out.")]
SweepRam = Annotated[
    str | None, typer.Option(metavar="SIZE", rich_help_panel=BUDGET, help="Host memory for all trials together.")
]


def run(
    target: Target,
    param: Parameters = None,
    out: Out = None,
    cluster: Cluster = "local",
    metric: Metric = DEFAULT_METRIC,
    mode: ModeName = "",
    concurrent: Concurrent = None,
    timesteps: Timesteps = None,
    resume: Resume = False,
    ram: SweepRam = None,
    trust: Trust = False,
    like: options.Like = None,
    settings: options.Settings = None,
    json: options.Json = False,
) -> int:
    """Train a grid of settings on Ray, as many trials at once as memory allows.

    Each trial is a training of its own in DIR/trials/NNN, with checkpoints. A trial that takes more memory than
    predicted is run again with what was measured; one that fails does not end the sweep. After Ctrl-C, trials write
    checkpoints and --resume continues. Code that RUN names (`module:attr`) is imported only with --trust. Exit code
    1: a trial fits no node, or needs --trust. 4: no trial finished. 130: stopped.

    \b
    legroom sweep run.yaml --param learning_rate=1e-4,3e-4 --out sweeps/lr
    legroom sweep run.yaml --param seed=0..9 --out sweeps/ten_seeds

    \b
    legroom sweep robot:quick --param seed=1,2 --ram 8GiB --out sweeps/robot
    legroom sweep ppo.yml:CartPole-v1 --param n_steps=128,256 --out sweeps/steps
    legroom sweep run.yaml --param seed=0..3 --metric seconds --out sweeps/speed
    legroom sweep run.yaml --param seed=0..9 --cluster auto --out /shared/seeds
    legroom sweep run.yaml --param seed=0..9 --out sweeps/seeds --resume
    """
    parameters = parse_parameters(param or [])
    if mode not in ("", "max", "min"):
        raise BadInput(f"--mode {mode!r} is neither max nor min")
    best: Any = mode or MEASURES.get(metric, "max")
    if out is None:
        raise BadInput("a sweep needs a folder", hint="--out DIR")
    RunFolder(out).check(resume=resume)
    base, budget = split_settings(settings or []), parse_size(ram, what="--ram") if ram is not None else None
    task = SweepTask(
        target, parameters, base, like, timesteps, out, metric, best, cluster, concurrent, budget, resume, trust
    )
    nothing: Any = lambda _: None  # noqa: E731 (JSON is printed at the end, and nothing else)
    begin, show = (nothing, nothing) if json else (complain, SweepLine())
    try:
        ended, stopped = sweep_grid(task, working=partial(status, show=not json), begin=begin, show=show, say=complain)
    except TooLarge as large:
        complain(_too_large(large))
        return EXIT_FINDINGS
    finally:
        LINES.draw(())
    _tell(ended.to_json(), out, json=json)
    if stopped:
        return EXIT_INTERRUPTED
    return EXIT_GOOD if any(r.status == "finished" for r in ended.results) else EXIT_TRAINING_FAILED


def _too_large(large: TooLarge) -> str:
    what = ", ".join(f"{key}={value}" for key, value in large.trial.params.items())
    need = f"trial {large.trial.number:03d} ({what}) needs {format_size(large.trial.requested + large.trial.mapped)}"
    return f"{need}, the largest node declares {format_size(large.most)} (legroom fit makes it smaller)"


def _tell(data: dict[str, Any], out: Path, *, json: bool) -> None:
    """Print what came of it, with the command that goes on where a trial did not finish."""
    again = "" if all(trial["status"] == "finished" for trial in data["trials"]) else command_to_resume(out)
    if not json:
        say(sweep_document(data, str(out), resume=again))
        return
    say(dumps(data, indent=2))
    if again:
        complain(f"continue with: {again}")
