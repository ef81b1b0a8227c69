"""predict(run) -> Footprint: gather the evidence once, then have the backend write the bill.

`arithmetic` looks at the run file only: nothing is imported that a run names, nothing is measured. `trace` builds the
real networks and follows one real update on fake tensors, or asks the compiler. `auto` does so where the libraries are
installed and falls back to arithmetic, with a note, where they are not or where a policy cannot be traced.

Where the environment is built anyway, since the run does not say its spaces, it is also stepped for a second: that
tells what lean storage would take, and whether it would be slower (`env_probe`). `probe_env` asks for it where
they are declared.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from legroom.backends.base import backend_named, backend_of
from legroom.errors import BadInput, MissingExtra
from legroom.machine import probe
from legroom.machine.versions import is_installed
from legroom.model.evidence import DeviceName as DeviceName
from legroom.model.evidence import EnvLook, EnvTask, Evidence, Look
from legroom.model.evidence import Mode as Mode
from legroom.model.footprint import AllocatorPeaks, Footprint, Item
from legroom.model.machine import Machine
from legroom.model.run import Run, Spaces
from legroom.model.spaces import describe, leaves
from legroom.predicting.constraints import broken_rules
from legroom.units import LARGEST

MODES: tuple[Mode, ...] = ("auto", "trace", "arithmetic")


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
    runs = [backend_of(run).prepared(run, mode, progress) for run in runs]
    built = [_with_spaces(run, mode, probe_env) for run in runs]
    devices = [device or choose_device(run, machine) for run in runs]
    looks = _looks([run for run, _ in built], devices, machine, mode)
    return [
        (run, _evidence(run, look, env, where, machine, measure=mode != "arithmetic"))
        for (run, env), where, look in zip(built, devices, looks, strict=True)
    ]


def _evidence(
    run: Run, look: Look, env: EnvLook | None, device: DeviceName, machine: Machine, *, measure: bool
) -> Evidence:
    notes = list(look.notes)
    if env is not None and env.not_probed:
        notes.append(f"the env could not be probed: {env.not_probed}")
    if device == "cuda" and not machine.gpus:
        notes.append("no GPU here: what the CUDA driver itself keeps in host memory is not included")
    return Evidence(
        machine=machine,
        device=device,
        base=backend_of(run).base_figures(run, device, measure=measure),
        net=look.net,
        scratch=look.scratch,
        env_nbytes=env.nbytes if env else None,
        lean=env.probe if env else None,
        library_versions=machine.versions,
        notes=tuple(notes),
    )


def add_up(run: Run, evidence: Evidence) -> Footprint:
    """Return the bill; also for a variant of the run the evidence was gathered for, if its networks are the same.

    Raises:
        BadInput: an item is beyond 2**63 bytes.
    """
    footprint = backend_of(run).footprint(run, evidence)
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


def _looks(runs: Sequence[Run], devices: Sequence[DeviceName], machine: Machine, mode: Mode) -> list[Look]:
    """Return what the backends know of the runs' networks; each is asked once for all of its runs."""
    found: dict[int, Look] = {}
    for name in dict.fromkeys(run.backend for run in runs):
        numbers = [number for number, run in enumerate(runs) if run.backend == name]
        looks = backend_named(name).look([runs[n] for n in numbers], [devices[n] for n in numbers], machine, mode)
        found |= zip(numbers, looks, strict=True)
    return [found[number] for number in range(len(runs))]


def _with_spaces(run: Run, mode: Mode, probe_env: bool) -> tuple[Run, EnvLook | None]:
    """Return the run with its spaces, and what building its environment told; None where it was not built."""
    declared, task = run.env.spaces, backend_of(run).env_task(run)
    if task is None:
        return run, None
    if declared is not None:
        asked = probe_env and (task.storage is not None or task.not_probed)
        return run, _look_only(run, declared, task) if asked else None
    if mode == "arithmetic" or run.env.id is None:
        return run, None  # facts.spaces_of says what to do when there are none
    if not is_installed("gymnasium"):
        what = f"building env {run.env.id!r} to see its spaces"
        raise MissingExtra(backend_of(run).extra, "gymnasium", what=what)
    look = _look_at_env(run, task)
    return run.replace(env=run.env.model_copy(update={"spaces": look.spaces})), look


def _look_only(run: Run, declared: Spaces, task: EnvTask) -> EnvLook:
    """Return what the environment tells beside its spaces; these are the declared ones, whatever it has."""
    try:
        look = _look_at_env(run, task)
    except (BadInput, MissingExtra) as failed:
        return EnvLook(declared, not_probed=str(failed))
    if task.not_probed:
        return replace(look, not_probed=task.not_probed)
    if _sizes(look.spaces) != _sizes(declared):
        return EnvLook(declared, not_probed=f"it shows {describe(look.spaces.observation)}, not what env.spaces says")
    return look


def _look_at_env(run: Run, task: EnvTask) -> EnvLook:
    from legroom.environments.env_look import look_at_env  # most predictions build none

    return look_at_env(run, task)


def _sizes(spaces: Spaces) -> dict[str, tuple[tuple[int, ...], str]]:
    return {key: (leaf.shape, leaf.dtype) for key, leaf in leaves(spaces.observation).items()}


def footprint_of(run: Run, evidence: Evidence, items: Iterable[Item]) -> Footprint:
    """Return the bill of these items and, where the networks on a card are known, of what is on the card."""
    billed = list(items)
    allocator: AllocatorPeaks | None = None
    if evidence.device == "cuda" and evidence.net is not None:
        from legroom.predicting.gpu import gpu_items  # the allocator's simulator, which most commands do without

        on_gpu, allocator = gpu_items(run, evidence.net, evidence.machine)
        billed += on_gpu
    kept = tuple(item for item in billed if item.nbytes)
    return Footprint(run.name, kept, evidence.device, tuple(broken_rules(run)), allocator, evidence.notes)
