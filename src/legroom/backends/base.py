"""The seam: everything that the core may ask of a training library, and the table of installed backends.

A backend is one object that implements `Backend`. It is found through the entry point group `legroom.backends`; those
of this distribution are registered in the same way as anybody's. The core never compares a backend's name: it asks
`backend_of(run)`. Nothing here imports a backend before it is asked for, and a backend imports its library only in the
methods that need it.

Most methods have a default that means "nothing special", so that a small backend states only what it has.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from legroom.backends.default import DEFAULT_BACKEND as DEFAULT_BACKEND
from legroom.errors import BadInput, LegroomError
from legroom.extras import entry_points, require
from legroom.model.algorithms import Algorithm
from legroom.model.attachment import Attachment
from legroom.model.counts import Storage
from legroom.model.draft import Draft, Key
from legroom.model.evidence import DeviceName, EnvTask, Evidence, Look, Mode, Values
from legroom.model.facts import spaces_of
from legroom.model.finding import Finding
from legroom.model.footprint import Footprint
from legroom.model.knob import Growth, Knob
from legroom.model.machine import Gpu, Machine
from legroom.model.plan import PRICES, MostEnvs, Plan, Price
from legroom.model.run import MemorySpec, Run
from legroom.model.spaces import Space
from legroom.model.vocabulary import Vocabulary
from legroom.named_runs import workload_of
from legroom.plugins import plugged_knobs

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from legroom.model.archive import Exported
    from legroom.model.counts import Counts, StoredData
    from legroom.model.file_kind import FileKind
    from legroom.model.learner import FailureCause, Learner, Loop
    from legroom.model.rule import Rule
    from legroom.model.spaces import KnownSpaces
    from legroom.model.subject import SubjectRun
    from legroom.model.task import TrainTask

GROUP = "legroom.backends"


class Backend(Protocol):
    """One training library.

    Attributes:
        name: as it stands in run files.
        title: its name in sentences.
        extra: what `pip install 'legroom[extra]'` needs for it; empty for a backend of another distribution.
        packages: what a training imports, checked before one is started.
        libraries: distributions that figures depend on, or that a report should name.
        classes_from: packages whose classes (wrappers, layers) a run may name without being trusted.
        spreads: whether one training can be spread over the nodes of a cluster.
        script_packages: what Python source imports to use the library.
        algorithms: that it trains, with the defaults of their constructors.
    """

    name: str
    title: str
    extra: str = ""
    packages: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    classes_from: tuple[str, ...] = ()
    spreads: bool = False
    script_packages: tuple[str, ...] = ()

    @property
    def algorithms(self) -> tuple[Algorithm, ...]: ...

    # The methods of each stage of the way through follow: reading, facts, predicting, fitting, checking,
    # the page, training. A section is added together with the code of the core that asks it.

    # ---- reading

    pins_read: tuple[str, ...] = ()
    """distributions whose release changes what a run stores: a pin next to a file counts as installed"""
    own_spaces: Mapping[str, KnownSpaces] | None = None
    """spaces of the library's own environments; None: it trains gymnasium's, of which reading has a table"""

    @property
    def vocabulary(self) -> Vocabulary:
        """Its words in run files and on command lines, beside those that every backend has."""
        return Vocabulary()

    @property
    def file_kinds(self) -> tuple[FileKind, ...]:
        """YAML of other programs that it reads runs from."""
        return ()

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

    def run_of_call(self, what: Any, policy: Any, env: Any, arguments: Mapping[str, Any]) -> Run | None:
        """Return the run that `what(policy, env, **arguments)` would be; None where it is no class of this library.

        Raises:
            BadInput: it is one, but not with these arguments.
        """
        return None

    def run_of_model(self, model: Any) -> Run | None:
        """Return the run that a live object is; None where it is none of this library's."""
        return None

    def run_of_record(self, record: Mapping[str, Any]) -> Run | None:
        """Return the run that a constructor call of a rehearsed program makes; None where it is none of this library's.

        Args:
            record: as `legroom.hollow.model_calls` wrote it down, with `total_timesteps` where that is known.
        """
        return None

    # ---- facts

    def storage(self, run: Run) -> Storage:
        """Return what the run keeps of its steps until it learns from them."""
        size = hyper(run, "buffer_size")
        return Storage("replay", int(size)) if size else Storage("rollout", int(hyper(run, "n_steps") or 0))

    def stored_observation(self, run: Run) -> Space:
        """Return the observation as it is stored."""
        return spaces_of(run)[0]

    def constraints(self, run: Run) -> Iterable[Finding]:
        """Return what the library would refuse, or do differently from what the run seems to say."""
        return ()

    def hyperparameters(self, run: Run) -> Collection[str]:
        """Return the names that `hyperparams` may have."""
        return algorithm_of(run).keys

    def unread_memory(self, run: Run) -> Mapping[str, tuple[str, str]]:
        """Return the keys of `memory` that have no effect: what is to be said of each, and the way out."""
        keys = (field.name for field in fields(MemorySpec))
        return {key: (f"memory.{key} has no effect with backend {self.name}", "") for key in keys}

    # ---- predicting

    def prepared(self, run: Run, mode: Mode, progress: Callable[[str], None]) -> Run:
        """Return the run with what only the library knows of it, its spaces for example.

        Args:
            progress: is told what takes long.

        Raises:
            MissingExtra, BadInput: mode `trace` without the library, or a run that it refuses.
        """
        return run

    def asked_for_card(self, run: Run, gpu: Gpu, mode: Mode, progress: Callable[[str], None]) -> str:
        """Have the library's compiler plan the run for this card, where it has one, and keep what it says.

        Returns:
            Why that failed, as a note for the reader; empty where it did not, or where there is nothing to ask.
        """
        return ""

    def env_task(self, run: Run) -> EnvTask | None:
        """Return how the run's gymnasium environment is to be looked at; None where it has no such environment."""
        return EnvTask()

    def base_figures(self, run: Run, device: DeviceName, *, measure: bool) -> Any:
        """Return what its processes hold before they do anything, as `footprint` reads it in `Evidence.base`.

        Args:
            measure: measure now what is not known of the installed versions; this may take a minute.
        """
        return None

    def look(self, runs: Sequence[Run], devices: Sequence[DeviceName], machine: Machine, mode: Mode) -> list[Look]:
        """Return what is known of the networks and updates of each run, by arithmetic or, unless `mode` forbids it,
        by tracing and measuring; several runs share the cost of importing the library.

        Raises:
            MissingExtra: mode `trace` without the library.
        """
        return [Look() for _ in runs]

    def look_answering(
        self, runs: Sequence[Run], devices: Sequence[DeviceName], machine: Machine, mode: Mode, values: Values
    ) -> list[Look]:
        """Return the same, where code that reads values while it is traced gets an answer: assumed, or computed."""
        return self.look(runs, devices, machine, mode)

    def footprint(self, run: Run, evidence: Evidence) -> Footprint:
        """Return the bill; `predicting.predict.footprint_of` makes one of items."""
        ...

    # ---- checking

    @property
    def run_rules(self) -> tuple[Rule, ...]:
        """Return the rules that know this library, asked about its runs alone; a general rule's code adds to it."""
        return ()

    @property
    def script_rules(self) -> tuple[Rule, ...]:
        """Return the rules about Python source that uses this library."""
        return ()

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

    def label(self, run: Run) -> str:
        """Return the run's algorithm in a heading; the default backend's need no more than their name."""
        return f"{run.algo} on {self.title}"

    def advice_for_full_gpu(self, run: Run) -> str:
        """Return what to change first in a run that needs more GPU memory than there is."""
        return "a smaller batch_size or network; legroom fit finds them"

    # ---- fitting

    must_hold: Mapping[str, Price] = {}
    """rules that the library only warns of and a fitted run satisfies all the same, with what mending them costs"""

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """What fitting may turn; the order within a price decides between knobs that buy the same."""
        return ()

    def with_free_savings(self, run: Run, evidence: Evidence) -> Run:
        """Return the run with what a training does by itself: bit-equal, no slower, and not against what it says."""
        return run

    def ways_to_grow(self, run: Run) -> tuple[Growth, ...]:
        """Return what of the run can be made larger to use free memory, in the order in which it is."""
        return ()

    def with_most_envs(self, plan: Plan, footprint: Callable[[Run], Footprint], cap: int | None) -> MostEnvs | None:
        """Return the plan with all environments that its card has room for; None for runs that do not ask for it.

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

    def mended(self, run: Run, finding: Finding) -> Run | None:
        """Return the run with a broken rule mended; None where it is as the finding's own fix says."""
        return None

    def evidence_key(self, run: Run) -> str:
        """Return what variants of a run share that need not be looked at more than once."""
        return ""

    # ---- programs

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Return the savings that a program which uses the library can have from outside, without being edited."""
        return ()

    # ---- archives

    def export(self, directory: Path, archive: Path, *, force: bool, trust: bool) -> Exported:
        """Write what a run has learned, its last good checkpoint, as a file for use elsewhere.

        Raises:
            BadInput: it cannot be exported.
            MissingExtra: the library is not installed.
        """
        raise BadInput(f"runs of {self.title} cannot be exported", path=directory)

    # ---- the page

    last_stops: Mapping[str, int] = {}
    """where sliders end that go further, or less far, than the page's own"""

    def layers(self, run: Run) -> Mapping[str, str]:
        """Return which keywords of the run's policy are widths of hidden layers, with what the page calls them."""
        return {}

    def settings(self, run: Run) -> tuple[str, ...]:
        """Return which keys of env, eval, checkpoint and memory do something for such a run, beside `n_envs`."""
        return ()

    # ---- training

    export_file: str = ""
    """what `legroom export` writes of its runs; empty where it cannot"""
    export_use: str = "elsewhere"
    """where a policy can be used that was exported: `elsewhere`, `with SB3`"""

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
        """Return variables of the training child: allocators are told before a library loads, or they do not listen.

        What the user has set counts more.
        """
        return {}

    def learner(self, task: TrainTask, loop: Loop) -> Learner:
        """Return what trains the run, in the training child; may be slow.

        Raises:
            BadInput: it cannot be trained.
        """

    def failure_cause(self, error: Exception) -> FailureCause:
        """Return what an exception of the training means."""
        from legroom.model.learner import FailureCause

        if isinstance(error, LegroomError):
            return FailureCause("refused")
        return FailureCause("memory" if isinstance(error, MemoryError) else "error")


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
    for knob in (*(knob for backend in backends() for knob in backend.knobs), *plugged_knobs()):
        once.setdefault((knob.key, knob.say), knob)
    return tuple(sorted(once.values(), key=lambda knob: PRICES.index(knob.price)))


def knob_named(key: str, first: Backend | None = None) -> Knob | None:
    """Return the first knob that turns this key of a run file, None where none does; one of backend `first` if it can.

    What a setting costs is the same wherever it is said: in a plan, on the page, in an explanation, in the manual.
    """
    knobs = (*first.knobs, *all_knobs()) if first is not None else all_knobs()
    return next((knob for knob in knobs if key in (knob.key, *knob.also)), None)


@cache
def all_attachments() -> tuple[Attachment, ...]:
    """Return what the installed backends can attach to a program."""
    return tuple(attachment for backend in backends() for attachment in backend.attachments)


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
