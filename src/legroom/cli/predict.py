"""`legroom predict RUN...`: what a run will need, item by item, before anything is allocated."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from legroom.catalog import load
from legroom.cli import cluster_options, options
from legroom.cli.game import CartridgeFile, Rom, with_game
from legroom.cli.overrides import split_settings
from legroom.cli.rasters import Rasters, with_rasters
from legroom.cli.train_cluster import with_backend
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.fitting.free import lean_price, with_free_savings, with_lean_storage
from legroom.model.cluster import Cluster
from legroom.model.evidence import Evidence
from legroom.model.run import Run
from legroom.model.verdict import Budget, fits
from legroom.predicting.lean import slowdown
from legroom.predicting.predict import add_up, gather_all
from legroom.probing import probe
from legroom.reading import read_all
from legroom.rendering.console import say, status
from legroom.rendering.prediction import LeanOption, Prediction, comparison_text, prediction_json, prediction_text


def run(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="mine:full, run.yaml, ppo.yml:atari, train.py")],
    mode: Annotated[
        options.Mode, typer.Option(help="auto traces the networks where torch is installed.")
    ] = options.Mode.AUTO,
    device: options.DeviceOption = None,
    cpu_only: options.CpuOnly = False,
    ram: options.Ram = None,
    vram: options.Vram = None,
    gpu: options.GpuName = None,
    reserve: options.Reserve = "0%",
    probe_env: Annotated[
        bool, typer.Option("--probe", help="Step the env for a second: what lean storage would take, and how fast.")
    ] = False,
    backend: cluster_options.Backend = None,
    nodes: cluster_options.Nodes = None,
    node_ram: cluster_options.NodeRam = None,
    node_cpus: cluster_options.NodeCpus = None,
    node_gpu: cluster_options.NodeGpu = None,
    node: cluster_options.NodeKinds = None,
    cluster: cluster_options.RayCluster = None,
    rom: Rom = None,
    cartridge: CartridgeFile = None,
    rasters: Rasters = None,
    like: options.Like = None,
    settings: options.Settings = None,
    everything: Annotated[bool, typer.Option("--all", help="List the small items too.")] = False,
    json: options.Json = False,
) -> int:
    """What a run will need on host and GPU, item by item, and whether it fits.

    One run gives its bill; several give a comparison. Exit code 1: it does not fit, or breaks a rule of its library.

    \b
    legroom predict mine:full
    legroom predict mine:full mine:small --n-envs 2
    legroom predict gameboy:default --gpu "RTX 4070"
    legroom predict ppo.yml:atari --mode arithmetic --json
    legroom predict constants.py --like gameboy:default
    legroom predict train.py --set env.n_envs=8
    legroom predict run.yaml --probe
    legroom predict ninja:hundred --nodes 8 --node-ram 64GiB --node-cpus 16
    legroom predict run.yaml --backend rllib --cluster auto
    """
    described = cluster_options.chosen_cluster(nodes, node_ram, node_cpus, node_gpu, node, cluster)
    if described is not None:
        gpu, backend = gpu or node_gpu, backend or "rllib"
    machine = options.with_gpu(probe(), gpu)
    budget = options.chosen_budget(machine, ram=ram, vram=vram, reserve=reserve)
    where: Any = options.chosen_device(device, cpu_only, wants_gpu=bool(vram or gpu))
    overrides = with_backend(split_settings(settings or []), backend, cluster)
    found = (one for target in runs for one in read_all(target, overrides=overrides, like=like))
    wanted = [with_rasters(with_game(one, rom, cartridge), rasters) for one in found]
    with status(f"predicting {', '.join(one.name for one in wanted)}", show=not json and mode != "arithmetic"):
        gathered = gather_all(wanted, machine, mode=mode.value, device=where, probe_env=probe_env)
    predictions = [_priced(one, evidence, budget) for one, evidence in gathered]
    if described is not None:
        both = zip(predictions, gathered, strict=True)
        predictions = [_per_node(p, evidence, described, budget.reserve) for p, (_, evidence) in both]
    if json:
        say(prediction_json(predictions))
    elif len(predictions) == 1:
        say(prediction_text(predictions[0], everything=everything))
    else:
        say(comparison_text(predictions))
    return EXIT_FINDINGS if any(p.bad for p in predictions) else EXIT_GOOD


def _per_node(prediction: Prediction, evidence: Evidence, cluster: Cluster, reserve: float) -> Prediction:
    """Return the prediction with a bill per node; whether it fits is theirs to say."""
    if prediction.run.backend != "rllib":
        raise BadInput(f"--nodes is for RLlib, {prediction.run.name} is of backend {prediction.run.backend}")
    bills = tuple(load("predicting.predict_nodes")(prediction.run, evidence, cluster, reserve=reserve))
    return replace(prediction, cluster=cluster, bills=bills, fits=all(bill.fits for bill in bills))


def _priced(run: Run, evidence: Evidence, budget: Budget) -> Prediction:
    """Return the prediction of a run as it is written, with every free saving, and with lean storage at its price."""
    footprint, freely = add_up(run, evidence), with_free_savings(run, evidence)
    price, lean = lean_price(run, evidence), None
    if price is not None:
        lean = LeanOption(add_up(with_lean_storage(freely), evidence), price, slowdown(run, evidence))
    return Prediction(
        run=run,
        footprint=footprint,
        free=add_up(freely, evidence),
        budget=budget,
        fits=fits(footprint, budget),
        lean=lean,
        probe=evidence.lean,
    )
