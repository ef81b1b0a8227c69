"""brax behind the seam. Light: what imports jax is imported where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from legroom.backends import base
from legroom.backends.base import hyper, lazily
from legroom.backends.brax import constraints as rules
from legroom.backends.brax.facts import LAYERS, is_ppo
from legroom.backends.brax.vocabulary import BRAX_ALGORITHMS, SPACES, VOCABULARY, adopt_words
from legroom.errors import BadInput
from legroom.extras import needs
from legroom.model.evidence import DeviceName, Evidence, Look, Mode, Values
from legroom.model.facts import Storage
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.plan import MostEnvs, Plan
from legroom.model.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from legroom.model.learner import Exported, TrainTask

PREALLOCATE, PLATFORMS, LOG_LEVEL = "XLA_PYTHON_CLIENT_PREALLOCATE", "JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL"
ROOM = "legroom.backends.brax"


class BraxReader(base.BackendReader):
    vocabulary = VOCABULARY
    file_kinds = lazily(f"{ROOM}.reading:FILE_KINDS")
    script_drafts = lazily(f"{ROOM}.script_calls:drafts")
    adopt_words = staticmethod(adopt_words)


class BraxPredictor(base.BackendPredictor):
    constraints = staticmethod(rules.constraints)
    unread_memory = staticmethod(rules.unread_memory)
    prepared = lazily(f"{ROOM}.asking:asked_of_compiler")

    def storage(self, run: Run) -> Storage:
        observation = run.env.spaces and run.env.spaces.observation
        return Storage("unroll", int(hyper(run, "unroll_length") or 1), observation)

    def env_task(self, run: Run) -> None:
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
        """Have XLA asked about the device where the mode wants it, and return what is to be said of the plan."""
        from legroom.backends.brax.asking import ask_where_unknown
        from legroom.backends.brax.items import brax_notes

        looks = []
        for run, device in zip(runs, devices, strict=True):
            failed = ask_where_unknown(run, device, machine, mode, progress)
            looks.append(Look(notes=(*brax_notes(run, device, machine), *filter(None, (failed,)))))
        return looks

    def footprint(self, run: Run, evidence: Evidence) -> Footprint:
        from legroom.backends.brax.items import brax_items
        from legroom.predicting.predict import footprint_of

        return footprint_of(run, evidence, brax_items(run, evidence))


class BraxChecker(base.BackendChecker):
    run_rules = lazily(f"{ROOM}.rules:RUN_RULES")
    script_rules = lazily(f"{ROOM}.rules:SCRIPT_RULES")
    follows = lazily(f"{ROOM}.script_calls:follows")
    counts = lazily(f"{ROOM}.facts:counts")
    confirmations = lazily(f"{ROOM}.rules:confirmations")
    advice_for_full_gpu = "fewer environments; legroom fit finds how many"


class BraxFitter(base.BackendFitter):
    """What the compiler said of a run holds for all its variants, so that evidence has one key."""

    knobs = lazily(f"{ROOM}.knobs:BRAX_KNOBS")
    with_free_savings = lazily(f"{ROOM}.knobs:with_free_savings")
    ways_to_grow = lazily(f"{ROOM}.knobs:ways_to_grow")
    keeps_data_per_update = lazily(f"{ROOM}.knobs:keeps_data_per_update")
    layers: Mapping[str, str] = {name: name.replace("_", " ") for name in LAYERS}
    settings = ("memory.activation_checkpointing", "memory.shared_data", "memory.xla_preallocate")
    last_stops: Mapping[str, int] = {"env.n_envs": 16_384}

    def with_most_envs(self, plan: Plan, footprint: Callable[[Run], Footprint], cap: int | None) -> MostEnvs | None:
        from legroom.backends.brax.knobs import with_most_envs

        return with_most_envs(plan, footprint, cap) if is_ppo(plan.run) else None

    def gradient_step(self, run: Run) -> tuple[int, int | None]:
        return int(hyper(run, "batch_size")), hyper(run, "num_minibatches") if is_ppo(run) else None


class BraxTrainer(base.BackendTrainer):
    export_file = "policy.safetensors"
    failure_cause = lazily(f"{ROOM}.training:failure_cause")
    learner = lazily(f"{ROOM}.training:BraxLearner")

    def refuse_training(self, run: Run, *, fit: bool, resume: bool, pictures: bool) -> None:
        """Say before a minute of compiling what brax would only assert, without a word."""
        for finding in () if fit or resume else rules.constraints(run):
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

    def export(self, directory: Path, archive: Path, *, force: bool, trust: bool) -> Exported:
        with needs("jax", what="an export"):
            from legroom.backends.brax.state import export_brax

        return export_brax(directory, archive, force=force)


BACKEND = base.Backend(
    name="brax",
    title="brax",
    extra="jax",
    packages=("jax", "brax", "safetensors"),
    libraries=("jax", "jaxlib", "brax", "mujoco", "mujoco-mjx", "flax", "optax"),
    algorithms=BRAX_ALGORITHMS,
    script_packages=("brax",),
    classes_from=("brax", "mujoco_playground"),
    own_spaces=SPACES,
    reader=BraxReader(),
    predictor=BraxPredictor(),
    checker=BraxChecker(),
    fitter=BraxFitter(),
    trainer=BraxTrainer(),
)
