"""What the compilers said about a brax run once, kept so that every other setting of it is arithmetic.

Two kinds of JSON file under the user's cache directory, both of one environment, its networks and library versions,
whatever num_envs, batch_size, num_minibatches, unroll_length and evaluation environments are: a *calibration* with the
bytes of states and weights and what compiling takes on the host, the same wherever the run trains; and beside it
*plans* (`plans.py`), one of the CPU's compiler and one for every card that XLA was asked about. Reading them imports
nothing: a prediction takes milliseconds. `asking.py` makes them.

A package may ship such files of its environments in a folder `calibrations` beside the module (the robot does, by
`bench/robot_calibrations.py`). They hold for as long as the environment's own files are what they were; those made with
other versions of the libraries are used with a wider band, since nobody should wait minutes for a first look.
"""

import re
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from legroom.backends.brax.plans import BY_NAME, Asked, Plan, Sizes
from legroom.machine.cache import cache_folder, digest, read_json, write_json
from legroom.machine.gpu_table import KnownGpu
from legroom.machine.versions import read_versions
from legroom.model.run import Run
from legroom.model.spaces import Data

LIBRARIES = ("jax", "jaxlib", "brax", "flax", "optax", "mujoco", "mujoco-mjx", "playground")
VERSION = 4  # of the files' form and of how they are made
# Settings that are arguments of the arithmetic, and those that are numbers inside the program and shape nothing.
SIZES = frozenset({"batch_size", "num_minibatches", "unroll_length", "max_replay_size", "grad_updates_per_step"})
SHAPELESS = frozenset({
    "learning_rate", "discounting", "entropy_cost", "reward_scaling", "clipping_epsilon", "gae_lambda", "tau",
    "vf_loss_coefficient", "num_evals", "num_resets_per_eval", "episode_length", "desired_kl", "min_replay_size",
    "learning_rate_schedule_min_lr", "learning_rate_schedule_max_lr", "training_metrics_steps",
    "normalize_observations_std_eps", "deterministic_eval", "verbose", "restore_value_fn", "run_evals",
})  # fmt: skip
SHIPPED = "calibrations"  # the folder beside an environment's module


@dataclass(frozen=True)
class Calibration(Data):
    """What is known of one environment with one set of networks, wherever it trains.

    Args:
        weights_nbytes, targets_nbytes, optimizer_nbytes, other_nbytes: of the training state.
        env_state_nbytes: of one environment, as it is carried from step to step; `env_fixed_nbytes` of all together.
        transition_nbytes: of one environment step, as the rollout keeps it.
        imported_nbytes: of a process that has imported jax and brax; then, as high-water marks, having traced, having
            compiled the training step, and the evaluation too. XLA generates code with as many threads as find a
            core, and each of them takes memory: the figures are the middle between all cores free and a single one.
        retained_nbytes: what is left of that when training begins.
        host_spread_nbytes: how far the middle is from either.
        compile_s: tracing and compiling, on the machine that did it.
    """

    versions: dict[str, str]
    weights_nbytes: int
    targets_nbytes: int
    optimizer_nbytes: int
    other_nbytes: int
    env_state_nbytes: int
    env_fixed_nbytes: int
    eval_state_nbytes: int
    transition_nbytes: int
    observation: dict[str, list[int]] | list[int]
    action_size: int
    imported_nbytes: int
    traced_nbytes: int
    compiled_nbytes: int
    all_compiled_nbytes: int
    retained_nbytes: int
    host_spread_nbytes: int
    compile_s: float


def all_at_once(run: Run) -> Run:
    """Return the run without chunks of environments."""
    if run.memory.env_chunk is None:
        return run
    return run.replace(memory=run.memory.model_copy(update={"env_chunk": None}))


def find_calibration(run: Run) -> Calibration | None:
    """Return what is kept about such runs on this machine, or shipped with their environment; None: nothing."""
    found = (_read(place) for place in calibration_places(run))
    return next((each for each in found if each is not None), None)


def calibration_places(run: Run) -> list[Path]:
    """Return the files that may hold it: on this machine, then shipped with its environment."""
    folder = shipped_folder(run.env.id)
    return [calibration_file(run), *([] if folder is None else [folder / _name(run)])]


def made_elsewhere(calibration: Calibration) -> list[str]:
    """Return the libraries whose version here is another than the one it was made with, as `jax 0.9.2`."""
    here = dict(library_versions())
    return [f"{name} {version}" for name, version in calibration.versions.items() if here.get(name, version) != version]


def calibration_file(run: Run) -> Path:
    """Return where it is kept; the same for runs that differ only in sizes."""
    return cache_folder() / _name(run, library_versions())


def shipped_folder(env_id: str | None) -> Path | None:
    """Return where the package of the environment keeps calibrations; None where it does not."""
    module = _module_file(env_id)
    folder = None if module is None else module.parent / SHIPPED
    return folder if folder is not None and folder.is_dir() else None


def save_calibration(run: Run, calibration: Calibration, shipped: Path | None = None) -> Path:
    """Keep it for every run that differs from this one in sizes only, and as the latest of its environment.

    Args:
        shipped: the folder that a package ships, in place of the one of this machine.
    """
    folder, versions = (cache_folder(), (library_versions(),)) if shipped is None else (shipped, ())
    path = folder / _name(run, *versions)
    write_json(path, calibration.model_dump())
    remat, policy = bool(run.memory.activation_checkpointing), run.policy.model_dump()["kwargs"]
    about = {"file": path.name, "policy": policy, "remat": remat}
    write_json(folder / _relative_name(run, *versions), about)
    return path


def _name(run: Run, *versions: Any) -> str:
    """Return the file of a calibration; what is shipped holds whatever the versions."""
    return f"brax-{digest(VERSION, *versions, *_identity(run))}.json"


def _relative_name(run: Run, *versions: Any) -> str:
    """Return the file that says which is the latest calibration of the run's environment."""
    parts = _source_of(run.env.id), run.algo.upper(), run.env.id, run.env.kwargs
    return f"brax-env-{digest(VERSION, *versions, *parts)}.json"


def _identity(run: Run) -> tuple[Any, ...]:
    """Return all that a compiled program depends on but sizes and versions."""
    hyperparams = {key: value for key, value in run.hyperparams.items() if key not in SIZES | SHAPELESS}
    # stepping in chunks is no part of it: what that saves is arithmetic (`scaling.py`)
    remat = bool(run.memory.activation_checkpointing)
    parts = run.algo.upper(), run.env.id, run.env.kwargs, run.policy.kwargs, sorted(hyperparams.items()), remat
    return (_source_of(run.env.id), *parts)


@cache
def library_versions() -> tuple[tuple[str, str], ...]:
    """Return the versions of what the figures depend on."""
    return tuple(sorted(read_versions(LIBRARIES).items()))


@lru_cache(maxsize=256)
def _module_file(env_id: str | None) -> Path | None:
    """Return the file of the module that an environment `module:Class` is in; None for those of a library.

    Found without importing the packages around it, as `importlib.util.find_spec` would: a run file is only read.
    """
    module, colon, _ = (env_id or "").partition(":")
    names = module.split(".")
    if not colon or not all(name.isidentifier() for name in names):
        return None
    spec: ModuleSpec | None = None
    for depth in range(len(names)):
        inside = None if spec is None else spec.submodule_search_locations
        if depth and inside is None:  # a module, not a package
            return None
        name = ".".join(names[: depth + 1])
        found = (finder.find_spec(name, inside) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((each for each in found if each is not None), None)
        if spec is None:
            return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


@lru_cache(maxsize=256)
def _source_of(env_id: str | None) -> int:
    """Return a checksum of the environment's own files: edited, it is another environment."""
    origin = _module_file(env_id)
    if origin is None:
        return 0  # a library's, which has a version
    files = [origin]
    if origin.name == "__init__.py":  # a package: what it is made of may stand in any of its files
        files = sorted(each for each in origin.parent.iterdir() if each.suffix in (".py", ".xml"))
    checksum = 0
    for file in files:
        checksum = zlib.crc32(file.read_bytes(), checksum)
    return checksum


_REMEMBERED: dict[Path, tuple[int, Any]] = {}


def _remembered(path: Path, read: Callable[[Any], Any] = lambda data: data) -> Any:
    """Return what `read` makes of a file's JSON, None where there is none or it is damaged; read once, since a fit asks
    thousands of times. Without pydantic, which is slow."""
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return None
    if path not in _REMEMBERED or _REMEMBERED[path][0] != changed:
        try:
            _REMEMBERED[path] = changed, read(read_json(path))
        except (KeyError, TypeError, AttributeError):
            _REMEMBERED[path] = changed, None
    return _REMEMBERED[path][1]


def _read(path: Path) -> Calibration | None:
    found: Calibration | None = _remembered(path, lambda data: Calibration(**data))
    return found


def find_relative(run: Run) -> tuple[Calibration, dict[str, Any], bool, Path] | None:
    """Return the latest calibration of the run's environment, its networks, whether with remat, and its file."""
    places = [cache_folder() / _relative_name(run, library_versions())]
    if (folder := shipped_folder(run.env.id)) is not None:
        places.append(folder / _relative_name(run))
    for place in places:
        about = _remembered(place)
        if not isinstance(about, dict):
            continue
        file = place.parent / str(about.get("file"))
        if (found := _read(file)) is not None:
            return found, about["policy"], about["remat"], file
    return None


def plan_file(calibration_file: Path, card: str) -> Path:
    """Return where the plan of a card is kept, or that of the CPU's compiler where the name is empty."""
    slug = re.sub(r"[^a-z0-9]+", "-", card.lower()) or "cpu"
    return calibration_file.with_name(f"{calibration_file.stem}@{slug}.json")


def read_plan(calibration_file: Path, card: str = "") -> Plan | None:
    """Return the plan of one card, or of the CPU's compiler, kept beside a calibration."""

    def parsed(data: Any) -> Plan:
        asked = {
            name: [Asked(Sizes(**each["sizes"]), each["temporaries"]) for each in found]
            for name, found in data["asked"].items()
        }
        return Plan(**{**data, "asked": asked})

    found: Plan | None = _remembered(plan_file(calibration_file, card), parsed)
    return found


def find_plan(calibration_file: Path, card: KnownGpu | None) -> Plan | None:
    """Return the plan for the card, or else for the card most like it, kept beside a calibration; None: there is none.

    Args:
        card: None where only the memory of the card is known.
    """
    plans = list(_plans_beside(calibration_file))
    if not plans or card is None:
        return next(iter(plans), None)
    return min(plans, key=lambda plan: (not plan.is_of(card), _unlike(BY_NAME[plan.card], card)))


def _unlike(one: KnownGpu, other: KnownGpu) -> tuple[bool, float, float]:
    """Return how different two cards are to XLA: the capability first, then how many multiprocessors."""
    capabilities = [each.capability[0] + each.capability[1] / 10 for each in (one, other)]
    processors = sorted((one.multiprocessors, other.multiprocessors))
    return one.name != other.name, abs(capabilities[0] - capabilities[1]), processors[1] / processors[0]


def _plans_beside(calibration_file: Path) -> Iterator[Plan]:
    names = {plan_file(calibration_file, name).name: name for name in BY_NAME}
    for path in sorted(calibration_file.parent.glob(f"{calibration_file.stem}@*.json")):
        plan = read_plan(calibration_file, names[path.name]) if path.name in names else None
        if plan is not None and plan.card == names[path.name]:
            yield plan
