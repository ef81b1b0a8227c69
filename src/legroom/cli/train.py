"""`legroom train RUN`: trains for real, with every free saving, and says what it really took."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from legroom.catalog import BACKENDS, load, require_backend
from legroom.cli import options
from legroom.cli.overrides import split_settings
from legroom.cli.train_choice import choose, in_order, shortage, tell, words
from legroom.cli.train_cluster import cluster_training, refuse_what_rllib_cannot, with_backend
from legroom.cli.train_report import report
from legroom.cli.writing import Html, check_writable
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.fitting.free import with_free_savings
from legroom.fitting.predictor import Predictor
from legroom.fitting.retreat import retreat
from legroom.fitting.search import fit as make_fit
from legroom.machine import probe
from legroom.machine.gpus_by_torch import with_gpus_by_torch
from legroom.machine.tree import process_memory
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.plan import PRICES, Price
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.named_runs import find_workload
from legroom.predicting.constraints import broken_rules
from legroom.predicting.predict import DeviceName, Mode, choose_device
from legroom.reading import read, read_all
from legroom.rendering.console import say, status
from legroom.rendering.training_display import display_for
from legroom.training.failing import Failure
from legroom.training.folder import Predicted, RunFolder
from legroom.training.train import RETRIES, NextKnob, Training, is_finished, train, turned_knobs
from legroom.units import format_size


def run(
    target: Annotated[str, typer.Argument(metavar="RUN", help="mine:ultra_light, run.yaml, ppo.yml:CartPole-v1")],
    timesteps: Annotated[
        int | None, typer.Option(min=1, help="Environment steps in total, also with --resume.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="cpu|cuda|auto", help="Where the networks are.")] = "",
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Default: the run's, or a random one.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Default: runs/NAME-TIMESTAMP.")] = None,
    visualization: Annotated[
        bool, typer.Option("--visualization/--headless", help="Pictures of the workload every 10 iterations.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last good checkpoint in --out.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="As the library does it: no savings of legroom's.")] = False,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Steps between checkpoints; default: by time.")
    ] = None,
    fit: Annotated[
        bool, typer.Option("--fit", help="Make it fit first, as legroom fit does; of a workload, the largest run.")
    ] = False,
    retries: Annotated[
        int, typer.Option(min=0, metavar="N", help="How often to go on after memory ran out or the child was killed.")
    ] = RETRIES,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Going on may turn knobs that change what is learned.")
    ] = False,
    backend: Annotated[
        str | None, typer.Option(metavar="sb3|brax|rllib", help="Default: the run's own; rllib translates an SB3 run.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="local|auto|ADDRESS", help="Where Ray is, for rllib; default: local.")
    ] = None,
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
    if fit and plain:
        raise BadInput("--plain trains as the library does it, --fit does not", hint="give one of them")
    if resume and out is None:
        raise BadInput("--resume goes on in a folder", hint="--out DIR says which")
    check_writable("--html", html)
    overrides = with_backend(split_settings(settings or []), backend, cluster)
    written = read(target, overrides=overrides, like=like)

    def prepared(one: Run) -> Run:
        return _asked(one, timesteps, device, seed)

    asked = prepared(written)
    sizes = [asked]
    if fit and find_workload(target) is not None and not Path(target).exists():
        named = in_order(target, read_all(target, overrides=overrides, like=like))
        sizes = [prepared(one) for one in named]
        kept = RunFolder(out).run() if resume and out is not None else None
        asked = next((one for one in sizes if kept is not None and one.name == kept.name), asked)
    if asked.backend not in BACKENDS:
        raise BadInput(f"{asked.name}: runs of backend {asked.backend} cannot be trained yet", path=asked.source)
    require_backend(asked.backend)
    if asked.backend == "brax" and not fit and not resume:
        _refuse_what_brax_refuses(asked)
    refuse_what_rllib_cannot(asked, cluster=cluster, fit=fit, pictures=visualization)
    folder = RunFolder(out) if out is not None else RunFolder.default(asked)
    folder.check(resume=resume)
    if resume and is_finished(folder, asked.total_timesteps):
        return _already(folder, json)
    machine = probe()
    if asked.device != "cpu":
        machine = with_gpus_by_torch(machine)
    budget = options.chosen_budget(machine, ram=ram, vram=vram, reserve=reserve)
    if ram is not None and budget.ram is not None:  # this process, which supervises, lives in the same memory
        own = process_memory("self")
        budget = replace(budget, ram=max(budget.ram - (own.pss if own else 0), 1))
    training = _resumed(asked, folder) if resume else None
    if training is None and asked.backend == "rllib":
        training = cluster_training(asked, folder, machine, budget, cluster or "local", quiet=json)
        if training is None:
            return EXIT_FINDINGS
    if training is None:
        fitted = None
        if len(sizes) > 1:
            look = partial(_predictor, machine=machine, probe_env=True)
            asked, fitted = choose(sizes, look, budget, quiet=json)
            folder = folder if out is not None else RunFolder.default(asked)
        fitted = fitted or _fitted(asked, machine, budget, plain=plain, fit_first=fit, quiet=json)
        if fitted is None:
            return EXIT_FINDINGS
        trained, footprint = fitted
        trained = trained if trained.seed is not None else trained.replace(seed=secrets.randbelow(2**31))
        training = Training(
            asked, trained, folder, footprint.device, Predicted.of(footprint), versions=machine.versions
        )
    training = replace(
        training,
        written_timesteps=written.total_timesteps,
        resume=resume,
        checkpoint_every=checkpoint_every,
        pictures=visualization,
        cluster=cluster or "local",
        host_limit=budget.usable(budget.ram) if budget.ram is not None else None,
    )
    allow = PRICES if allow_changes else PRICES[:2]
    return _train(training, machine, target, json, html, partial(_next_knob, training, machine, allow), retries)


def _refuse_what_brax_refuses(run: Run) -> None:
    """Say before a minute of compiling what brax would only assert, without a word.

    Raises:
        BadInput: with the nearest values that it takes.
    """
    for finding in broken_rules(run):
        if finding.severity == "error":
            raise BadInput(finding.message, path=run.source, hint=f"{finding.hint}; --fit repairs it")


def _next_knob(
    training: Training, machine: Machine, allow: Sequence[Price], run: Run, failure: Failure
) -> tuple[Run, Predicted | None] | None:
    """Return the run with less memory, where memory ran out; the prediction that it takes is made only then."""
    assert failure.place is not None
    if run.backend == "rllib":  # its knobs are per node
        return None
    device: DeviceName = "cuda" if training.device == "cuda" else "cpu"
    predictor = Predictor(run, machine, mode=_mode(run, asks=False), device=device, probe_env=False)
    found = retreat(predictor.run, failure.place, predictor, allow)
    return None if found is None else (found[0], Predicted.of(found[1]))


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


def _resumed(asked: Run, folder: RunFolder) -> Training | None:
    """Return the training that the folder holds, to go on with; None where there is none yet."""
    kept = folder.run()
    if kept is None:
        return None
    predicted = folder.predicted()
    run = kept.replace(total_timesteps=asked.total_timesteps, checkpoint=asked.checkpoint or kept.checkpoint)
    for part in ("backend", "algo", "policy", "hyperparams"):
        if getattr(asked, part) != getattr(kept, part):
            raise BadInput(
                f"was begun with another {part}: {getattr(kept, part)}",
                path=folder.path,
                hint="resume with the run it was begun with, or start anew in another --out",
            )
    if asked.seed is not None and asked.seed != kept.seed:
        raise BadInput(f"was begun with seed {kept.seed}, not {asked.seed}", path=folder.path, hint="leave --seed out")
    device = "cuda" if predicted is not None and predicted.gpu is not None else "cpu"
    return Training(asked, run, folder, device, predicted)


def _predictor(run: Run, machine: Machine, *, probe_env: bool, asks: bool = True) -> Predictor:
    mode = _mode(run, asks=asks)
    if run.backend == "brax" and not asks:
        run = load("predicting.with_traced_spaces")(run)
    probing = probe_env and mode != "arithmetic"
    return Predictor(run, machine, mode=mode, device=choose_device(run, machine), probe_env=probing)


def _mode(run: Run, *, asks: bool) -> Mode:
    """Return how to predict: a brax run's compiler is asked, which takes minutes, only to make it fit."""
    return "arithmetic" if run.backend == "brax" and not asks else "auto"


def _fitted(
    asked: Run, machine: Machine, budget: Budget, *, plain: bool, fit_first: bool, quiet: bool
) -> tuple[Run, Footprint] | None:
    """Return the run as it will be trained and its footprint; None when it does not fit and no change was agreed to."""
    if asked.device == "cuda" and not machine.gpus:
        raise BadInput("--device cuda: this machine shows no GPU", path=asked.source, hint="--device cpu")
    with status(f"predicting {asked.name}", show=not quiet):
        predictor = _predictor(asked, machine, probe_env=not plain, asks=fit_first)
        known, evidence = predictor.run, predictor.evidence(predictor.run)
        chosen = known if plain else with_free_savings(known, evidence)
        footprint = predictor.footprint(chosen)
    if fits(footprint, budget) is not False:
        return chosen, footprint
    if not fit_first and fits(footprint, replace(budget, vram=None)) is not False:
        # Nothing is lost when a card is full: the update is redone. A host that is full kills.
        tell(f"{shortage(asked, footprint, budget)}; an update that does not fit is redone in smaller pieces")
        return chosen, footprint
    with status(f"{asked.name} does not fit; looking for a way", show=not quiet):
        plan = make_fit(chosen, budget, predictor, allow=PRICES if fit_first else ("free", "slower"))
    head = shortage(asked, footprint, budget)
    if not plan.fits:
        if fit_first:
            least = " and ".join(f"{format_size(n)} on the {place}" for place, n in plan.needed.items())
            tell(f"{head}; with every knob turned it still needs {least}")
        else:
            tell(f"{head}; no way that learns the same makes it fit")
            tell(f"{_command()} --fit trains what does fit, and says what changes")
        return None
    knobs = turned_knobs(chosen, plan.run)
    if fit_first:
        tell(f"{head}; fitted with {words(knobs)}: {format_size(plan.after.host.high)}")
        for turn in plan.turns:
            if turn.price == "changes-learning":
                tell(f"changes what is learned: {turn.name} {turn.changes[0].before} -> {turn.changes[0].after}")
        return plan.run, plan.after
    tell(f"{head}; with {words(knobs)} it needs {format_size(plan.after.host.high)}, same learning")
    if sys.stdin.isatty() and sys.stderr.isatty() and not quiet and typer.confirm("Train so?", default=True, err=True):
        return plan.run, plan.after
    tell(f"{_command()} --fit")
    return None


def _command() -> str:
    """Return the command that was given."""
    return shlex.join(["legroom", *sys.argv[1:]])


def _train(
    training: Training,
    machine: Machine,
    target: str,
    json: bool,
    html: Path | None,
    next_knob: NextKnob,
    retries: int,
) -> int:
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
        ended = train(training, display, next_knob=next_knob, retries=retries)
    report(ended, training, machine, target, json=json, html=html)
    return ended.exit_code


def _already(folder: RunFolder, json: bool) -> int:
    outcome = folder.outcome()
    assert outcome is not None
    if json:
        say(dumps(outcome.to_json(), indent=2))
    else:
        say(f"{folder.path} is finished ({outcome.timesteps:,} steps); a larger --timesteps goes on")
    return EXIT_GOOD
