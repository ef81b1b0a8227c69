"""brax behind the seam. Light: what imports jax is imported where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from legroom.backends.base import Backend, hyper
from legroom.backends.brax import constraints
from legroom.backends.brax.facts import LAYERS, is_ppo
from legroom.backends.brax.vocabulary import BRAX_ALGORITHMS, SPACES, VOCABULARY, adopt_words
from legroom.errors import BadInput
from legroom.extras import needs
from legroom.model.counts import Storage
from legroom.model.evidence import DeviceName, Evidence, Look, Mode
from legroom.model.finding import Finding
from legroom.model.footprint import Footprint
from legroom.model.knob import Growth, Knob
from legroom.model.machine import Gpu, Machine
from legroom.model.plan import MostEnvs, Plan
from legroom.model.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from legroom.model.archive import Exported
    from legroom.model.counts import Counts
    from legroom.model.draft import Draft, Key
    from legroom.model.file_kind import FileKind
    from legroom.model.learner import FailureCause, Learner, Loop
    from legroom.model.rule import Rule
    from legroom.model.subject import SubjectRun
    from legroom.model.task import TrainTask

PREALLOCATE, PLATFORMS, LOG_LEVEL = "XLA_PYTHON_CLIENT_PREALLOCATE", "JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL"


class BraxBackend(Backend):
    name = "brax"
    title = "brax"
    extra = "jax"
    packages = ("jax", "brax", "safetensors")
    libraries = ("jax", "jaxlib", "brax", "mujoco", "mujoco-mjx", "flax", "optax")
    algorithms = BRAX_ALGORITHMS
    script_packages = ("brax",)
    classes_from = ("brax", "mujoco_playground")
    own_spaces = SPACES

    # ---- reading

    vocabulary = VOCABULARY

    @property
    def file_kinds(self) -> tuple[FileKind, ...]:
        from legroom.backends.brax.reading import FILE_KINDS

        return FILE_KINDS

    def script_drafts(self, text: str, path: str) -> list[Draft]:
        from legroom.backends.brax.script_calls import drafts

        return drafts(text, path)

    def adopt_words(self, data: dict[str, Any], own: Collection[Key]) -> list[str]:
        return adopt_words(data, own)

    # ---- facts

    def storage(self, run: Run) -> Storage:
        return Storage("unroll", int(hyper(run, "unroll_length") or 1))

    def constraints(self, run: Run) -> Iterable[Finding]:
        return constraints.constraints(run)

    def unread_memory(self, run: Run) -> Mapping[str, tuple[str, str]]:
        return constraints.unread_memory(run)

    # ---- predicting

    def prepared(self, run: Run, mode: Mode, progress: Callable[[str], None]) -> Run:
        from legroom.backends.brax.asking import asked_of_compiler

        return asked_of_compiler(run, mode, progress)

    def asked_for_card(self, run: Run, gpu: Gpu, mode: Mode, progress: Callable[[str], None]) -> str:
        from legroom.backends.brax.asking import asked_for_card

        return asked_for_card(run, gpu, mode, progress)

    def env_task(self, run: Run) -> None:
        return None

    def look(self, runs: Sequence[Run], devices: Sequence[DeviceName], machine: Machine, mode: Mode) -> list[Look]:
        from legroom.backends.brax.items import brax_notes

        return [Look(notes=brax_notes(run, device, machine)) for run, device in zip(runs, devices, strict=True)]

    def footprint(self, run: Run, evidence: Evidence) -> Footprint:
        from legroom.backends.brax.items import brax_items
        from legroom.predicting.predict import footprint_of

        return footprint_of(run, evidence, brax_items(run, evidence))

    # ---- checking

    @property
    def run_rules(self) -> tuple[Rule, ...]:
        from legroom.backends.brax.rules import RUN_RULES

        return RUN_RULES

    @property
    def script_rules(self) -> tuple[Rule, ...]:
        from legroom.backends.brax.rules import SCRIPT_RULES

        return SCRIPT_RULES

    def follows(self, script: Any) -> bool | None:
        from legroom.backends.brax.script_calls import follows

        return follows(script)

    def counts(self, run: Run) -> Counts | None:
        from legroom.backends.brax.facts import counts

        return counts(run)

    def confirmations(self, one: SubjectRun) -> Iterable[tuple[str, str]]:
        from legroom.backends.brax.rules import confirmations

        return confirmations(one)

    def advice_for_full_gpu(self, run: Run) -> str:
        return "fewer environments; legroom fit finds how many"

    # ---- fitting; what the compiler said of a run holds for all its variants, so that evidence has one key

    @property
    def knobs(self) -> tuple[Knob, ...]:
        from legroom.backends.brax.knobs import BRAX_KNOBS

        return BRAX_KNOBS

    def with_free_savings(self, run: Run, evidence: Evidence) -> Run:
        from legroom.backends.brax.knobs import with_free_savings

        return with_free_savings(run, evidence)

    def ways_to_grow(self, run: Run) -> tuple[Growth, ...]:
        from legroom.backends.brax.knobs import ways_to_grow

        return ways_to_grow(run)

    def with_most_envs(self, plan: Plan, footprint: Callable[[Run], Footprint], cap: int | None) -> MostEnvs | None:
        from legroom.backends.brax.knobs import with_most_envs

        return with_most_envs(plan, footprint, cap) if is_ppo(plan.run) else None

    def keeps_data_per_update(self, before: Run, after: Run) -> bool:
        from legroom.backends.brax.knobs import keeps_data_per_update

        return keeps_data_per_update(before, after)

    def gradient_step(self, run: Run) -> tuple[int, int | None]:
        return int(hyper(run, "batch_size")), hyper(run, "num_minibatches") if is_ppo(run) else None

    # ---- archives

    def export(self, directory: Path, archive: Path, *, force: bool, trust: bool) -> Exported:
        with needs("jax", what="an export"):
            from legroom.backends.brax.state import export_brax

        return export_brax(directory, archive, force=force)

    # ---- the page

    last_stops: Mapping[str, int] = {"env.n_envs": 16_384}

    def layers(self, run: Run) -> Mapping[str, str]:
        return {name: name.replace("_", " ") for name in LAYERS if run.policy.kwargs.get(name) is not None}

    def settings(self, run: Run) -> tuple[str, ...]:
        names = ("activation_checkpointing", "shared_data", "xla_preallocate", "env_chunk")
        return tuple(f"memory.{name}" for name in names)

    # ---- training

    export_file = "policy.safetensors"

    def refuse_training(self, run: Run, *, fit: bool, resume: bool, pictures: bool) -> None:
        """Say before a minute of compiling what brax would only assert, without a word."""
        for finding in () if fit or resume else self.constraints(run):
            if finding.severity == "error":
                raise BadInput(finding.message, path=run.source, hint=f"{finding.hint}; --fit repairs it")

    def quick_prediction(self, run: Run) -> tuple[Run, Mode]:
        """Leave the compiler alone, which takes minutes."""
        from legroom.backends.brax.asking import with_traced_spaces

        return with_traced_spaces(run), "arithmetic"

    def child_environment(self, task: TrainTask) -> dict[str, str]:
        settings = {LOG_LEVEL: "2"}  # XLA remarks on every program that it finds in its cache
        if task.run.memory.xla_preallocate is not None:
            settings[PREALLOCATE] = str(task.run.memory.xla_preallocate).lower()
        return settings | ({PLATFORMS: "cpu"} if task.device == "cpu" else {})

    def learner(self, task: TrainTask, loop: Loop) -> Learner:
        from legroom.backends.brax.training import BraxLearner

        return BraxLearner(task, loop)

    def failure_cause(self, error: Exception) -> FailureCause:
        from legroom.backends.brax.training import failure_cause

        return failure_cause(error)


BACKEND = BraxBackend()
