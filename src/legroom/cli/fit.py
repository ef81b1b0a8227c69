"""`legroom fit RUN`: makes a run fit, as little changed as needed, and writes the run that does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from legroom.backends.base import require_packages
from legroom.cli import options, scheduler_options
from legroom.cli.answering import Answer, Look
from legroom.cli.help import BUDGET, OUTPUT, WHAT, rarely
from legroom.cli.overrides import repeated, split_settings, with_backend
from legroom.cli.told_notes import told_notes
from legroom.cli.trusting import Trust
from legroom.cli.writing import Force, Html, check_writable
from legroom.environments.script_classes import named_by_file
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput, MissingExtra
from legroom.fitting.grow import grown
from legroom.fitting.predictor import Predictor, is_hopeless
from legroom.fitting.search import fit, refuse_unfittable
from legroom.fitting.tiers import first_that_fits, in_order, recommend
from legroom.fitting.tiers import tier as plan_tier
from legroom.fitting.tiers import tiers as plan_tiers
from legroom.machine import probe
from legroom.machine.child_process import run_file
from legroom.machine.gpu_table import find_gpu
from legroom.model.plan import Plan
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.named_runs import find_workload
from legroom.reading import read, read_all
from legroom.rendering.console import say
from legroom.rendering.plan_text import plan_document, plan_json, verdict_text
from legroom.rendering.run_file import plan_file
from legroom.rendering.tier_table import (
    host_tiers_document,
    host_tiers_json,
    recommendation_document,
    recommendation_json,
    tiers_document,
    tiers_json,
    train_command,
)
from legroom.units import MIB

Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", rich_help_panel=OUTPUT, help="Write the fitted run to FILE."),
]
Grow = Annotated[
    bool,
    typer.Option("--grow", rich_help_panel=rarely(BUDGET), help="Use free memory: more environments, a larger buffer."),
]
Tiers = Annotated[
    str | None,
    typer.Option(metavar="GB,GB,...", rich_help_panel=BUDGET, help="A table by GPU memory or name: 8,12,RTX 4090."),
]
MostSteps = Annotated[
    int | None,
    typer.Option(
        "--max-steps-per-update",
        min=1,
        metavar="N",
        rich_help_panel=rarely(BUDGET),
        help="With --tiers: the most environment steps per update.",
    ),
]
Mode = Annotated[
    options.Mode,
    typer.Option(rich_help_panel=rarely(WHAT), help="auto traces the networks and steps the environment where it can."),
]


def run(
    target: Annotated[str, typer.Argument(metavar="RUN", help="train.py, run.yaml, mine:full, or a workload: mine")],
    ram: options.Ram = None,
    vram: options.Vram = None,
    gpu: options.GpuName = None,
    device: options.DeviceOption = None,
    cpu_only: options.CpuOnly = False,
    reserve: options.Reserve = "0%",
    output: Output = None,
    grow: Grow = False,
    tiers: Tiers = None,
    most_steps: MostSteps = None,
    backend: options.Backend = None,
    mode: Mode = options.Mode.AUTO,
    like: options.Like = None,
    settings: options.Settings = None,
    trust: Trust = False,
    system: scheduler_options.For = None,
    html: Html = None,
    force: Force = False,
    json: options.Json = False,
) -> int:
    """Make a run fit a budget, changed as little as possible. A command after -- is EXECUTED for seconds on a
    simulated GPU (legroom fit --help --).

    Free savings come first, then slower ones, then those that change results. The fitted run is predicted again: its
    whole band lies within the budget. Code that RUN names (`module:attr`) is imported only with --trust. Exit code 1:
    nothing fits (it says what would be needed), or it is unknown without --trust.

    \b
    legroom fit train.py --gpu "RTX 4070"
    legroom fit mine:full --ram 8GiB -o fitted.yaml
    legroom fit --vram 8GiB -- python train.py

    \b
    legroom fit mine:full --ram 8GiB
    legroom fit fire:original --gpu "RTX 3050" --ram 16GiB
    legroom fit train.py --vram 6GiB --reserve 10%
    legroom fit run.yaml --ram 32GiB --grow
    legroom fit gameboy:default --tiers 8,12,16,24
    legroom fit robot:default --tiers
    legroom fit mine --ram 8GiB
    legroom fit mine --ram 8GiB,16GiB,32GiB
    legroom fit mine:full --ram 8GiB --html plan.html
    legroom fit run.yaml --ram 8GiB -o fitted.yaml --for slurm
    """
    for option, file in (("-o", output), ("--html", html)):
        check_writable(option, file, force=force)
    if system is not None and tiers:
        raise BadInput("--for cannot be combined with --tiers", hint="leave one of them out")
    if most_steps is not None and not tiers:
        raise BadInput("--max-steps-per-update is for --tiers", hint="--tiers 8,12,16,24")
    rams = [part.strip() for part in (ram or "").split(",")]
    if len(rams) > 1 and (tiers or grow or output or system):
        hint = "leave out --tiers, --grow, -o and --for, or give one size"
        raise BadInput(f"--ram {ram} is a table of {len(rams)} sizes", hint=hint)
    machine = options.with_gpu(probe(), gpu)
    budgets = [options.chosen_budget(machine, ram=size or None, vram=vram, reserve=reserve) for size in rams]
    budget = budgets[0]
    where: Any = options.chosen_device(device, cpu_only, wants_gpu=bool(vram or gpu or tiers))
    look, answer = Look(machine, budget, mode.value, where, quiet=json, trust=trust), Answer(output, html, json, system)
    overrides = with_backend(split_settings(settings or []), backend)
    kept = reserve if budget.reserve else None
    on_card = vram or (f"{machine.gpus[0].total // MIB}MiB" if gpu and machine.gpus else None)  # train has no --gpu
    device_asked = None if vram or gpu else where
    again = partial(
        repeated, settings or [], like=like, backend=backend, device=device_asked, vram=on_card, reserve=kept
    )
    workload = None if tiers or Path(target).exists() else find_workload(target)
    if workload is not None:
        runs = read_all(target, overrides=overrides, like=like)
        refuse_unfittable(*runs)
        default = f"{workload.name}:{workload.default}"
        if len(budgets) > 1:
            return _host_tiers(target, in_order(target, runs), budgets, look, answer)
        return _recommend(target, runs, default, look, answer, again(ram=ram))
    with told_notes() as notes:
        wanted = read(target, overrides=overrides, like=like)
    refuse_unfittable(wanted)
    answer = replace(answer, notes=notes)
    wanted = named_by_file(wanted, run_file(wanted))  # so that a run file that is written finds the script's classes
    if tiers is not None:
        return _fit_tiers(wanted, _sizes(tiers), look, answer, grow=grow, most_steps=most_steps)
    if len(budgets) > 1:
        return _host_tiers(wanted.name, [wanted], budgets, look, answer)
    asked = repeated((), ram=ram, vram=vram, gpu=gpu, reserve=kept)
    return _fit_one(target, wanted, look, answer, grow=grow, again=again(ram=ram), budget=asked)


def _predictor(run: Run, look: Look, *, grow: bool = False) -> Predictor:
    """Return what predicts variants of the run; meanwhile a terminal shows what arithmetic says at once."""
    quick = look.at_once(run)
    if quick is None:
        return look.at(run)
    if is_hopeless(quick.footprint(quick.run), look.budget):
        return quick  # nothing that takes seconds would change the answer
    first = ""
    if look.shows and not grow:
        first = f"{verdict_text(fit(quick.run, look.budget, quick))}, by arithmetic; measuring"
    return look.at(run, first)


def _fit_one(
    target: str, run: Run, look: Look, answer: Answer, *, grow: bool, again: Sequence[str], budget: Sequence[str]
) -> int:
    """Fit one run to one budget; `again` are the options that train the same, `budget` those of the budget."""
    predictor = _predictor(run, look, grow=grow)
    with look.showing(f"fitting {run.name}"):
        plan = fit(predictor.run, look.budget, predictor)
        plan = grown(plan, predictor) if grow else plan
    answer.write_run(plan.fits, partial(plan_file, plan))
    job = scheduler_options.job_of(plan.after, answer.system, by_legroom=True) if answer.system and plan.fits else None
    more = {"job": job} if answer.system else {}
    answer.say(partial(plan_json, plan, answer.notes, **more), plan_document(plan))
    if job is not None and not answer.json:
        say(f"\n{job['text']}\n")
    if not answer.json and plan.fits:
        say(_next_step(target, plan, answer.output, again, budget, grow=grow))
        try:
            require_packages(plan.run)
        except MissingExtra as missing:  # it was predicted without; better to know now than when it trains
            say(str(missing))
    return EXIT_GOOD if plan.fits else EXIT_FINDINGS


def _fit_tiers(
    run: Run, cards: Sequence[float | str], look: Look, answer: Answer, *, grow: bool, most_steps: int | None
) -> int:
    """Fit one run to cards of several sizes, or to cards by name."""
    how: Any = {"grow": grow, "most_steps": most_steps}
    sizes = [card for card in cards if isinstance(card, float)]
    named = [replace(look, machine=options.with_gpu(look.machine, card)) for card in cards if isinstance(card, str)]
    predictors = [_predictor(run, one, grow=True) for one in named]
    predictor = _predictor(run, look, grow=True) if sizes else predictors[0]
    with look.showing(f"fitting {run.name} to {len(cards)} GPUs"):
        rows = list(plan_tiers(sizes, look.budget, predictor, **how))
        for one, predictor in zip(named, predictors, strict=True):
            gpu = one.machine.gpus[0]
            rows.append(plan_tier(gpu.total, look.budget, predictor, card=gpu.name, **how))
    rows.sort(key=lambda row: row.vram)
    answer.say(partial(tiers_json, rows, answer.notes), tiers_document(run.name, rows))
    return EXIT_GOOD if all(row.plan.fits for row in rows) else EXIT_FINDINGS


def _host_tiers(name: str, runs: Sequence[Run], budgets: Sequence[Budget], look: Look, answer: Answer) -> int:
    """Fit one run, or the runs of a workload by turns, to several sizes of host memory."""
    predictors = {one.name: look.at(one) for one in runs}
    first = predictors[runs[0].name]
    plans = []
    with look.showing(f"fitting {name} to {len(budgets)} sizes of RAM"):
        for budget in sorted(budgets, key=lambda each: each.ram or 0):
            alike = first_that_fits(predictors, runs, budget)[1] if len(runs) > 1 else None
            plans.append(alike or fit(first.run, budget, first))
    answer.say(partial(host_tiers_json, plans, answer.notes), host_tiers_document(name, plans))
    return EXIT_GOOD if all(plan.fits for plan in plans) else EXIT_FINDINGS


def _recommend(
    workload: str, runs: Sequence[Run], default: str, look: Look, answer: Answer, again: Sequence[str]
) -> int:
    """Say which of the workload's named runs to train, and what the knobs would make of the default one."""
    predictors = {one.name: look.at(one) for one in runs}
    with look.showing(f"fitting {default}"):
        found = recommend(predictors, in_order(workload, runs), look.budget)
    answer.write_run(found.shown.fits, partial(plan_file, found.shown))
    answer.say(partial(recommendation_json, found, again), recommendation_document(workload, found, again))
    if answer.system is not None and found.shown.fits and not answer.json:
        say(f"\n{scheduler_options.job_of(found.shown.after, answer.system, by_legroom=True)['text']}")
    return EXIT_GOOD if found.shown.fits else EXIT_FINDINGS


def _next_step(
    target: str, plan: Plan, output: Path | None, again: Sequence[str], budget: Sequence[str], *, grow: bool
) -> str:
    if plan.asked.env.id is None:
        written = "" if output is None else f"written to {output}, which names no environment; "
        program = f"python {shlex.quote(target)}" if target.endswith(".py") else "python train.py"
        way = _program_form(program, budget)
        return f"{written}the program creates its environment itself; fit the program instead:\n  {way}"
    if output is not None:
        return f"written to {output}; train it with: legroom train {shlex.quote(str(output))}"
    if not plan.turns:
        return f"train it with: {train_command(target, plan, again)}"
    if grow:
        return "save it with -o FILE, then train that file"
    return f"train it, or save it with -o FILE:\n  {train_command(target, plan, again)}"


def _program_form(program: str, budget: Sequence[str]) -> str:
    return f"legroom fit {shlex.join(budget or ['--ram', 'SIZE'])} -- {program}"


def _sizes(text: str) -> list[float | str]:
    """Return `8,12,RTX 4090` as numbers and names of cards.

    Raises:
        BadInput: one of them is neither.
    """
    cards: list[float | str] = []
    for part in (each.strip() for each in text.split(",")):
        try:
            size = float(part.lower().removesuffix("gb").removesuffix("gib"))
        except ValueError:
            try:
                cards.append(find_gpu(part).name)
                continue
            except BadInput:
                size = -1.0
        if not 0 < size < 1e6:
            what = f"--tiers {text!r} is not a list of sizes in GB or of GPUs"
            raise BadInput(what, hint="--tiers 8,12,16,24,48,80 or --tiers 'RTX 4070,RTX 4090'")
        cards.append(size)
    return cards
