"""What the compiler said about a brax run once, kept so that every other setting of it is arithmetic.

A calibration belongs to an environment, networks and library versions; num_envs, batch_size, num_minibatches,
unroll_length and the number of evaluation environments may be anything. It takes four or five processes that trace and
compile (`backends/brax/compiled.py`), some minutes, and is kept as JSON under the user's cache directory. Reading it
imports nothing: a prediction from it takes milliseconds.

A package may ship calibrations of its environments in a folder `calibrations` beside the module (the robot does, by
`bench/robot_calibrations.py`). They hold for as long as the environment's own files are what they were; those made with
other versions of the libraries are used with a wider band, since nobody should wait minutes for a first look.

What XLA plans for a card is kept beside it (`card_plans`).

brax compiles two kinds of program: where the environments are as many as the segments of a rollout (batch_size ×
num_minibatches), one unroll of each is the rollout, and XLA leaves out the loop around it. Each kind is asked for by
itself.
"""

import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from legroom.backends.base import hyper
from legroom.backends.brax.compiled import ask_compiler
from legroom.backends.brax.facts import is_ppo
from legroom.backends.brax.pieces import FEW, Program, Sizes, evenness
from legroom.machine.cache import cache_folder, digest, read_json, write_json
from legroom.machine.versions import read_versions
from legroom.model.data import Data
from legroom.model.run import Run

LIBRARIES = ("jax", "jaxlib", "brax", "flax", "optax", "mujoco", "mujoco-mjx", "playground")
VERSIONS = {True: 2, False: 3}  # of the file's form and of how it is made: PPO's and SAC's
# Settings that are arguments of the arithmetic, and those that are numbers inside the program and shape nothing.
SIZES = frozenset({"batch_size", "num_minibatches", "unroll_length", "max_replay_size", "grad_updates_per_step"})
SHAPELESS = frozenset({
    "learning_rate", "discounting", "entropy_cost", "reward_scaling", "clipping_epsilon", "gae_lambda", "tau",
    "vf_loss_coefficient", "num_evals", "num_resets_per_eval", "episode_length", "desired_kl", "min_replay_size",
    "learning_rate_schedule_min_lr", "learning_rate_schedule_max_lr", "training_metrics_steps",
    "normalize_observations_std_eps", "deterministic_eval", "verbose", "restore_value_fn", "run_evals",
})  # fmt: skip
SHIPPED = "calibrations"  # the folder beside an environment's module
KIND = {True: "one", False: "many"}  # unrolls per rollout; SAC's updates per training step


@dataclass(frozen=True)
class Checked(Data):
    """A setting that was really compiled, and what XLA's own analysis says its temporaries take."""

    sizes: Sizes
    temporaries: int


@dataclass(frozen=True)
class Calibration(Data):
    """What is known of one environment with one set of networks.

    Args:
        programs: the training step, by the kind of rollout: "one" unroll of every environment, or "many"; those of a
            card also by "few" minibatches or "lots" of them, and by the power of two that divides the batch.
        evaluation: brax's evaluation, whose only size is its environments.
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

    version: int
    versions: dict[str, str]
    programs: dict[str, Program]
    evaluation: Program | None
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
    checked: list[Checked]

    def temporaries(self, sizes: Sizes, adjust: Mapping[str, float] = MappingProxyType({})) -> dict[str, float]:
        """Return the bytes of each term at the training step's fullest moment; terms in `adjust` are multiplied."""
        return program_for(self.programs, sizes).fullest(sizes, adjust)

    def deviation(self) -> float:
        """Return how far, as a share, it may be from what the compiler says of a setting that is compiled as it is."""
        gaps = max((program.packing - 1 for program in self.programs.values()), default=0.0)
        known = [each for each in self.checked if each.temporaries and self.has_kind(each.sizes)]
        ratios = (sum(self.temporaries(each.sizes).values()) / each.temporaries for each in known)
        return max(gaps, *(abs(ratio - 1) for ratio in ratios), 0.0)

    def has_kind(self, sizes: Sizes) -> bool:
        """Return whether the compiler was asked about such a rollout."""
        return any(key.startswith(kind_of(sizes)) for key in self.programs)

    def largest(self, term: str) -> float:
        """Return the most bytes per unit of the term at any moment of the training step."""
        pieces = (piece for program in self.programs.values() for piece in program.pieces)
        return max((piece.get(term, 0.0) for piece in pieces), default=0.0)


def all_at_once(run: Run) -> Run:
    """Return the run without chunks of environments."""
    if run.memory.env_chunk is None:
        return run
    return run.replace(memory=run.memory.model_copy(update={"env_chunk": None}))


def sizes_of(run: Run) -> Sizes:
    """Return the settings that the run's arrays depend on."""
    if not is_ppo(run):
        updates, rows = int(hyper(run, "grad_updates_per_step")), hyper(run, "max_replay_size") or run.total_timesteps
        return Sizes(run.env.n_envs, int(hyper(run, "batch_size")), int(rows or 1), updates, replay=True)
    return Sizes(
        run.env.n_envs, int(hyper(run, "batch_size")), int(hyper(run, "num_minibatches")),
        int(hyper(run, "unroll_length")),
    )  # fmt: skip


def kind_of(sizes: Sizes) -> str:
    """Return which of brax's programs it is."""
    return KIND[(sizes.unroll if sizes.replay else sizes.unrolls) == 1]


def card_kind_of(sizes: Sizes) -> str:
    """Return which of its programs it is to the compiler of a card, as `many few 64`; SAC's as `many`."""
    if sizes.replay:
        return kind_of(sizes)
    return f"{kind_of(sizes)} {'few' if sizes.minibatches <= FEW else 'lots'} {evenness(sizes.batch)}"


def program_for(programs: Mapping[str, Program], sizes: Sizes) -> Program:
    """Return the program for these sizes, or else the one that is most like it: unrolls, then batch, then minibatches.

    Programs of a CPU are told apart by unrolls alone.
    """
    unrolls, *others = card_kind_of(sizes).split()
    return programs[max(programs, key=lambda key: [each in key.split() for each in (unrolls, *reversed(others))])]


def find_calibration(run: Run) -> Calibration | None:
    """Return what is kept about such runs on this machine, or shipped with their environment; None: nothing."""
    found = (_read(place) for place in calibration_places(run))
    return next((each for each in found if each is not None), None)


def calibration_places(run: Run) -> list[Path]:
    """Return the files that may hold it: on this machine, then shipped with its environment."""
    folder = shipped_folder(run.env.id)
    return [calibration_file(run), *([] if folder is None else [folder / _name(run)])]


def kinds_for(run: Run, *, both: bool) -> list[str]:
    """Return the kinds of program to ask for: the run's own, or both."""
    return [*KIND.values()] if both else [kind_of(sizes_of(run))]


def made_elsewhere(calibration: Calibration) -> list[str]:
    """Return the libraries whose version here is another than the one it was made with, as `jax 0.9.2`."""
    here = dict(_versions())
    return [f"{name} {version}" for name, version in calibration.versions.items() if here.get(name, version) != version]


def calibration_file(run: Run) -> Path:
    """Return where it is kept; the same for runs that differ only in sizes."""
    return cache_folder() / _name(run, _versions())


def shipped_folder(env_id: str | None) -> Path | None:
    """Return where the package of the environment keeps calibrations; None where it does not."""
    module = _module_file(env_id)
    folder = None if module is None else module.parent / SHIPPED
    return folder if folder is not None and folder.is_dir() else None


def save_calibration(run: Run, calibration: Calibration) -> None:
    """Keep it for every run that differs from this one in sizes only, and as the latest of its environment."""
    _write(run, calibration, cache_folder(), _versions())


def ship_calibration(run: Run, calibration: Calibration, folder: Path) -> Path:
    """Write it into the folder that a package ships, where every run that differs in sizes only finds it."""
    return _write(run, calibration, folder)


def _write(run: Run, calibration: Calibration, folder: Path, *versions: Any) -> Path:
    path = folder / _name(run, *versions)
    write_json(path, calibration.model_dump())
    remat, policy = bool(run.memory.activation_checkpointing), run.policy.model_dump()["kwargs"]
    about = {"file": path.name, "policy": policy, "remat": remat}
    write_json(folder / _relative_name(run, *versions), about)
    return path


def _name(run: Run, *versions: Any) -> str:
    """Return the file of a calibration; what is shipped holds whatever the versions."""
    return f"brax-{digest(VERSIONS[is_ppo(run)], *versions, *_identity(run))}.json"


def _relative_name(run: Run, *versions: Any) -> str:
    """Return the file that says which is the latest calibration of the run's environment."""
    parts = _source_of(run.env.id), run.algo.upper(), run.env.id, run.env.kwargs
    return f"brax-env-{digest(VERSIONS[is_ppo(run)], *versions, *parts)}.json"


def _identity(run: Run) -> tuple[Any, ...]:
    """Return all that a compiled program depends on but sizes and versions."""
    hyperparams = {key: value for key, value in run.hyperparams.items() if key not in SIZES | SHAPELESS}
    # stepping in chunks is no part of it: what that saves is arithmetic (`brax_scaling`)
    remat = bool(run.memory.activation_checkpointing)
    parts = run.algo.upper(), run.env.id, run.env.kwargs, run.policy.kwargs, sorted(hyperparams.items()), remat
    return (_source_of(run.env.id), *parts)


@cache
def _versions() -> tuple[tuple[str, str], ...]:
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


def _read(path: Path) -> Calibration | None:
    found: Calibration | None = remembered(path, lambda each: parsed(read_json(each)))
    return found


def remembered(path: Path, read: Callable[[Path], Any]) -> Any:
    """Return what `read` makes of the file, None where there is none; once, since a fit asks thousands of times."""
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        return None
    if path not in _REMEMBERED or _REMEMBERED[path][0] != changed:
        _REMEMBERED[path] = changed, read(path)
    return _REMEMBERED[path][1]


def parsed(data: Any, what: type[Any] = Calibration) -> Any:
    """Return the calibration that our own JSON describes, None where it is damaged; without pydantic, which is slow."""
    try:
        programs = {kind: _program(each) for kind, each in data["programs"].items()}
        evaluation = None if data["evaluation"] is None else _program(data["evaluation"])
        checked = [Checked(Sizes(**each["sizes"]), each["temporaries"]) for each in data["checked"]]
        return what(**{**data, "programs": programs, "evaluation": evaluation, "checked": checked})
    except (KeyError, TypeError, AttributeError):
        return None


def _program(data: dict[str, Any]) -> Program:
    return Program(tuple(data["pieces"]), data["packing"])


def find_relative(run: Run) -> tuple[Calibration, dict[str, Any], bool, Path] | None:
    """Return the latest calibration of the run's environment, its networks, whether with remat, and its file."""
    places = [cache_folder() / _relative_name(run, _versions())]
    if (folder := shipped_folder(run.env.id)) is not None:
        places.append(folder / _relative_name(run))
    for place in places:
        about = remembered(place, read_json)
        if not isinstance(about, dict):
            continue
        file = place.parent / str(about.get("file"))
        found = _read(file)
        if found is not None and found.programs:
            return found, about["policy"], about["remat"], file
    return None


def calibrate(run: Run, *, progress: Callable[[str], None] = lambda _: None, both: bool = False) -> Calibration:
    """Return a calibration that knows the run's kind of program, compiling what is not kept yet; and keep it.

    Args:
        both: ask for the other kind as well, which a table of many settings needs.

    Raises:
        BadInput: brax refuses the run.
        MissingExtra: jax or brax is not installed.
    """
    run = all_at_once(run)
    known = find_calibration(run)
    if known is not None and made_elsewhere(known):  # asked again, with the libraries that are here
        known = None
    if known is None:
        free, busy = ask_compiler("compile", run, progress=progress), ask_compiler("compile", run, cores=1)
        known = _from_compiler(run, free, busy)
        save_calibration(run, known)
    for kind in kinds_for(run, both=both):
        if kind not in known.programs:
            answer = ask_compiler("mark", run, progress=progress, one_unroll=kind == "one", evaluation=False)
            known = known.model_copy(update={"programs": {**known.programs, kind: _program(answer)}})
            save_calibration(run, known)
    if known.evaluation is None:
        answer = ask_compiler("mark", run, progress=progress, one_unroll=False, evaluation=True)
        known = known.model_copy(update={"evaluation": _program(answer)})
        save_calibration(run, known)
    return known


def _from_compiler(run: Run, free: dict[str, Any], busy: dict[str, Any]) -> Calibration:
    """Return what two processes said that compiled the same, one with all cores and one with a single one."""
    names = (
        "weights_nbytes", "targets_nbytes", "optimizer_nbytes", "other_nbytes", "env_state_nbytes",
        "env_fixed_nbytes", "eval_state_nbytes", "transition_nbytes", "observation", "action_size",
    )  # fmt: skip
    measured = ("imported_nbytes", "traced_nbytes", "compiled_nbytes", "all_compiled_nbytes", "retained_nbytes")
    return Calibration(
        version=VERSIONS[is_ppo(run)],
        versions=dict(_versions()),
        programs={},
        evaluation=None,
        compile_s=free["trace_s"] + free["compile_s"] + free["evaluation_s"],
        checked=[Checked(sizes_of(run), free["epoch"]["temporaries"])],
        host_spread_nbytes=abs(free["all_compiled_nbytes"] - busy["all_compiled_nbytes"]) // 2,
        **{name: free[name] for name in names},
        **{name: (free[name] + busy[name]) // 2 for name in measured},
    )
