"""What XLA said about a brax run once, kept so that every other setting of it is arithmetic.

Two kinds of JSON file under the user's cache directory, both of one environment, its networks and library versions,
whatever num_envs, batch_size, num_minibatches, unroll_length and evaluation environments are: a *calibration* with the
bytes of states and weights and what compiling takes on the host, the same wherever the run trains; and beside it
*plans* (`plans.py`), one of the CPU's compiler and one for every GPU that XLA was asked about. Reading them imports
nothing: a prediction takes milliseconds. `asking.py` makes them.

A package may ship such files of its environments in a folder `calibrations` beside the module (the robot does, by
`bench/robot_calibrations.py`). They hold for as long as the environment's own files are what they were; those made with
other versions of the libraries are used with a wider band, since nobody should wait minutes for a first look.

Where the very networks or knobs were never compiled, the latest calibration of the same environment is scaled: the
physics are the same, and what differs are weights and activations. Such a prediction has a wider band.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from legroom.backends.brax.arithmetic import FLOAT, count_parameters, hidden_layers
from legroom.backends.brax.facts import is_ppo
from legroom.backends.brax.plans import BY_NAME, Asked, Sizes, XlaPlan, sizes_of
from legroom.machine.cache import cache_folder, digest, read_json, write_json
from legroom.machine.gpu_table import KnownGpu
from legroom.machine.versions import read_versions
from legroom.model.evidence import DeviceName
from legroom.model.machine import Gpu
from legroom.model.run import Run
from legroom.model.spaces import Data
from legroom.xla.target import known_card

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
Result = TypeVar("Result")
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

    @property
    def made_elsewhere(self) -> list[str]:
        """The libraries whose version here is another than the one it was made with, as `jax 0.9.2`."""
        here = dict(library_versions())
        return [f"{name} {version}" for name, version in self.versions.items() if here.get(name, version) != version]


@dataclass(frozen=True)
class KnownCalibration:
    """A calibration and a plan as they hold for one run.

    Args:
        planned: the temporaries, where XLA planned the very run for the very device.
        same_card: XLA was asked for the GPU, or for one of the same compute capability.
        scaled: they are another run's, or a knob is turned.
        activations: times the plan's own.
        chunk: how many environments the physics' temporaries are of; None: all.
        stepwise: the networks go over the unroll one step at a time (remat).
    """

    calibration: Calibration
    plan: XlaPlan
    planned: int | None
    same_card: bool
    scaled: bool
    activations: float
    chunk: int | None
    stepwise: bool

    def temporaries(self, sizes: Sizes) -> dict[str, float]:
        """Return the bytes of each term at the fullest moment of the training step."""
        assert self.plan.step is not None
        terms = self.plan.step.fullest(sizes, self._adjusted(sizes) if self.scaled else {})
        times = 1.0 if self.planned is None else self.planned / max(sum(terms.values()), 1.0)
        return {term: times * nbytes for term, nbytes in terms.items()}

    def evaluation_nbytes(self, envs: int) -> int:
        """Return what the evaluation's temporaries need."""
        return round((self.plan.evaluation_nbytes or 0.0) * min(envs, self.chunk or envs))

    def _adjusted(self, sizes: Sizes) -> dict[str, float]:
        """Return what each term is multiplied by: of a minibatch all but its data, of the physics all but states."""
        assert self.plan.step is not None
        minibatch, physics = (max(each.get(term, 0.0) for each in self.plan.step.moments) for term in ("BU", "N"))
        data = min(self.calibration.transition_nbytes, minibatch)
        state = min(self.calibration.env_state_nbytes, physics)
        kept = self.activations / sizes.unroll if self.stepwise else self.activations
        at_once = min(self.chunk / sizes.envs, 1.0) if self.chunk else 1.0
        return {
            "BU": (data + kept * (minibatch - data)) / minibatch if minibatch else 1.0,
            **dict.fromkeys(("B", "P"), self.activations),  # of SAC, whose updates come one after the other
            "N": (state + at_once * (physics - state)) / physics if physics else 1.0,
        }


def known_of(run: Run, device: DeviceName = "cpu", gpu: Gpu | None = None) -> KnownCalibration | None:
    """Return what XLA said that holds for the run on the CPU, or on a GPU: that one, or the one most like it that XLA
    was asked about. None where no compiler has planned its environment.

    Args:
        gpu: None where only the memory of the GPU is known.
    """
    found, card = _found(run), None if gpu is None else known_card(gpu)
    if found is None:
        return None
    own, other, files, plan = found
    if other is not run:
        own = _with_networks(own, run, other)
    if device == "cuda":
        plan = find_plan(files, card, on_gpu=True) or plan
    chunk, remat = run.memory.env_chunk, bool(run.memory.activation_checkpointing)
    scaled = other is not run or (chunk is not None and chunk < run.env.n_envs)
    name = None if scaled or (device == "cuda" and card is None) else card.name if card else ""
    return KnownCalibration(
        calibration=own,
        plan=plan,
        planned=None if name is None else plan.exact(name, sizes_of(run)),
        same_card=plan.is_of(card),
        scaled=scaled,
        activations=_units(run) / _units(other),
        chunk=chunk,
        stepwise=remat and not other.memory.activation_checkpointing and is_ppo(run),
    )


def calibration_of_env(run: Run) -> Calibration | None:
    """Return what is kept about the run's environment, with whatever networks; None where no compiler planned it."""
    found = _found(run)
    return None if found is None else found[0]


def _found(run: Run) -> tuple[Calibration, Run, list[Path], XlaPlan] | None:
    """Return a calibration, the run as it was compiled, the files it may be in, and the plan of the CPU's compiler."""
    own, files = find_calibration(run), calibration_places(run)
    if own is not None and (plan := find_plan(files)) is not None:
        return own, run, files, plan
    latest = find_relative(run)
    if latest is None or (plan := find_plan([latest[2]])) is None:
        return None
    return latest[0], latest[1], [latest[2]], plan


def _with_networks(known: Calibration, run: Run, other: Run) -> Calibration:
    """Return the calibration of a run with the networks of another; the ratio also holds for what is not counted."""
    (trained, targets), (before, _) = count_parameters(run), count_parameters(other)
    weights, optimizer = (round(each * trained / before) for each in (known.weights_nbytes, known.optimizer_nbytes))
    return replace(known, weights_nbytes=weights, targets_nbytes=targets * FLOAT, optimizer_nbytes=optimizer)


def _units(run: Run) -> int:
    return sum(sum(layers) for layers in hidden_layers(run))


def all_at_once(run: Run) -> Run:
    """Return the run without chunks of environments."""
    if run.memory.env_chunk is None:
        return run
    return run.replace(memory=run.memory.model_copy(update={"env_chunk": None}))


# -- files ------------------------------------------------------------------------------------------------------------


def find_calibration(run: Run) -> Calibration | None:
    """Return what is kept about such runs on this machine, or shipped with their environment; None: nothing."""
    return next(filter(None, map(_calibration, calibration_places(run))), None)


def find_relative(run: Run) -> tuple[Calibration, Run, Path] | None:
    """Return the latest calibration of the run's environment, the run with its networks and knobs, and its file."""
    places = [cache_folder() / _relative_name(run, library_versions())]
    if (folder := shipped_folder(run.env.id)) is not None:
        places.append(folder / _relative_name(run))
    for place in places:
        name, kwargs, remat = _kept(place, itemgetter("file", "policy", "remat")) or ("", {}, False)
        file = place.parent / name
        if name and (found := _calibration(file)) is not None:
            policy = run.policy.model_copy(update={"kwargs": kwargs})
            memory = run.memory.model_copy(update={"activation_checkpointing": remat})
            return found, run.replace(policy=policy, memory=memory), file
    return None


def find_plan(files: Sequence[Path], card: KnownGpu | None = None, *, on_gpu: bool = False) -> XlaPlan | None:
    """Return the first complete plan that is kept beside calibrations: of the CPU's compiler, or for a GPU.

    Args:
        card: the GPU, or else the one most like it; None where only its memory is known.
    """
    if not on_gpu:
        return next((plan for plan in map(read_plan, files) if plan is not None and plan.step is not None), None)
    kept = (_kept(path, _plan) for file in files for path in sorted(file.parent.glob(f"{file.stem}@*.json")))
    plans = [plan for plan in kept if plan is not None and plan.card in BY_NAME and plan.step is not None]
    if card is None:
        return next(iter(plans), None)
    return min(plans, key=lambda plan: _unlike(BY_NAME[plan.card], card), default=None)


def _unlike(one: KnownGpu, other: KnownGpu) -> tuple[bool, float, float]:
    """Return how different two GPUs are to XLA: the capability first, then how many multiprocessors."""
    capabilities = [each.capability[0] + each.capability[1] / 10 for each in (one, other)]
    processors = sorted((one.multiprocessors, other.multiprocessors))
    return one.name != other.name, abs(capabilities[0] - capabilities[1]), processors[1] / processors[0]


def read_plan(calibration_file: Path, card: str = "") -> XlaPlan | None:
    """Return the plan for one GPU, or of the CPU's compiler, kept beside a calibration; it may not be complete."""
    return _kept(plan_file(calibration_file, card), _plan)


def plan_file(calibration_file: Path, card: str) -> Path:
    """Return where the plan for a GPU is kept, or that of the CPU's compiler where the name is empty."""
    slug = re.sub(r"[^a-z0-9]+", "-", card.lower()) or "cpu"
    return calibration_file.with_name(f"{calibration_file.stem}@{slug}.json")


def calibration_places(run: Run) -> list[Path]:
    """Return the files that may hold the calibration: on this machine, then shipped with its environment."""
    folder = shipped_folder(run.env.id)
    return [calibration_file(run), *([] if folder is None else [folder / _name(run)])]


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
    """Return the file of a calibration, by all that a program depends on but sizes; what is shipped has no versions.

    Stepping in chunks is no part of it: what that saves is arithmetic.
    """
    hyperparams = {key: value for key, value in run.hyperparams.items() if key not in SIZES | SHAPELESS}
    remat = bool(run.memory.activation_checkpointing)
    parts = run.algo.upper(), run.env.id, run.env.kwargs, run.policy.kwargs, sorted(hyperparams.items()), remat
    return f"brax-{digest(VERSION, *versions, _source_of(run.env.id), *parts)}.json"


def _relative_name(run: Run, *versions: Any) -> str:
    """Return the file that says which is the latest calibration of the run's environment."""
    parts = _source_of(run.env.id), run.algo.upper(), run.env.id, run.env.kwargs
    return f"brax-env-{digest(VERSION, *versions, *parts)}.json"


@cache
def library_versions() -> tuple[tuple[str, str], ...]:
    """Return the versions of what the figures depend on."""
    return tuple(sorted(read_versions(LIBRARIES).items()))


@lru_cache(maxsize=256)
def _module_file(env_id: str | None) -> Path | None:
    """Return the file of the module that an environment `module:Class` is in; None for those of a library.

    Only the outermost package is looked up, which imports nothing: a run file is only read.
    """
    module, colon, _ = (env_id or "").partition(":")
    top, *inner = module.split(".")
    if not colon or not all(name.isidentifier() for name in (top, *inner)):
        return None
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):  # __main__ has none
        spec = None
    if spec is None:
        return None
    if not inner:
        return None if spec.origin is None else Path(spec.origin)
    within = [Path(folder, *inner) for folder in spec.submodule_search_locations or ()]
    files = (file for path in within for file in (path / "__init__.py", path.with_suffix(".py")))
    return next((file for file in files if file.is_file()), None)


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


def _calibration(path: Path) -> Calibration | None:
    return _kept(path, lambda data: Calibration(**data))


def _plan(data: dict[str, Any]) -> XlaPlan:
    asked = {
        name: [Asked(Sizes(**each["sizes"]), each["temporaries"]) for each in found]
        for name, found in data["asked"].items()
    }
    return XlaPlan(**{**data, "asked": asked})


_REMEMBERED: dict[Path, tuple[int, Any]] = {}


def _kept(path: Path, read: Callable[[Any], Result]) -> Result | None:
    """Return what `read` makes of a file's JSON, None where there is none or it is damaged; read once, since a fit asks
    thousands of times. Without pydantic, which is slow."""
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return None
    if path not in _REMEMBERED or _REMEMBERED[path][0] != changed:
        try:
            _REMEMBERED[path] = changed, read(read_json(path))
        except (KeyError, TypeError, AttributeError, ValueError):
            _REMEMBERED[path] = changed, None
    found: Result | None = _REMEMBERED[path][1]
    return found
