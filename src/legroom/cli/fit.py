"""`legroom fit RUN`: makes a run fit, as little changed as needed, and writes the run that does."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from legroom.backends.base import require_packages
from legroom.cli.budgets import chosen_budget, place_of, with_gpu
from legroom.cli.commands import FitCommand, LimitOptions
from legroom.cli.output import check_writable, job_of, show, write_text
from legroom.cli.overrides import repeated, split_settings, told_notes, with_backend
from legroom.environments.script_classes import named_by_file
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput, MissingExtra, Unseen
from legroom.fitting.predictor import Predictor, is_hopeless, predictor_at_once
from legroom.fitting.search import fit, refuse_unfittable
from legroom.fitting.tiers import first_that_fits, grown, in_order, recommend
from legroom.fitting.tiers import tier as plan_tier
from legroom.fitting.tiers import tiers as plan_tiers
from legroom.machine.child_process import run_file
from legroom.machine.gpu_table import find_gpu
from legroom.model.machine import Machine
from legroom.model.plan import Plan
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.named_runs import find_workload
from legroom.predicting.predict import DeviceName
from legroom.reading import read, read_all
from legroom.rendering.console import say, status, told
from legroom.rendering.plan_text import plan_document, plan_json
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


def run(asked: FitCommand) -> int:
    for option, file in (("-o", asked.output), ("--html", asked.html)):
        check_writable(option, file, force=asked.force)
    if asked.system is not None and asked.tiers:
        raise BadInput("--for cannot be combined with --tiers", hint="leave one of them out")
    if asked.max_steps_per_update is not None and not asked.tiers:
        raise BadInput("--max-steps-per-update is for --tiers", hint="--tiers 8,12,16,24")
    rams = [part.strip() for part in (asked.ram or "").split(",")]
    if len(rams) > 1 and (asked.tiers or asked.grow or asked.output or asked.system):
        hint = "leave out --tiers, --grow, -o and --for, or give one size"
        raise BadInput(f"--ram {asked.ram} is a table of {len(rams)} sizes", hint=hint)
    by_size = [LimitOptions(ram=size or None, vram=asked.vram, reserve=asked.reserve) for size in rams]
    machine, where = place_of(asked, wants_gpu=bool(asked.tiers))
    budgets = [chosen_budget(machine, each) for each in by_size]
    fitting = Fitting(asked, machine, budgets[0], where)
    overrides = with_backend(split_settings(asked.settings), asked.backend)
    workload = None if asked.tiers or Path(asked.target).exists() else find_workload(asked.target)
    if workload is not None:
        runs = read_all(asked.target, overrides=overrides, like=asked.like)
        refuse_unfittable(*runs)
        if len(budgets) > 1:
            return _host_tiers(asked.target, in_order(asked.target, runs), budgets, fitting)
        return _recommend(runs, f"{workload.name}:{workload.default}", fitting)
    with told_notes() as notes:
        wanted = read(asked.target, overrides=overrides, like=asked.like)
    refuse_unfittable(wanted)
    fitting = replace(fitting, notes=notes)
    wanted = named_by_file(wanted, run_file(wanted))  # so that a run file that is written finds the script's classes
    if asked.tiers is not None:
        return _fit_tiers(wanted, _sizes(asked.tiers), fitting)
    if len(budgets) > 1:
        return _host_tiers(wanted.name, [wanted], budgets, fitting)
    return _fit_one(wanted, fitting)


@dataclass(frozen=True)
class Fitting:
    """What one command is asked, and where; `notes` are those of reading the run."""

    asked: FitCommand
    machine: Machine
    budget: Budget
    device: DeviceName | None
    notes: Sequence[str] = ()

    def predictor(self, run: Run) -> Predictor:
        """Return what predicts variants of the run; arithmetic alone where nothing that takes seconds would change it.

        Raises:
            Unseen: code that decides whether it fits was not imported, because --trust was not given.
        """
        if self.asked.mode == "arithmetic":
            return self.measured(run)
        quick = predictor_at_once(run, self.machine, device=self.device, trust=self.asked.trust)
        hopeless = quick is not None and is_hopeless(quick.footprint(quick.run), self.budget)
        return quick if quick is not None and hopeless else self.measured(run)

    def measured(self, run: Run) -> Predictor:
        with self.showing(f"predicting {run.name}") as shown:
            predictor = Predictor(
                run, self.machine, mode=self.asked.mode, device=self.device, trust=self.asked.trust,
                progress=told(shown),
            )  # fmt: skip
        if predictor.unseen:
            raise Unseen(run.name, predictor.unseen, path=run.source)
        return predictor

    def showing(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Show that something is being worked on, where it takes long."""
        return status(text, show=not self.asked.json and self.asked.mode != "arithmetic")

    def write_run(self, plan: Plan) -> None:
        """Write the run that fits where `-o` says.

        Raises:
            BadInput: it cannot be written.
        """
        if self.asked.output is not None and plan.fits:
            write_text("-o", self.asked.output, plan_file(plan, shlex.join(["legroom", *sys.argv[1:]])))

    def job(self, plan: Plan) -> dict[str, Any] | None:
        """Return what to ask a scheduler for; None where that was not asked or nothing fits."""
        system = self.asked.system
        return job_of(plan.after, system, by_legroom=True) if system and plan.fits else None

    def again(self) -> list[str]:
        """Return the options that give the same run and budget to `legroom train`, which has no --gpu."""
        asked, card = self.asked, self.asked.vram
        if card is None and asked.gpu and self.machine.gpus:
            card = f"{self.machine.gpus[0].total // MIB}MiB"
        return repeated(
            asked.settings, like=asked.like, backend=asked.backend,
            device=None if asked.vram or asked.gpu else self.device, vram=card, reserve=self._reserve, ram=asked.ram,
        )  # fmt: skip

    @property
    def _reserve(self) -> str | None:
        return self.asked.reserve if self.budget.reserve else None

    def next_step(self, plan: Plan) -> str:
        """Return how to go on with a plan that fits."""
        asked, target = self.asked, self.asked.target
        if plan.asked.env.id is None:
            written = "" if asked.output is None else f"written to {asked.output}, which names no environment; "
            program = f"python {shlex.quote(target)}" if target.endswith(".py") else "python train.py"
            limits = repeated((), ram=asked.ram, vram=asked.vram, gpu=asked.gpu, reserve=self._reserve)
            way = f"legroom fit {shlex.join(limits or ['--ram', 'SIZE'])} -- {program}"
            return f"{written}the program creates its environment itself; fit the program instead:\n  {way}"
        if asked.output is not None:
            return f"written to {asked.output}; train it with: legroom train {shlex.quote(str(asked.output))}"
        command = train_command(target, plan, self.again())
        if not plan.turns:
            return f"train it with: {command}"
        if asked.grow:
            return "save it with -o FILE, then train that file"
        return f"train it, or save it with -o FILE:\n  {command}"


def _fit_one(run: Run, fitting: Fitting) -> int:
    """Fit one run to one budget."""
    asked, predictor = fitting.asked, fitting.predictor(run)
    with fitting.showing(f"fitting {run.name}"):
        plan = fit(predictor.run, fitting.budget, predictor)
        plan = grown(plan, predictor) if asked.grow else plan
    fitting.write_run(plan)
    job = fitting.job(plan)
    more = {"job": job} if asked.system else {}
    show(asked, partial(plan_json, plan, fitting.notes, **more), plan_document(plan))
    if job is not None and not asked.json:
        say(f"\n{job['text']}\n")
    if not asked.json and plan.fits:
        say(fitting.next_step(plan))
        try:
            require_packages(plan.run)
        except MissingExtra as missing:  # it was predicted without; better to know now than when it trains
            say(str(missing))
    return EXIT_GOOD if plan.fits else EXIT_FINDINGS


def _fit_tiers(run: Run, cards: Sequence[float | str], fitting: Fitting) -> int:
    """Fit one run to cards of several sizes, or to cards by name."""
    how: Any = {"grow": fitting.asked.grow, "most_steps": fitting.asked.max_steps_per_update}
    sizes = [card for card in cards if isinstance(card, float)]
    named = [replace(fitting, machine=with_gpu(fitting.machine, card)) for card in cards if isinstance(card, str)]
    predictors = [one.predictor(run) for one in named]
    predictor = fitting.predictor(run) if sizes else predictors[0]
    with fitting.showing(f"fitting {run.name} to {len(cards)} GPUs"):
        rows = list(plan_tiers(sizes, fitting.budget, predictor, **how))
        for one, predictor in zip(named, predictors, strict=True):
            gpu = one.machine.gpus[0]
            rows.append(plan_tier(gpu.total, fitting.budget, predictor, card=gpu.name, **how))
    rows.sort(key=lambda row: row.vram)
    show(fitting.asked, partial(tiers_json, rows, fitting.notes), tiers_document(run.name, rows))
    return EXIT_GOOD if all(row.plan.fits for row in rows) else EXIT_FINDINGS


def _host_tiers(name: str, runs: Sequence[Run], budgets: Sequence[Budget], fitting: Fitting) -> int:
    """Fit one run, or the runs of a workload by turns, to several sizes of host memory."""
    predictors = {one.name: fitting.measured(one) for one in runs}
    first = predictors[runs[0].name]
    plans = []
    with fitting.showing(f"fitting {name} to {len(budgets)} sizes of RAM"):
        for budget in sorted(budgets, key=lambda each: each.ram or 0):
            alike = first_that_fits(predictors, runs, budget)[1] if len(runs) > 1 else None
            plans.append(alike or fit(first.run, budget, first))
    show(fitting.asked, partial(host_tiers_json, plans, fitting.notes), host_tiers_document(name, plans))
    return EXIT_GOOD if all(plan.fits for plan in plans) else EXIT_FINDINGS


def _recommend(runs: Sequence[Run], default: str, fitting: Fitting) -> int:
    """Say which of the workload's named runs to train, and what the knobs would make of the default one."""
    workload, again = fitting.asked.target, fitting.again()
    predictors = {one.name: fitting.measured(one) for one in runs}
    with fitting.showing(f"fitting {default}"):
        found = recommend(predictors, in_order(workload, runs), fitting.budget)
    fitting.write_run(found.shown)
    document = recommendation_document(workload, found, again)
    show(fitting.asked, partial(recommendation_json, found, again), document)
    if (job := fitting.job(found.shown)) is not None and not fitting.asked.json:
        say(f"\n{job['text']}")
    return EXIT_GOOD if found.shown.fits else EXIT_FINDINGS


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
