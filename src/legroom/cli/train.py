"""`legroom train RUN`: trains for real, with every free saving, and says what it really took."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from legroom.cli import options
from legroom.cli.overrides import split_settings, with_backend
from legroom.cli.train_report import report, tell
from legroom.cli.writing import Html, check_writable
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.machine import probe
from legroom.machine.gpus_by_torch import with_gpus_by_torch
from legroom.machine.tree import process_memory
from legroom.model.machine import Machine
from legroom.model.plan import PRICES
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.named_runs import find_workload
from legroom.reading import read, read_all
from legroom.rendering.console import say, status
from legroom.rendering.training_display import display_for
from legroom.training.choosing import in_order, words
from legroom.training.prepare import Request, knob_after_failure, prepare
from legroom.training.run_folder import RunFolder
from legroom.training.train import RETRIES, Ended, NextKnob, Training, is_finished, train, turned_knobs

Target = Annotated[str, typer.Argument(metavar="RUN", help="mine:ultra_light, run.yaml, ppo.yml:CartPole-v1")]
Timesteps = Annotated[int | None, typer.Option(min=1, help="Environment steps in total, also with --resume.")]
DeviceName = Annotated[str, typer.Option(metavar="cpu|cuda|auto", help="Where the networks are.")]
Seed = Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Default: the run's, or a random one.")]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Default: runs/NAME-TIMESTAMP.")]
Visualization = Annotated[
    bool, typer.Option("--visualization/--headless", help="Pictures of the workload every 10 iterations.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last good checkpoint in --out.")]
Plain = Annotated[bool, typer.Option("--plain", help="As the library does it: no savings of legroom's.")]
CheckpointEvery = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Steps between checkpoints; default: by time.")
]
Fit = Annotated[
    bool, typer.Option("--fit", help="Make it fit first, as legroom fit does; of a workload, the largest run.")
]
Retries = Annotated[
    int, typer.Option(min=0, metavar="N", help="How often to go on after memory ran out or the child was killed.")
]
AllowChanges = Annotated[
    bool, typer.Option("--allow-changes", help="Going on may turn knobs that change what is learned.")
]
Backend = Annotated[
    str | None, typer.Option(metavar="sb3|brax|rllib", help="Default: the run's own; rllib translates an SB3 run.")
]
Where = Annotated[
    str | None, typer.Option(metavar="local|auto|ADDRESS", help="Where Ray is, for rllib; default: local.")
]


def run(
    target: Target,
    timesteps: Timesteps = None,
    device: DeviceName = "",
    seed: Seed = None,
    out: Out = None,
    visualization: Visualization = False,
    resume: Resume = False,
    plain: Plain = False,
    checkpoint_every: CheckpointEvery = None,
    fit: Fit = False,
    retries: Retries = RETRIES,
    allow_changes: AllowChanges = False,
    backend: Backend = None,
    cluster: Where = None,
    ram: options.Ram = None,
    vram: options.Vram = None,
    reserve: options.Reserve = "0%",
    like: options.Like = None,
    settings: options.Settings = None,
    html: Html = None,
    json: options.Json = False,
) -> int:
    """Train a run, with every saving that costs nothing; checkpoints, logs and charts go to --out.

    Where memory runs out, or something kills it, it goes on from its last checkpoint, with less memory where that was
    the reason. Exit code 1: it does not fit (--fit makes it). 4: the training failed. 130: stopped, checkpoint written.

    \b
    legroom train mine:ultra_light
    legroom train mine:full --fit --ram 3GiB
    legroom train fire --fit --rasters tiles/
    legroom train mine:full --timesteps 8192 --set memory.micro_batch=8
    legroom train run.yaml --out runs/first --seed 1 --html first.html
    legroom train run.yaml --out runs/first --resume --timesteps 2000000
    legroom train ppo.yml:CartPole-v1 --plain
    legroom train gameboy --rom my_game.gb --cartridge my_game.yaml
    legroom train robot:quick --num-envs 64 --batch-size 64 --num-minibatches 8
    legroom train mine:small --backend rllib --num-env-runners 4 --cluster auto
    """
    check_writable("--html", html)

    overrides = with_backend(split_settings(settings or []), backend, cluster)
    asked = _asked(read(target, overrides=overrides, like=like), timesteps, device, seed)
    sizes = [_asked(one, timesteps, device, seed) for one in (_sizes(target, overrides, like) if fit else ())]
    request = Request(
        asked, sizes, out, resume=resume, plain=plain, fit=fit, cluster=cluster,
        pictures=visualization, checkpoint_every=checkpoint_every,
        repeat={"--timesteps": timesteps, "--backend": backend, "--cluster": cluster},
    ).checked()  # fmt: skip
    if resume and is_finished(request.folder(request.asked), request.asked.total_timesteps):
        return _already(request.folder(request.asked), json)
    machine, budget = _machine_and_budget(asked, ram, vram, reserve)
    training = prepare(request, machine, budget, Terminal(quiet=json))
    if training is None:
        return EXIT_FINDINGS
    next_knob = knob_after_failure(training, machine, PRICES if allow_changes else PRICES[:2])
    ended = _train(training, machine, next_knob, retries)
    report(ended, training, machine, target, json=json, html=html)
    return ended.exit_code


class Terminal:
    """Standard error, and whoever sits before it."""

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
    budget = options.chosen_budget(machine, ram=ram, vram=vram, reserve=reserve)
    if ram is not None and budget.ram is not None:  # this process, which supervises, lives in the same memory
        own = process_memory("self")
        budget = replace(budget, ram=max(budget.ram - (own.pss if own else 0), 1))
    return machine, budget


def _asked(run: Run, timesteps: int | None, device: str, seed: int | None) -> Run:
    """Return the run with what the options say laid over it."""
    if timesteps is not None:
        run = run.replace(total_timesteps=timesteps)
    if run.total_timesteps is None:
        raise BadInput(f"{run.name} does not say how long it trains", path=run.source, hint="--timesteps N")
    if device not in ("", "cpu", "cuda", "auto"):
        raise BadInput(f"--device {device!r} is none", hint="cpu, cuda or auto")
    if device:
        run = run.replace(device=device)
    if seed is not None:
        run = run.replace(seed=seed)
    return run


def _train(training: Training, machine: Machine, next_knob: NextKnob | None, retries: int) -> Ended:
    run, predicted, folder = training.run, training.predicted, training.folder
    display = display_for(
        sys.stderr,
        run.name,
        run.total_timesteps or 0,
        host_predicted=predicted.host if predicted else None,
        host_limit=machine.available,
        gpu_predicted=predicted.gpu if predicted else None,
        gpu_limit=machine.gpus[0].free if machine.gpus else None,
    )
    with display:
        knobs = turned_knobs(training.asked, run)
        display.say(f"training {run.name} in {folder.path}" + (f", with {words(knobs)}" if knobs else ""))
        return train(training, display, next_knob=next_knob, retries=retries)


def _already(folder: RunFolder, json: bool) -> int:
    outcome = folder.outcome()
    assert outcome is not None
    if json:
        say(dumps(outcome.to_json(), indent=2))
    else:
        say(f"{folder.path} is finished ({outcome.timesteps:,} steps); a larger --timesteps goes on")
    return EXIT_GOOD
