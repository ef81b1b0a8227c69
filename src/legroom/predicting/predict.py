"""predict(run) -> Footprint: gather the evidence once, then have the backend write the bill.

`arithmetic` looks at the run file only: nothing is imported that a run names, nothing is measured; what was measured on
this machine before is used, and else figures of the same kind of environment and update. `trace` builds the
real networks and follows one real update on fake tensors, or asks the compiler. `auto` does so where the libraries are
installed and falls back to arithmetic, with a note, where they are not or where a policy cannot be traced.

Unless by arithmetic, the environment is built and stepped in a child wherever it may be (`own_code`), also where
its spaces are known: what it imports and holds is in no file, and a second of stepping tells what lean storage would
take, and whether it would be slower (`lean_probe`). Where it cannot be built, a note says so and the band is wider.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from legroom.backends.base import algorithm_of, backend_named, backend_of
from legroom.environments.own_code import OwnCode, own_code
from legroom.environments.script_classes import named_by_file
from legroom.errors import BadInput, MissingExtra, Unseen, unseen_text
from legroom.machine import probe
from legroom.machine.child_process import run_file
from legroom.machine.versions import is_installed
from legroom.model.evidence import DeviceName as DeviceName
from legroom.model.evidence import EnvLook, EnvTask, Evidence, Look
from legroom.model.evidence import Mode as Mode
from legroom.model.evidence import Values as Values
from legroom.model.facts import episode_limit
from legroom.model.footprint import AllocatorPeaks, Footprint, Item
from legroom.model.machine import Machine
from legroom.model.run import Run, Spaces
from legroom.model.spaces import BoxSpace, Leaf, describe, leaves
from legroom.predicting.constraints import broken_rules
from legroom.predicting.typical_envs import typical_memory
from legroom.units import LARGEST

MODES: tuple[Mode, ...] = ("auto", "trace", "arithmetic")
MUCH_STORED = 256 << 20  # bytes of a rollout from which it is worth a word how many episodes are in it


def predict(run: Run, machine: Machine | None = None, **how: Any) -> Footprint:
    """Return what the run will need, before anything of it is allocated; `how` is `gather_all`'s."""
    return add_up(*gather(run, machine or probe(), **how))


def gather(run: Run, machine: Machine, **how: Any) -> tuple[Run, Evidence]:
    """Return the run with its spaces, and all there is to know about it; `how` is `gather_all`'s."""
    return gather_all([run], machine, **how)[0]


def gather_all(
    runs: Sequence[Run],
    machine: Machine,
    *,
    mode: Mode = "auto",
    device: DeviceName | None = None,
    trust: bool = False,
    values: Values = "refuse",
    build_env: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> list[tuple[Run, Evidence]]:
    """Return the same for several runs, which share the cost of importing the libraries; the slow half of a prediction.

    Args:
        device: overrides the run's own; `auto` there means cuda where the machine has a GPU.
        trust: import the code that the run names and that no installed package has registered (`own_code`).
        values: what code gets that reads a value while it is traced. `refuse`: nothing, and what it takes is not
            known. `assume`: an answer by where the value comes from, listed in `Footprint.assumed`. `real`: what a CPU
            computes from initial weights and observations of zeros.
        build_env: False: the environment is built only where nothing else tells its spaces.
        progress: is told what takes long.

    Raises:
        BadInput: the spaces are not known.
        Unseen: the spaces are known only to the environment, which is such code and not trusted.
        MissingExtra: mode `trace` without the libraries.
    """
    if trust and mode != "arithmetic":
        runs = [named_by_file(run, run_file(run)) for run in runs]
    # By arithmetic nothing is imported, so that there is nothing to trust.
    seen = [OwnCode() if trust or mode == "arithmetic" else own_code(run) for run in runs]
    runs = [
        backend_of(run).predictor.prepared(run, "arithmetic" if own.env else mode, progress)
        for run, own in zip(runs, seen, strict=True)
    ]
    declared = [run.env.spaces for run in runs]
    built = [_with_spaces(run, mode, own.env, trust, build_env) for run, own in zip(runs, seen, strict=True)]
    built = [(_with_limit(run, env), env) for run, env in built]
    devices = [device or choose_device(run, machine) for run in runs]
    modes: list[Mode] = ["arithmetic" if _unseen(run, own) else mode for run, own in zip(runs, seen, strict=True)]
    looks = _looks([run for run, _ in built], devices, machine, modes, values, progress)
    gathered = []
    for (run, env), where, look, own, spaces in zip(built, devices, looks, seen, declared, strict=True):
        look = replace(look, notes=(*look.notes, *_corrected(spaces, run.env.spaces)))
        gathered.append((run, _evidence(run, look, env, where, machine, own, measure=mode != "arithmetic")))
    return gathered


def _evidence(
    run: Run, look: Look, env: EnvLook | None, device: DeviceName, machine: Machine, own: OwnCode, *, measure: bool
) -> Evidence:
    notes = list(look.notes)
    unseen = _unseen(run, own)
    if unseen:
        notes.append(f"predicted by arithmetic: {unseen_text(unseen)}")
    if env is not None and env.not_probed:
        notes.append(f"the env could not be probed: {env.not_probed}")
    if env is not None and env.not_built:
        notes.append(f"the environment was not built, so its own memory is not included: {env.not_built}")
    if device == "cuda" and not machine.gpus:
        notes.append("no GPU here: host memory of the CUDA driver itself is not included")
    notes += _episodes(run, env)
    return Evidence(
        machine=machine,
        device=device,
        base=backend_of(run).predictor.base_figures(run, device, measure=measure),
        net=look.net,
        scratch=look.scratch,
        unmeasured=look.unmeasured,
        env_nbytes=env.nbytes if env else None,
        env=env.memory if env else None,
        env_not_built=env.not_built if env else "",
        lean=env.probe if env else None,
        library_versions=machine.versions,
        notes=tuple(notes),
        unseen=unseen,
        unknown=(look.unknown,) if look.unknown and not own.policy else (),
    )


def _unseen(run: Run, own: OwnCode) -> tuple[str, ...]:
    """Return the code that would have to be trusted before the networks and the update can be looked at.

    An environment that is not gymnasium's is part of the compiled program: its spaces alone do not tell the memory.
    """
    return own.policy + (own.env if backend_of(run).predictor.env_task(run) is None else ())


def unseen_env(run: Run) -> tuple[str, ...]:
    """Return the code that would have to be trusted before anything can be predicted: only it tells the spaces."""
    code = own_code(run).env
    if not code or backend_of(run).predictor.prepared(run, "arithmetic", lambda text: None).env.spaces is not None:
        return ()
    return code


def add_up(run: Run, evidence: Evidence) -> Footprint:
    """Return the bill; also for a variant of the run the evidence was gathered for, if its networks are the same.

    Raises:
        BadInput: an item is beyond 2**63 bytes.
    """
    footprint = replace(
        backend_of(run).predictor.footprint(run, evidence),
        unseen=evidence.unseen,
        unknown=evidence.unknown,
        assumed=evidence.net.assumed if evidence.net else (),
        not_built=evidence.env_not_built,
    )
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


def _looks(
    runs: Sequence[Run],
    devices: Sequence[DeviceName],
    machine: Machine,
    modes: Sequence[Mode],
    values: Values,
    progress: Callable[[str], None],
) -> list[Look]:
    """Return what the backends know of the runs' networks; each is asked once for all of its runs of one mode."""
    found: dict[int, Look] = {}
    asked = [(run.backend, mode) for run, mode in zip(runs, modes, strict=True)]
    for name, mode in dict.fromkeys(asked):
        numbers = [number for number, each in enumerate(asked) if each == (name, mode)]
        predictor = backend_named(name).predictor
        mine, on = [runs[n] for n in numbers], [devices[n] for n in numbers]
        found |= zip(numbers, predictor.look(mine, on, machine, mode, values, progress), strict=True)
    return [found[number] for number in range(len(runs))]


def _with_spaces(
    run: Run, mode: Mode, unseen: Sequence[str], trust: bool, build_env: bool
) -> tuple[Run, EnvLook | None]:
    """Return the run with its spaces, and what building its environment told; None where it was not built.

    Raises:
        Unseen: only the environment tells them, and it may not be built.
    """
    declared, task = run.env.spaces, backend_of(run).predictor.env_task(run)
    if unseen and declared is None:
        raise Unseen(run.name, unseen, path=run.source)
    if task is None:
        return run, None
    if mode == "arithmetic":
        return _as_known(run, task, trust) if build_env else (run, None)
    if run.env.id is None:
        return run, None  # facts.spaces_of says what to do when there are no spaces
    if declared is not None:
        counted = run.env.nbytes is not None or backend_of(run).spreads  # by the run, or with its processes
        if not build_env or (counted and task.storage is None):
            return run, None
        look = _look_only(run, declared, task, trust, unseen)
        return _with_seen(run, look), look
    if not is_installed("gymnasium"):
        what = f"building env {run.env.id!r} to see its spaces"
        raise MissingExtra(backend_of(run).extra, "gymnasium", what=what)
    look = _look_at_env(run, task, trust)
    return _with_seen(run, look), look


def _episodes(run: Run, env: EnvLook | None) -> Iterator[str]:
    """Yield what a rollout that costs much holds of the episodes that were seen: it may be meant to be one episode."""
    storage, mean = (
        backend_of(run).predictor.storage(run),
        env.memory.episode_mean if env is not None and env.memory else None,
    )
    if storage.kind != "rollout" or not mean or storage.steps < 2 * mean:
        return
    if storage.steps * run.env.n_envs * storage.observation.nbytes >= MUCH_STORED:
        yield (
            f"a rollout of {storage.steps:,} steps holds several episodes: with random actions they lasted "
            f"about {mean:,.0f}. Rollouts need not hold whole episodes; shorter ones take less memory"
        )


def _with_limit(run: Run, env: EnvLook | None) -> Run:
    """Return the run with the length of its episodes, where the environment was seen to cut all of them off there.

    Recurrent updates depend on it.
    """
    limit = env.memory.time_limit if env is not None and env.memory is not None else None
    if limit is None or episode_limit(run) is not None or not algorithm_of(run).recurrent:
        return run
    return run.replace(env=run.env.model_copy(update={"episode_steps": limit}))


def _as_known(run: Run, task: EnvTask, trust: bool) -> tuple[Run, EnvLook | None]:
    """Return the run and what is known of its environment without building it: measured before, or of its kind."""
    spaces = run.env.spaces
    if run.env.id is None or backend_of(run).spreads:
        return run, None
    from legroom.environments.env_look import kept_look

    kept = kept_look(run, task)
    if kept is not None:
        run = _with_seen(run, kept)
    elif spaces is not None:
        code = own_code(run).env
        why = "" if not code else "mode arithmetic builds none" if trust else unseen_text(code)
        kept = EnvLook(spaces, memory=typical_memory(run, own=bool(code)), not_built=why)
    return run, kept


def _with_seen(run: Run, look: EnvLook) -> Run:
    """Return the run with the spaces that its environment was seen to have: that is what trains, whatever it says."""
    declared = run.env.spaces
    if declared is not None and _sizes(look.spaces) == _sizes(declared):
        return run
    return run.replace(env=run.env.model_copy(update={"spaces": look.spaces}))


def _corrected(declared: Spaces | None, seen: Spaces | None) -> Iterator[str]:
    """Yield a note where the declared spaces are not those of the environment."""
    if declared is None or seen is None or _sizes(declared) == _sizes(seen):
        return
    has, says = (f"{describe(each.observation)}, actions {describe(each.action)}" for each in (seen, declared))
    yield f"predicted with the environment's own observation, {has}; env.spaces says {says}"


def _look_only(run: Run, declared: Spaces, task: EnvTask, trust: bool, unseen: Sequence[str]) -> EnvLook:
    """Return what the environment tells; its spaces are the declared ones only where it could not be built."""
    why = unseen_text(unseen) if unseen else "" if is_installed("gymnasium") else "gymnasium is not installed here"
    try:
        if not why:
            return _look_at_env(run, task, trust)
    except (BadInput, MissingExtra) as error:
        why = str(error)
    return EnvLook(declared, memory=typical_memory(run, own=False), not_built=why)


def _look_at_env(run: Run, task: EnvTask, trust: bool) -> EnvLook:
    from legroom.environments.env_look import look_at_env  # most predictions build none

    return look_at_env(run, task, trust=trust)


def _sizes(spaces: Spaces) -> list[dict[str, Leaf]]:
    """Return what memory depends on: all but the bounds."""
    sides = (leaves(spaces.observation), leaves(spaces.action))
    return [
        {key: replace(leaf, low=None, high=None) if isinstance(leaf, BoxSpace) else leaf for key, leaf in side.items()}
        for side in sides
    ]


def footprint_of(run: Run, evidence: Evidence, items: Iterable[Item]) -> Footprint:
    """Return the bill of these items and, where the networks on a card are known, of what is on the card."""
    billed = list(items)
    allocator: AllocatorPeaks | None = None
    if evidence.device == "cuda" and evidence.net is not None:
        from legroom.predicting.gpu import gpu_items  # the allocator's simulator, which most commands do without

        on_gpu, allocator = gpu_items(run, evidence.net, evidence.machine)
        billed += on_gpu
    kept = tuple(item for item in billed if item.nbytes or item.error)
    return Footprint(run.name, kept, evidence.device, tuple(broken_rules(run)), allocator, evidence.notes)
