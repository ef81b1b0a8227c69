"""The seam: everything that the core may ask of a training library, and the table of installed backends.

A backend is one object of class `Backend`: what it is called, and five parts, each stated as far as the library has
something to say there. It is found through the entry point group `legroom.backends`; those of this distribution are
registered in the same way as anybody's. The core never compares a backend's name: it asks `backend_of(run)`. Nothing
here imports a backend before it is asked for, and a backend imports its library only when a part is used (`lazily`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from legroom.backends.default import DEFAULT_BACKEND as DEFAULT_BACKEND
from legroom.errors import BadInput, LegroomError
from legroom.extras import entry_points, require
from legroom.model.draft import Draft, Key, Vocabulary
from legroom.model.evidence import DeviceName, EnvTask, Evidence, Look, Mode, Values
from legroom.model.facts import Algorithm, Storage
from legroom.model.footprint import Finding, Footprint
from legroom.model.machine import Machine
from legroom.model.plan import PRICES, Attachment, Growth, Knob, MostEnvs, Plan, Price
from legroom.model.run import Run
from legroom.named_runs import workload_of
from legroom.plugins import plugged_knobs

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from legroom.model.draft import FileKind
    from legroom.model.facts import Counts, StoredData
    from legroom.model.learner import Exported, FailureCause, Learner, Loop, TrainTask
    from legroom.model.rule import Rule, SubjectRun
    from legroom.model.spaces import KnownSpaces

GROUP = "legroom.backends"


class _Lazy:
    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, part: Any, kind: type | None = None) -> Any:
        module, _, name = self._place.partition(":")
        return getattr(import_module(module), name)


def lazily(place: str) -> Any:
    """Return an attribute of a part that is `module:name`, imported when used: a table, or a method's function."""
    return _Lazy(place)


class BackendReader(Protocol):
    """How runs of the library are written."""

    # its words in run files and on command lines, beside those that every backend has
    vocabulary: Vocabulary = Vocabulary()
    file_kinds: tuple[FileKind, ...] = ()  # YAML of other programs that it reads runs from

    def script_drafts(self, text: str, path: str) -> list[Draft]:
        """Return the runs that a Python script makes with this library, found by its syntax; nothing is executed.

        Raises:
            BadInput: it is not Python.
        """
        return []

    def translate_hyperparams(self, data: dict[str, Any], given: Collection[Key]) -> Mapping[str, str]:
        """Turn other libraries' words among the hyperparameters of a run file into its own, in place.

        Args:
            given: the keys that overrides have set.

        Returns:
            What is wrong with a hyperparameter, by its name: "must be at least 1, got 0".
        """
        return {}

    def adopt_words(self, data: dict[str, Any], own: Collection[Key]) -> list[str]:
        """Turn settings in words that programs of their own use (`n_steps`, `n_epochs`) into its own, in place.

        Args:
            own: the keys that stood in the user's file; the rest is of the run that completes it.

        Returns:
            The names that it has no word for, which are taken out.
        """
        return []

    def run_of_object(self, what: Any, arguments: Mapping[str, Any] | None) -> Run | None:
        """Return the run that a constructor's call makes; None where it is none of this library's.

        Args:
            what: a class of the library; a live model; or a call as `legroom.hollow.model_calls` recorded it, a
                mapping, with `total_timesteps` where that is known.
            arguments: that the class is called with; None for the others.

        Raises:
            BadInput: it is one, but not with these arguments.
        """
        return None


class BackendPredictor(Protocol):
    """What a run of the library takes."""

    # whether its hyperparameters are those of its algorithms' constructors, and no others
    checks_hyperparams: bool = True

    def storage(self, run: Run) -> Storage:
        """Return what the run keeps of its steps until it learns from them."""
        size, observation = hyper(run, "buffer_size"), run.env.spaces and run.env.spaces.observation
        if size:
            return Storage("replay", int(size), observation)
        return Storage("rollout", int(hyper(run, "n_steps") or 0), observation)

    def constraints(self, run: Run) -> Iterable[Finding]:
        """Return what the library would refuse, or do differently from what the run seems to say."""
        return ()

    def unread_memory(self, run: Run) -> Mapping[str, tuple[str, str]] | None:
        """Return the keys of `memory` that have no effect: what is to be said of each, and the way out; None: all."""
        return None

    def prepared(self, run: Run, mode: Mode, progress: Callable[[str], None]) -> Run:
        """Return the run with what only the library knows of it, its spaces for example.

        Args:
            progress: is told what takes long.

        Raises:
            MissingExtra, BadInput: mode `trace` without the library, or a run that it refuses.
        """
        return run

    def env_task(self, run: Run) -> EnvTask | None:
        """Return how the run's gymnasium environment is to be looked at; None where it has no such environment."""
        return EnvTask()

    def base_figures(self, run: Run, device: DeviceName, *, measure: bool) -> Any:
        """Return what its processes hold before they do anything, as `footprint` reads it in `Evidence.base`.

        Args:
            measure: measure now what is not known of the installed versions; this may take a minute.
        """
        return None

    def look(
        self,
        runs: Sequence[Run],
        devices: Sequence[DeviceName],
        machine: Machine,
        mode: Mode,
        values: Values = "refuse",
        progress: Callable[[str], None] = lambda text: None,
    ) -> list[Look]:
        """Return what is known of the networks and updates of each run, by arithmetic or, unless `mode` forbids it,
        by tracing, measuring or asking a compiler; several runs share the cost of importing the library.

        Args:
            values: what code gets that reads a value while it is traced; see `predict`.

        Raises:
            MissingExtra: mode `trace` without the library.
        """
        return [Look() for _ in runs]

    def footprint(self, run: Run, evidence: Evidence) -> Footprint:
        """Return the bill; `predicting.predict.footprint_of` makes one of items."""
        ...


class BackendFitter(Protocol):
    """What can be turned of a run of the library."""

    # what fitting may turn; the order within a price decides between knobs that buy the same
    knobs: tuple[Knob, ...] = ()
    # rules that the library only warns of and a fitted run satisfies all the same, with the price of that
    must_hold: Mapping[str, Price] = {}
    # rules whose mending is more than the finding's own fix says: the run mended, None where it cannot be
    mends: Mapping[str, Callable[[Run], Run | None]] = {}
    # the savings that a program which uses the library can have from outside, without being edited
    attachments: tuple[Attachment, ...] = ()
    # keywords of a policy that are widths of hidden layers, with what the page calls them
    layers: Mapping[str, str] = {}
    settings: tuple[str, ...] = ()  # keys of env, eval, checkpoint and memory that do something, beside `n_envs`
    last_stops: Mapping[str, int] = {}  # where the page's sliders end that go further, or less far, than its own

    def with_free_savings(self, run: Run, evidence: Evidence) -> Run:
        """Return the run with what a training does by itself: bit-equal, no slower, and not against what it says."""
        return run

    def ways_to_grow(self, run: Run) -> tuple[Growth, ...]:
        """Return what of the run can be made larger to use free memory, in the order in which it is."""
        return ()

    def with_most_envs(self, plan: Plan, footprint: Callable[[Run], Footprint], cap: int | None) -> MostEnvs | None:
        """Return the plan with all environments that its GPU has room for; None for runs that do not ask for it.

        Args:
            cap: environment steps that one update may learn from; None: what the backend thinks sensible.
        """
        return None

    def keeps_data_per_update(self, before: Run, after: Run) -> bool:
        """Return whether a knob that changes learning leaves the data of an update: it is then turned before others."""
        return False

    def spillable_nbytes(self, run: Run, evidence: Evidence) -> int | None:
        """Return what the storage that `memory.max_bytes` limits is counted with; None where the run has none."""
        return None

    def gradient_step(self, run: Run) -> tuple[int, int | None]:
        """Return the samples of one gradient step, and how many of them go over one rollout where there is one."""
        return int(hyper(run, "batch_size") or 1), None

    def evidence_key(self, run: Run) -> str:
        """Return what variants of a run share that need not be looked at more than once."""
        return ""


class BackendChecker(Protocol):
    """What is wrong, or right, with runs and scripts of the library."""

    # that know this library, asked about its runs alone; a general rule's code adds to it
    run_rules: tuple[Rule, ...] = ()
    script_rules: tuple[Rule, ...] = ()  # about Python source that uses it
    # what to change first in a run that needs more GPU memory than there is
    advice_for_full_gpu: str = "a smaller batch_size or network; legroom fit finds them"

    def follows(self, script: Any) -> bool | None:
        """Return whether the sizes of a training in this source are known without a run; None: it trains nothing."""
        return None

    def counts(self, run: Run) -> Counts | None:
        """Return how often things happen in the run; None where it has no iterations that end in an update."""
        return None

    def stored_data(self, run: Run, footprint: Footprint) -> StoredData | None:
        """Return the rollout or replay buffer that a bill holds, None where the run keeps none."""
        return None

    def confirmations(self, one: SubjectRun) -> Iterable[tuple[str, str]]:
        """Return (what, why it is fine) of settings that look wrong and are not; BadInput: something is not known."""
        return ()


class BackendTrainer(Protocol):
    """How runs of the library are trained."""

    export_file: str = ""  # what `legroom export` writes of its runs; empty where it cannot
    export_use: str = "elsewhere"  # where a policy can be used that was exported: `elsewhere`, `with SB3`

    def refuse_training(self, run: Run, *, fit: bool, resume: bool, pictures: bool) -> None:
        """Refuse at once what the library would only refuse minutes later.

        Raises:
            BadInput: with the way out.
        """
        return

    def quick_prediction(self, run: Run) -> tuple[Run, Mode]:
        """Return the run with its spaces, and how to predict it within seconds, before a training begins."""
        return run, "auto"

    def with_memory_requests(self, run: Run, seen: Run, evidence: Evidence) -> Run:
        """Return the run with what its processes ask a cluster's scheduler for.

        Args:
            seen: the same run with its spaces, to which the evidence belongs.
        """
        return run

    def child_environment(self, task: TrainTask) -> Mapping[str, str]:
        """Return variables of the training child: allocator variables are set before the library is imported.

        What the user has set counts more.
        """
        return {}

    def learner(self, task: TrainTask, loop: Loop) -> Learner:
        """Return what trains the run, in the training child; may be slow.

        Raises:
            BadInput: it cannot be trained.
        """
        raise BadInput(f"backend {task.run.backend} predicts runs, it does not train them", path=task.run.source)

    def failure_cause(self, error: Exception) -> FailureCause:
        """Return what an exception of the training means."""
        from legroom.model.learner import FailureCause

        if isinstance(error, LegroomError):
            return FailureCause("refused")
        return FailureCause("memory" if isinstance(error, MemoryError) else "error")

    def export(self, directory: Path, archive: Path, *, force: bool, trust: bool) -> Exported:
        """Write what a run has learned, its last good checkpoint, as a file for use elsewhere.

        Raises:
            BadInput: it cannot be exported.
            MissingExtra: the library is not installed.
        """
        raise BadInput("runs of this backend cannot be exported", path=directory)


class _NoTrainer(BackendTrainer):
    def refuse_training(self, run: Run, *, fit: bool, resume: bool, pictures: bool) -> None:
        raise BadInput(f"backend {run.backend} predicts runs, it does not train them", path=run.source)


def _plain(part: Any) -> Any:
    """Return a part that states nothing."""
    return type(part.__name__, (part,), {})()


_READER, _FITTER, _CHECKER = _plain(BackendReader), _plain(BackendFitter), _plain(BackendChecker)
_TRAINER = _NoTrainer()


@dataclass(frozen=True, eq=False, kw_only=True)
class Backend:
    """One training library: its names, and its five parts. It needs a name, a title, algorithms and a predictor."""

    name: str  # as it stands in run files
    title: str  # its name in sentences
    algorithms: tuple[Algorithm, ...]  # that it trains, with the defaults of their constructors
    extra: str = ""  # what `pip install 'legroom[extra]'` needs for it; empty for a backend of another distribution
    packages: tuple[str, ...] = ()  # what a training imports, checked before one is started
    libraries: tuple[str, ...] = ()  # distributions that figures depend on, or that a report should name
    classes_from: tuple[str, ...] = ()  # packages whose classes (wrappers, layers) a run may name without being trusted
    spreads: bool = False  # whether one training can be spread over the nodes of a cluster
    in_headings: bool = True  # whether a heading that names an algorithm names the library too
    script_packages: tuple[str, ...] = ()  # what Python source imports to use the library
    # spaces of the library's own environments; None: it trains gymnasium's, of which reading has a table
    own_spaces: Mapping[str, KnownSpaces] | None = None

    predictor: BackendPredictor
    reader: BackendReader = _READER
    fitter: BackendFitter = _FITTER
    checker: BackendChecker = _CHECKER
    trainer: BackendTrainer = _TRAINER


@cache
def _registered() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(GROUP)}


def backend_names() -> tuple[str, ...]:
    """Return the names of all installed backends, the default one first."""
    return tuple(sorted(_registered(), key=lambda name: (name != DEFAULT_BACKEND, name)))


def find_backend(name: str) -> Backend | None:
    """Return the backend of that name, None where none is installed."""
    return _loaded(name) if name in _registered() else None


@cache  # of installed names alone: what people ask for may be anything
def _loaded(name: str) -> Backend:
    backend: Backend = _registered()[name].load()
    return backend


def backend_named(name: str) -> Backend:
    """Return the backend of that name.

    Raises:
        BadInput: none is installed.
    """
    found = find_backend(name)
    if found is None:
        close = difflib.get_close_matches(name, backend_names(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"installed: {', '.join(backend_names())}"
        raise BadInput(f"unknown backend {name!r}", hint=hint)
    return found


def backends() -> tuple[Backend, ...]:
    """Return all installed backends."""
    return tuple(backend_named(name) for name in backend_names())


def backend_of(run: Run) -> Backend:
    """Return the backend that trains the run."""
    return backend_named(run.backend)


def no_cluster(why: str, path: str | None = None) -> BadInput:
    """Return the refusal of `--cluster` for a backend that trains on one machine."""
    able = [backend for backend in backends() if backend.spreads]
    titles = " and ".join(backend.title for backend in able) or "other backends"
    return BadInput(f"--cluster is for {titles}: {why}", path=path, hint=f"--backend {able[0].name}" if able else "")


@cache
def all_knobs() -> tuple[Knob, ...]:
    """Return the knobs of all installed backends, cheapest first; those that several have are there once."""
    once: dict[tuple[str, str], Knob] = {}
    for knob in (*(knob for backend in backends() for knob in backend.fitter.knobs), *plugged_knobs()):
        once.setdefault((knob.key, knob.say), knob)
    return tuple(sorted(once.values(), key=lambda knob: PRICES.index(knob.price)))


def knob_named(key: str, first: Backend | None = None) -> Knob | None:
    """Return the first knob that turns this key of a run file, None where none does; one of backend `first` if it can.

    What a setting costs is the same wherever it is said: in a plan, on the page, in an explanation, in the manual.
    """
    knobs = (*first.fitter.knobs, *all_knobs()) if first is not None else all_knobs()
    return next((knob for knob in knobs if key in (knob.key, *knob.also)), None)


@cache
def all_attachments() -> tuple[Attachment, ...]:
    """Return what the installed backends can attach to a program."""
    return tuple(attachment for backend in backends() for attachment in backend.fitter.attachments)


def find_algorithm(backend: str, name: str) -> Algorithm | None:
    """Return the algorithm of that name (in any case), None when there is none."""
    found = find_backend(backend)
    wanted = name.lower()
    return None if found is None else next((a for a in found.algorithms if a.name.lower() == wanted), None)


def algorithm_names(backend: str) -> list[str]:
    return [algorithm.name for algorithm in backend_named(backend).algorithms]


def all_algorithms() -> tuple[Algorithm, ...]:
    """Return the algorithms of all installed backends, each once."""
    return tuple(dict.fromkeys(algorithm for backend in backends() for algorithm in backend.algorithms))


def algorithm_of(run: Run) -> Algorithm:
    """Return the run's algorithm.

    Raises:
        BadInput: the backend has none of that name (reading has already refused such a file).
    """
    found = find_algorithm(run.backend, run.algo)
    if found is None:
        raise BadInput(f"unknown algorithm {run.algo!r} for backend {run.backend}", path=run.source)
    return found


def hyper(run: Run, key: str) -> Any:
    """Return a hyperparameter as the constructor would see it: the run's own, or the algorithm's default."""
    return run.hyperparams.get(key, algorithm_of(run).defaults.get(key))


def require_packages(run: Run) -> None:
    """Refuse to train a run whose backend or workload needs a package that is not installed; imports none of them.

    Raises:
        MissingExtra: the first that is missing.
    """
    backend, workload = backend_of(run), workload_of(run)
    require(backend.extra, backend.packages, what=f"training with backend {backend.name}")
    if workload is not None:
        require(workload.extra, workload.packages, what=f"training {run.name}")
