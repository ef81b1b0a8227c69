"""predict(run) -> Footprint: gather the evidence once, then let every part write its items.

`arithmetic` looks at the run file only: nothing is imported that a run names, nothing is measured. `trace` builds the
real networks and follows one real update on fake tensors. `auto` traces where the libraries are installed and falls
back to arithmetic, with a note, where they are not or where the policy cannot be traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from legroom.catalog import load
from legroom.errors import BadInput, MissingExtra, Untraceable
from legroom.model.constraints import broken_rules
from legroom.model.evidence import Evidence, NetTrace, Scratch
from legroom.model.footprint import AllocatorPeaks, Footprint, Item
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.predicting.checkpoint import checkpoint_items
from legroom.predicting.envs import envs_items
from legroom.predicting.evaluation import evaluation_items
from legroom.predicting.net_arithmetic import estimate_net
from legroom.predicting.network import network_items
from legroom.predicting.replay import replay_items
from legroom.predicting.rollout import rollout_items
from legroom.predicting.runtime import runtime_items
from legroom.probing import probe
from legroom.probing.base import base_figures
from legroom.units import LARGEST

Mode = Literal["arithmetic", "trace", "auto"]
MODES: tuple[Mode, ...] = ("auto", "trace", "arithmetic")
DeviceName = Literal["cpu", "cuda"]

# brax runs have one part of their own, catalogued because most commands do without it
PARTS: tuple[Callable[[Run, Evidence], Iterable[Item]], ...] = (
    runtime_items,
    envs_items,
    rollout_items,
    replay_items,
    network_items,
    evaluation_items,
    checkpoint_items,
)


def predict(
    run: Run, machine: Machine | None = None, *, mode: Mode = "auto", device: DeviceName | None = None
) -> Footprint:
    """Return what the run will need, before anything of it is allocated.

    Args:
        device: overrides the run's own; `auto` there means cuda where the machine has a GPU.

    Raises:
        BadInput: the spaces are not known, or the sizes are beyond 2**63 bytes.
        MissingExtra: mode `trace` without the libraries.
    """
    return add_up(*gather(run, machine or probe(), mode=mode, device=device))


def gather(
    run: Run, machine: Machine, *, mode: Mode = "auto", device: DeviceName | None = None
) -> tuple[Run, Evidence]:
    """Return the run with its spaces, and all there is to know about it; the slow half of a prediction."""
    device = device or choose_device(run, machine)
    notes: list[str] = []
    run, env_nbytes = _with_spaces(run, mode)
    if device == "cuda" and not machine.gpus:
        notes.append("no GPU here: what the CUDA driver itself keeps in host memory is not included")
    net, scratch = None, None
    if run.backend != "brax":
        net = _net(run, device, mode, notes)
        scratch = _scratch(run, net, device, notes)
    evidence = Evidence(
        machine=machine,
        device=device,
        base=base_figures(measure=mode != "arithmetic", device=device),
        net=net,
        scratch=scratch,
        env_nbytes=env_nbytes,
        library_versions=machine.versions,
        notes=tuple(notes),
    )
    return run, evidence


def add_up(run: Run, evidence: Evidence) -> Footprint:
    """Return the bill; also for a variant of the run the evidence was gathered for, if its networks are the same."""
    parts = (load("predicting.brax_items"),) if run.backend == "brax" else PARTS
    items = [item for part in parts for item in part(run, evidence)]
    allocator: AllocatorPeaks | None = None
    if evidence.device == "cuda" and evidence.net is not None:
        on_gpu, allocator = load("predicting.gpu_items")(run, evidence.net, evidence.machine)
        items += on_gpu
    if any(item.total > LARGEST for item in items):
        largest = max(items, key=lambda item: item.total)
        raise BadInput(
            f"{largest.name} would take {largest.total:,} bytes, over 2**63 ({largest.why})", path=run.source
        )
    items = [item for item in items if item.nbytes]
    return Footprint(run.name, tuple(items), evidence.device, tuple(broken_rules(run)), allocator, evidence.notes)


def choose_device(run: Run, machine: Machine) -> DeviceName:
    """Return the device a run trains on when nothing else is said."""
    if run.device != "auto":
        return run.device
    return "cuda" if machine.gpus else "cpu"


def _with_spaces(run: Run, mode: Mode) -> tuple[Run, int | None]:
    if run.env.spaces is not None or mode == "arithmetic" or run.env.id is None:
        return run, None  # facts.spaces_of says what to do when there are none
    spaces, env_nbytes = load("sb3.build_spaces")(run)
    return run.replace(env=run.env.model_copy(update={"spaces": spaces})), env_nbytes


def _net(run: Run, device: DeviceName, mode: Mode, notes: list[str]) -> NetTrace:
    if mode == "arithmetic":
        return estimate_net(run, device)
    try:
        return load("sb3.trace")(run, device)
    except MissingExtra as missing:
        if mode == "trace":
            raise
        notes.append(f"predicted by arithmetic: {missing}")
    except Untraceable as reason:
        notes.append(f"predicted by arithmetic, with a wider band: the policy cannot be traced: {reason}")
    return estimate_net(run, device)


def _scratch(run: Run, net: NetTrace, device: DeviceName, notes: list[str]) -> Scratch | None:
    if device != "cpu" or not net.traced:
        return None
    try:
        return load("sb3.scratch")(run, net)
    except Untraceable as reason:
        notes.append(f"operators' scratch memory was not measured: {reason}")
        return None
