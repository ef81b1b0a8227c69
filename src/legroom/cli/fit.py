"""`legroom fit RUN`: makes a run fit, as little changed as needed, and writes the run that does."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from legroom.catalog import load
from legroom.cli import cluster_options, options
from legroom.cli.fit_cluster import fit_cluster
from legroom.cli.overrides import split_settings
from legroom.cli.train_cluster import with_backend
from legroom.cli.writing import Html, check_writable, write_text
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.fitting.grow import grown
from legroom.fitting.predictor import Predictor
from legroom.fitting.recommend import compare, recommended
from legroom.fitting.search import fit
from legroom.fitting.tiers import tiers as plan_tiers
from legroom.machine import probe
from legroom.model.files import write_whole
from legroom.model.machine import Machine
from legroom.model.plan import PRICES, Plan
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.named_runs import find_workload
from legroom.reading import read, read_all
from legroom.rendering.console import say, status, told
from legroom.rendering.fitting import plan_json, plan_text
from legroom.rendering.run_file import plan_file
from legroom.rendering.tiers import recommendation_json, recommendation_text, tiers_json, tiers_text


def run(
    target: Annotated[str, typer.Argument(metavar="RUN", help="mine:full, run.yaml, train.py; or a workload: mine")],
    ram: options.Ram = None,
    vram: options.Vram = None,
    gpu: options.GpuName = None,
    device: options.DeviceOption = None,
    cpu_only: options.CpuOnly = False,
    reserve: options.Reserve = "0%",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the fitted run, commented, to FILE.")
    ] = None,
    grow: Annotated[
        bool, typer.Option("--grow", help="Use what is free: more envs, a larger buffer, up to the budget.")
    ] = False,
    tiers: Annotated[
        str | None, typer.Option(metavar="GB,GB,...", help="A table by GPU memory: 8,12,16,24,48,80.")
    ] = None,
    most_steps: Annotated[
        int | None,
        typer.Option("--max-steps-per-update", min=1, metavar="N", help="brax tiers: env steps an update may have."),
    ] = None,
    backend: cluster_options.Backend = None,
    nodes: cluster_options.Nodes = None,
    node_ram: cluster_options.NodeRam = None,
    node_cpus: cluster_options.NodeCpus = None,
    node_gpu: cluster_options.NodeGpu = None,
    node: cluster_options.NodeKinds = None,
    cluster: cluster_options.RayCluster = None,
    mode: Annotated[
        options.Mode, typer.Option(help="auto traces the networks and steps the env where it can.")
    ] = options.Mode.AUTO,
    like: options.Like = None,
    settings: options.Settings = None,
    html: Html = None,
    json: options.Json = False,
) -> int:
    """Make a run fit into a budget: free savings first, then slower ones, then what changes the learning.

    Knobs are turned in order of price and as little as needed; what comes out is proven by predicting it, its whole
    band inside the budget. Exit code 1: nothing fits (and it says what would be needed).

    \b
    legroom fit mine:full --ram 8GiB
    legroom fit mine:full --ram 8GiB -o fitted.yaml
    legroom fit fire:original --gpu "RTX 3050" --ram 16GiB
    legroom fit train.py --vram 6GiB --reserve 10%
    legroom fit run.yaml --ram 32GiB --grow
    legroom fit gameboy:default --tiers 8,12,16,24
    legroom fit robot:default --tiers 8,12,16,24,48,80
    legroom fit mine --ram 8GiB
    legroom fit mine:full --ram 8GiB --html plan.html
    legroom fit ninja:parallel --nodes 8 --node-ram 64GiB -o fitted.yaml
    legroom fit run.yaml --node 2x64GiB --node 6x32GiB --node-cpus 16
    """
    sizes = _sizes(tiers)
    check_writable("--html", html)
    described = cluster_options.chosen_cluster(nodes, node_ram, node_cpus, node_gpu, node, cluster)
    if described is not None:
        if sizes or grow or ram or vram:
            raise BadInput(
                "--ram, --vram, --tiers and --grow are for one machine", hint="--node-ram says what nodes have"
            )
        settings_of_run = with_backend(split_settings(settings or []), backend or "rllib", cluster)
        wanted = read(target, overrides=settings_of_run, like=like)
        on = options.chosen_device(device, cpu_only, wants_gpu=bool(gpu or node_gpu))
        machine = options.with_gpu(probe(), gpu or node_gpu)
        share = options.parse_share(reserve)
        return fit_cluster(wanted, described, machine, mode.value, on, reserve=share, output=output, json=json)
    machine = options.with_gpu(probe(), gpu)
    budget = options.chosen_budget(machine, ram=ram, vram=vram, reserve=reserve)
    where: Any = options.chosen_device(device, cpu_only, wants_gpu=bool(vram or gpu or sizes))
    look = _Look(machine, mode.value, where, quiet=json)
    overrides = with_backend(split_settings(settings or []), backend, cluster)
    workload = find_workload(target)
    if workload is not None and not sizes and not Path(target).exists():
        runs = read_all(target, overrides=overrides, like=like)
        default = next(one for one in runs if one.name == f"{workload.name}:{workload.default}")
        return _recommend(target, runs, default, budget, look, output, html, json)
    wanted = read(target, overrides=overrides, like=like)
    if wanted.backend == "rllib":
        raise BadInput(
            f"{wanted.name} is of backend rllib, which is fitted to nodes", hint="--nodes 1 --node-ram 32GiB"
        )
    predictor = look.at(wanted)
    if sizes:
        with look.showing(f"fitting {wanted.name} to {len(sizes)} sizes of GPU"):
            rows = list(plan_tiers(sizes, budget, predictor, grow=grow, most_steps=most_steps))
        _write_page(html, "rendering.tiers_page", wanted.name, rows)
        say(tiers_json(rows) if json else tiers_text(wanted.name, rows))
        _say_written(html, json)
        return EXIT_GOOD if all(row.plan.fits for row in rows) else EXIT_FINDINGS
    with look.showing(f"fitting {wanted.name}"):
        plan = fit(predictor.run, budget, predictor)
        plan = grown(plan, predictor) if grow else plan
    _write(plan, output)
    _write_page(html, "rendering.plan_page", plan)
    say(plan_json(plan) if json else plan_text(plan))
    _say_written(html, json)
    if not json and plan.fits:
        given = {"--ram": ram, "--vram": vram, "--reserve": reserve if budget.reserve else None}
        repeated = [part for name, text in given.items() if text for part in (name, text)]
        say(_next_step(target, plan, output, None if grow else repeated))
    return EXIT_GOOD if plan.fits else EXIT_FINDINGS


class _Look:
    """How runs are looked at: the same for every run of one command."""

    def __init__(self, machine: Machine, mode: Any, device: Any, *, quiet: bool) -> None:
        self.machine, self.mode, self.device, self.quiet = machine, mode, device, quiet

    def at(self, run: Run) -> Predictor:
        with self.showing(f"predicting {run.name}") as shown:
            probing = self.mode != "arithmetic" and run.env.id is not None
            how: Any = {"mode": self.mode, "device": self.device, "probe_env": probing}
            return Predictor(run, self.machine, **how, progress=told(shown))

    def showing(self, text: str) -> Any:
        return status(text, show=not self.quiet and self.mode != "arithmetic")


def _recommend(
    workload: str,
    runs: Sequence[Run],
    default: Run,
    budget: Budget,
    look: _Look,
    output: Path | None,
    html: Path | None,
    json: bool,
) -> int:
    """Say which of the workload's named runs fits, and what the knobs would make of the default one."""
    predictors = {one.name: look.at(one) for one in runs}
    named = compare(list(predictors.values()), budget)
    chosen = recommended(named)
    with look.showing(f"fitting {default.name}"):
        plan = fit(predictors[default.name].run, budget, predictors[default.name])
        shown = plan
        if chosen is not None:
            predictor = predictors[chosen.run.name]
            shown = fit(predictor.run, budget, predictor, allow=PRICES[:1])
    _write(shown, output)
    _write_page(html, "rendering.recommendation_page", workload, named, chosen, plan)
    if json:
        say(recommendation_json(named, chosen, plan, shown))
    else:
        say(recommendation_text(workload, named, chosen, plan))
    _say_written(html, json)
    return EXIT_GOOD if shown.fits else EXIT_FINDINGS


def _write(plan: Plan, output: Path | None) -> None:
    if output is None or not plan.fits:
        return
    try:
        write_whole(output, plan_file(plan, shlex.join(["legroom", *sys.argv[1:]])).encode())
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", path=output, hint="-o FILE") from None


def _write_page(html: Path | None, page: str, *about: Any) -> None:
    if html is not None:
        write_text("--html", html, load(page)(*about))


def _say_written(html: Path | None, json: bool) -> None:
    if html is not None and not json:
        say(f"written: {html}")


def _next_step(target: str, plan: Plan, output: Path | None, budget: Sequence[str] | None) -> str:
    if output is not None:
        return f"written to {output}; train it with: legroom train {shlex.quote(str(output))}"
    if not plan.turns:
        return f"train it with: legroom train {shlex.quote(target)}"
    if budget is None:
        return "keep it with -o FILE, and train that"
    return f"train it so, or keep it with -o FILE:\n  {shlex.join(['legroom', 'train', target, '--fit', *budget])}"


def _sizes(text: str | None) -> list[float]:
    """Return `8,12,16` as numbers.

    Raises:
        BadInput: one of them is none.
    """
    if text is None:
        return []
    try:
        sizes = [float(part.strip().lower().removesuffix("gb").removesuffix("gib")) for part in text.split(",")]
    except ValueError:
        sizes = [-1.0]
    if not all(0 < size < 1e6 for size in sizes):
        raise BadInput(f"--tiers {text!r} are no sizes in GB", hint="--tiers 8,12,16,24,48,80")
    return sizes
