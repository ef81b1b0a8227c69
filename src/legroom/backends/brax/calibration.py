"""What XLA said about a brax run once, kept so that every other setting of it is arithmetic.

A JSON file under the user's cache directory for each environment with its networks and library versions, whatever
num_envs, batch_size, num_minibatches, unroll_length and evaluation environments are: the bytes of states and weights,
what compiling takes on the host, the same wherever the run trains, and XLA's *plans* (`plans.py`), of the CPU's
compiler and for every GPU that it was asked about. Reading it imports nothing: a prediction takes milliseconds.
`asking.py` makes them.

A package may ship such files of its environments in a folder `calibrations` beside the module (the robot does, by
`bench/robot_calibrations.py`). They hold for as long as the environment's own files are what they were; those made with
other versions of the libraries are used with a wider band, since nobody should wait minutes for a first look.

Where the very networks were never compiled, the calibration of the same environment with the largest networks
is scaled: the physics are the same, and what differs are weights and activations. Such a prediction has a wider band.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from legroom.backends.brax.arithmetic import FLOAT, count_parameters, hidden_layers
from legroom.backends.brax.facts import is_ppo
from legroom.backends.brax.plans import BY_NAME, Sizes, XlaPlan, asked_key, sizes_of
from legroom.machine.cache import cache_folder, digest, read_json, write_json
from legroom.machine.gpu_table import KnownGpu
from legroom.machine.versions import read_versions
from legroom.model.evidence import DeviceName
from legroom.model.machine import Gpu
from legroom.model.run import Run
from legroom.model.spaces import Data
from legroom.xla.target import known_card

LIBRARIES = ("jax", "jaxlib", "brax", "flax", "optax", "mujoco", "mujoco-mjx", "playground")
VERSION = 5  # of the files' form and of how they are made
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
    """What is known of one environment with one set of networks."""

    versions: dict[str, str]
    policy: dict[str, Any]  # `policy.kwargs` and `memory.activation_checkpointing` of the run that was compiled
    remat: bool
    weights_nbytes: int  # of the training state
    targets_nbytes: int
    optimizer_nbytes: int
    other_nbytes: int
    env_state_nbytes: int  # of one environment, as it is carried from step to step; `env_fixed_nbytes` of all together
    env_fixed_nbytes: int
    eval_state_nbytes: int
    transition_nbytes: int  # of one environment step, as the rollout keeps it
    observation: dict[str, list[int]] | list[int]
    action_size: int
    # of a process that has imported jax and brax; `all_compiled_nbytes`: at most, having compiled the training step and
    # the evaluation. XLA generates code with as many threads as find a core, and each of them takes memory:
    # `host_spread_nbytes` is how far that may be off.
    imported_nbytes: int
    all_compiled_nbytes: int
    retained_nbytes: int  # what is left of that when training begins
    host_spread_nbytes: int
    compile_s: float  # tracing and compiling, on the machine that did it
    plans: dict[str, XlaPlan]  # by the GPU's name; the CPU's has none

    @property
    def made_elsewhere(self) -> list[str]:
        """The libraries whose version here is another than the one it was made with, as `jax 0.9.2`."""
        here = dict(library_versions())
        return [f"{name} {version}" for name, version in self.versions.items() if here.get(name, version) != version]

    def plan_for(self, card: KnownGpu | None, *, on_gpu: bool) -> XlaPlan | None:
        """Return the complete plan of the CPU's compiler, or that for the GPU, or for the one most like it.

        Args:
            card: None where only the GPU's memory is known.
        """
        complete = {name: plan for name, plan in self.plans.items() if plan.is_complete}
        plans = [plan for name, plan in sorted(complete.items()) if on_gpu and name in BY_NAME]
        if card is None or not plans:
            return plans[0] if plans else complete.get("")
        return min(plans, key=lambda plan: _unlike(BY_NAME[plan.card], card))


def _unlike(one: KnownGpu, other: KnownGpu) -> tuple[bool, float, float]:
    """Return how different two GPUs are to XLA: the capability first, then how many multiprocessors."""
    capabilities = [each.capability[0] + each.capability[1] / 10 for each in (one, other)]
    processors = sorted((one.multiprocessors, other.multiprocessors))
    return one.name != other.name, abs(capabilities[0] - capabilities[1]), processors[1] / processors[0]


@dataclass(frozen=True)
class KnownRun:
    """A calibration and a plan as they hold for one run."""

    calibration: Calibration
    plan: XlaPlan
    planned: int | None  # the temporaries, where XLA planned the very run for the very device
    same_card: bool  # XLA was asked for the GPU, or for one of the same compute capability
    scaled: bool  # they are another run's
    activations: float  # times the plan's own
    stepwise: bool  # the networks go over the unroll one step at a time (remat)

    def temporaries(self, sizes: Sizes) -> dict[str, float]:
        """Return the bytes of each term at the fullest moment of the training step."""
        terms = self.plan.fullest(sizes, self._adjusted(sizes) if self.scaled else {})
        times = 1.0 if self.planned is None else self.planned / max(sum(terms.values()), 1.0)
        return {term: times * nbytes for term, nbytes in terms.items()}

    def _adjusted(self, sizes: Sizes) -> dict[str, float]:
        """Return what each term is multiplied by: of a minibatch all but its data."""
        minibatch = max(each.get("BU", 0.0) for each in self.plan.moments)
        data = min(self.calibration.transition_nbytes, minibatch)
        kept = self.activations / sizes.unroll if self.stepwise else self.activations
        return {
            "BU": (data + kept * (minibatch - data)) / minibatch if minibatch else 1.0,
            "B": self.activations,  # of SAC, whose updates come one after the other
        }


def known_of(run: Run, device: DeviceName = "cpu", gpu: Gpu | None = None) -> KnownRun | None:
    """Return what XLA said that holds for the run on the CPU, or on a GPU: that one, or the one most like it that XLA
    was asked about. None where no compiler has planned its environment.

    Args:
        gpu: None where only the memory of the GPU is known.
    """
    own, card = find_calibration(run), None if gpu is None else known_card(gpu)
    found = own or find_relative(run)
    plan = None if found is None else found.plan_for(card, on_gpu=device == "cuda")
    if found is None or plan is None:
        return None
    unknown = own is None or (device == "cuda" and card is None)
    other = run.replace(policy=run.policy.model_copy(update={"kwargs": found.policy}))
    return KnownRun(
        calibration=found if own is not None else _with_networks(found, run, other),
        plan=plan,
        planned=None if unknown else plan.asked.get(asked_key(card, sizes_of(run))),
        same_card=plan.is_of(card),
        scaled=own is None,
        activations=_units(run) / _units(other),
        stepwise=bool(run.memory.activation_checkpointing) and not found.remat and is_ppo(run),
    )


def _with_networks(known: Calibration, run: Run, other: Run) -> Calibration:
    """Return the calibration of a run with the networks of another; the ratio also holds for what is not counted."""
    (trained, targets), (before, _) = count_parameters(run), count_parameters(other)
    weights, optimizer = (round(each * trained / before) for each in (known.weights_nbytes, known.optimizer_nbytes))
    return replace(known, weights_nbytes=weights, targets_nbytes=targets * FLOAT, optimizer_nbytes=optimizer)


def _units(run: Run) -> int:
    return sum(sum(layers) for layers in hidden_layers(run))


# -- files ------------------------------------------------------------------------------------------------------------


def find_calibration(run: Run) -> Calibration | None:
    """Return what is kept about such runs on this machine, or shipped with their environment; None: nothing."""
    return next((found for folder, name in _places(run) if (found := _read(folder / name))), None)


def find_relative(run: Run) -> Calibration | None:
    """Return what is kept about the run's environment with other networks or knobs: of the largest networks."""
    for folder, name in _places(run):
        found = filter(None, map(_read, sorted(folder.glob(f"{name.rpartition('-')[0]}-*.json"))))
        if largest := max(found, key=lambda each: each.weights_nbytes, default=None):
            return largest
    return None


def calibration_file(run: Run) -> Path:
    """Return where it is kept on this machine; the same for runs that differ only in sizes."""
    return cache_folder() / next(_places(run))[1]


def shipped_file(run: Run) -> Path | None:
    """Return where the package of the run's environment ships it; None where it ships none."""
    return next((folder / name for folder, name in list(_places(run))[1:]), None)


def save_calibration(run: Run, calibration: Calibration) -> None:
    """Keep it for every run that differs from this one in sizes only."""
    write_json(calibration_file(run), calibration.model_dump())


def _places(run: Run) -> Iterator[tuple[Path, str]]:
    """Yield folders and names of files: by the environment, then by all else that a program depends on but sizes.

    What is shipped has no versions.
    """
    hyperparams = {key: value for key, value in run.hyperparams.items() if key not in SIZES | SHAPELESS}
    remat = bool(run.memory.activation_checkpointing)
    own = digest(run.policy.kwargs, sorted(hyperparams.items()), remat)
    env = VERSION, _source_of(run.env.id), run.algo.upper(), run.env.id, run.env.kwargs
    yield cache_folder(), f"brax-{digest(*env, library_versions())}-{own}.json"
    module = _module_file(run.env.id)
    if module is not None and (folder := module.parent / SHIPPED).is_dir():
        yield folder, f"brax-{digest(*env)}-{own}.json"


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


_REMEMBERED: dict[Path, tuple[int, Calibration | None]] = {}


def _read(path: Path) -> Calibration | None:
    """Return the calibration in a file, None where there is none or it is damaged; read once, since a fit asks
    thousands of times. Without pydantic, which is slow."""
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return None
    if path not in _REMEMBERED or _REMEMBERED[path][0] != changed:
        found = None
        try:
            data = read_json(path)
            found = Calibration(**{**data, "plans": {card: XlaPlan(**plan) for card, plan in data["plans"].items()}})
        except (KeyError, TypeError, AttributeError):
            pass
        _REMEMBERED[path] = changed, found
    return _REMEMBERED[path][1]
