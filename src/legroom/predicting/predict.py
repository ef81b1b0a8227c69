"""predict(run) -> Footprint: gather the evidence once, then let every part write its items.

`arithmetic` looks at the run file only: nothing is imported that a run names, nothing is measured. `trace` builds the
real networks and follows one real update on fake tensors. `auto` traces where the libraries are installed and falls
back to arithmetic, with a note, where they are not or where the policy cannot be traced.

A brax run is one compiled program, so its compiler is asked instead: `trace` about the very run, `auto` only where
nothing is known of its environment yet, since that takes minutes; what it said is kept for all settings
(`brax_calibration`).

Where the environment is built anyway, since the run does not say its spaces, it is also stepped for a second: that
tells what lean storage would take, and whether it would be slower (`env_probe`). `probe_env` asks for it where
they are declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from legroom.backends.sb3.bill.checkpoint import checkpoint_items
from legroom.backends.sb3.bill.envs import envs_items
from legroom.backends.sb3.bill.evaluation import evaluation_items
from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.backends.sb3.bill.network import SCRATCH_ITEMS, network_items
from legroom.backends.sb3.bill.replay import replay_items
from legroom.backends.sb3.bill.rollout import rollout_items
from legroom.backends.sb3.bill.runtime import runtime_items
from legroom.backends.sb3.stored import is_sb3, may_store_leanly
from legroom.catalog import load
from legroom.errors import BadInput, MissingExtra
from legroom.machine import probe
from legroom.machine.base import base_figures, figures_for
from legroom.machine.versions import is_installed
from legroom.model.constraints import broken_rules
from legroom.model.evidence import EnvLook, Evidence, Look, NetTrace
from legroom.model.footprint import AllocatorPeaks, Footprint, Item, Phase
from legroom.model.machine import Machine
from legroom.model.run import Run, Spaces
from legroom.model.spaces import describe, leaves
from legroom.units import LARGEST

Mode = Literal["arithmetic", "trace", "auto"]
MODES: tuple[Mode, ...] = ("auto", "trace", "arithmetic")
DeviceName = Literal["cpu", "cuda"]
UPDATE_MARGIN = 0.3  # an update estimated by arithmetic may really need so much more
TOLERATED_DOUBT = 0.02  # of the peak: unmeasured scratch below it is not worth the seconds of a real update

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
    run: Run,
    machine: Machine | None = None,
    *,
    mode: Mode = "auto",
    device: DeviceName | None = None,
    probe_env: bool = False,
) -> Footprint:
    """Return what the run will need, before anything of it is allocated.

    Args:
        device: overrides the run's own; `auto` there means cuda where the machine has a GPU.
        probe_env: build and step the environment also where the run declares its spaces.

    Raises:
        BadInput: the spaces are not known, or the sizes are beyond 2**63 bytes.
        MissingExtra: mode `trace` without the libraries.
    """
    return add_up(*gather(run, machine or probe(), mode=mode, device=device, probe_env=probe_env))


def gather(
    run: Run,
    machine: Machine,
    *,
    mode: Mode = "auto",
    device: DeviceName | None = None,
    probe_env: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Run, Evidence]:
    """Return the run with its spaces, and all there is to know about it; the slow half of a prediction."""
    return gather_all([run], machine, mode=mode, device=device, probe_env=probe_env, progress=progress)[0]


def gather_all(
    runs: Sequence[Run],
    machine: Machine,
    *,
    mode: Mode = "auto",
    device: DeviceName | None = None,
    probe_env: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> list[tuple[Run, Evidence]]:
    """Return the same for several runs, which share the cost of importing the libraries.

    Args:
        progress: is told what takes long.
    """
    if probe_env and mode == "arithmetic":
        raise BadInput("probing builds the environment, which mode arithmetic does not", hint="mode auto or trace")
    runs = [_asked_of_compiler(run, mode, progress) if run.backend == "brax" else run for run in runs]
    built = [_with_spaces(run, mode, probe_env) for run in runs]
    devices = [device or choose_device(run, machine) for run in runs]
    looks = _look([_looked_at(run) for run, _ in built], devices, machine, mode)
    gathered = []
    for (run, env), where, look in zip(built, devices, looks, strict=True):
        notes = list(look.notes)
        if env is not None and env.not_probed:
            notes.append(f"the env could not be probed: {env.not_probed}")
        if run.backend == "brax":
            notes.append(load("predicting.brax_note")(run, where))
        if where == "cuda" and not machine.gpus:
            notes.append("no GPU here: what the CUDA driver itself keeps in host memory is not included")
        evidence = Evidence(
            machine=machine,
            device=where,
            base=base_figures(needed=() if mode == "arithmetic" else _base_needs(run), device=where),
            net=look.net,
            scratch=look.scratch,
            env_nbytes=env.nbytes if env else None,
            lean=env.probe if env else None,
            library_versions=machine.versions,
            notes=tuple(notes),
            ray=load("probing.ray_figures")(measure=mode != "arithmetic", device=where) if is_rllib(run) else None,
        )
        gathered.append((run, evidence))
    return gathered


def add_up(run: Run, evidence: Evidence) -> Footprint:
    """Return the bill; also for a variant of the run the evidence was gathered for, if its networks are the same."""
    if is_rllib(run):
        return _checked_sizes(run, load("predicting.rllib_machine")(run, evidence))
    parts = (load("predicting.brax_items"),) if run.backend == "brax" else PARTS
    items = [item for part in parts for item in part(run, evidence)]
    allocator: AllocatorPeaks | None = None
    if evidence.device == "cuda" and evidence.net is not None:
        on_gpu, allocator = load("predicting.gpu_items")(run, evidence.net, evidence.machine)
        items += on_gpu
    items = [item for item in items if item.nbytes]
    found = Footprint(run.name, tuple(items), evidence.device, tuple(broken_rules(run)), allocator, evidence.notes)
    return _checked_sizes(run, found)


def _checked_sizes(run: Run, footprint: Footprint) -> Footprint:
    largest = max(footprint.items, key=lambda item: item.total)
    if largest.total > LARGEST:
        raise BadInput(
            f"{largest.name} would take {largest.total:,} bytes, over 2**63 ({largest.why})", path=run.source
        )
    return footprint


def choose_device(run: Run, machine: Machine) -> DeviceName:
    """Return the device a run trains on when nothing else is said."""
    if run.device != "auto":
        return run.device
    return "cuda" if machine.gpus else "cpu"


def is_rllib(run: Run) -> bool:
    return run.backend == "rllib"


def _looked_at(run: Run) -> Run:
    """Return the run whose networks and update are looked at: an RLlib run has those of an SB3 run."""
    return load("predicting.shadow_of")(run) if is_rllib(run) else run


def _base_needs(run: Run) -> set[str]:
    if run.backend in ("brax", "rllib"):
        return set()
    return figures_for({run.env.workers, run.eval.workers if run.eval else "dummy"}, run.env.start_method)


def _asked_of_compiler(run: Run, mode: Mode, progress: Callable[[str], None]) -> Run:
    """Have the compiler asked about a brax run where the mode wants it; return the run with its spaces, where known.

    Raises:
        MissingExtra, BadInput: mode `trace` without jax, or a run that brax refuses.
    """
    ask = mode == "trace"
    if mode == "auto" and not load("predicting.is_calibrated")(run):
        refused = any(finding.severity == "error" for finding in broken_rules(run))
        ask = not refused and is_installed("jax") and is_installed("brax")
    if ask:
        load("predicting.calibrate")(run, progress=progress)
    return load("predicting.with_brax_spaces")(run)


def _with_spaces(run: Run, mode: Mode, probe_env: bool) -> tuple[Run, EnvLook | None]:
    """Return the run with its spaces, and what building its environment told; None where it was not built."""
    declared = run.env.spaces
    if declared is not None and probe_env and is_sb3(run):
        return run, _look_only(run, declared)
    if declared is not None or mode == "arithmetic" or run.env.id is None or run.backend == "brax":
        return run, None  # facts.spaces_of says what to do when there are none
    if not is_installed("gymnasium"):
        raise MissingExtra("sb3", "gymnasium", what=f"building env {run.env.id!r} to see its spaces")
    look = load("sb3.look_at_env")(run, probe=is_sb3(run))
    return run.replace(env=run.env.model_copy(update={"spaces": look.spaces})), look


def _look_only(run: Run, declared: Spaces) -> EnvLook:
    """Return what the environment tells beside its spaces; these are the declared ones, whatever it has."""
    try:
        look = load("sb3.look_at_env")(run, probe=True)
    except (BadInput, MissingExtra) as failed:
        return EnvLook(declared, not_probed=str(failed))
    if not may_store_leanly(run):
        return replace(look, not_probed=f"lean storage does not hold what {run.algo} stores")
    if _sizes(look.spaces) != _sizes(declared):
        return EnvLook(declared, not_probed=f"it shows {describe(look.spaces.observation)}, not what env.spaces says")
    return look


def _sizes(spaces: Spaces) -> dict[str, tuple[tuple[int, ...], str]]:
    return {key: (leaf.shape, leaf.dtype) for key, leaf in leaves(spaces.observation).items()}


def _look(runs: Sequence[Run], devices: Sequence[DeviceName], machine: Machine, mode: Mode) -> list[Look]:
    if mode == "arithmetic":
        return [Look(_estimate(run, on)) for run, on in zip(runs, devices, strict=True)]
    measure = [_worth_measuring(run, machine, on) for run, on in zip(runs, devices, strict=True)]
    return load("predicting.look_closely")(runs, devices, measure, strict=mode == "trace")


def _estimate(run: Run, device: DeviceName) -> NetTrace | None:
    return None if run.backend == "brax" else estimate_net(run, device)


def _worth_measuring(run: Run, machine: Machine, device: DeviceName) -> bool:
    """Return whether a real update should be made: it may be the host's peak, and its scratch matters there."""
    if run.backend == "brax":
        return False
    evidence = Evidence(machine, device, base_figures(device=device), _estimate(run, device))
    footprint = add_up(run, evidence)
    peak = footprint.host.nbytes
    doubt = sum(item.error for item in footprint.items if item.name in SCRATCH_ITEMS)
    unknown = evidence.net is not None and bool(evidence.net.note)  # layers that no arithmetic knows
    return unknown or (footprint.at(Phase.UPDATE) * (1 + UPDATE_MARGIN) >= peak and doubt > TOLERATED_DOUBT * peak)
