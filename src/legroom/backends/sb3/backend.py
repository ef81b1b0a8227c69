"""Stable-Baselines3 and sb3-contrib behind the seam. Light: what imports the library is imported where it is needed."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from legroom.backends.base import Backend, algorithm_of, hyper
from legroom.backends.sb3 import constraints, stored
from legroom.backends.sb3.base_figures import BaseFigures, base_figures, figures_for
from legroom.backends.sb3.signatures import SB3_ALGORITHMS
from legroom.backends.sb3.stored import batch_samples, rollout_samples, stores_leanly
from legroom.extras import needs
from legroom.model.evidence import DeviceName, EnvTask, Evidence, Look, Mode, Values
from legroom.model.finding import Finding
from legroom.model.footprint import Footprint
from legroom.model.knob import Growth, Knob
from legroom.model.machine import Machine
from legroom.model.plan import Price
from legroom.model.run import Run
from legroom.model.spaces import Space

if TYPE_CHECKING:
    from pathlib import Path

    from legroom.model.archive import Exported
    from legroom.model.attachment import Attachment
    from legroom.model.counts import Counts, StoredData
    from legroom.model.draft import Draft, Key
    from legroom.model.file_kind import FileKind
    from legroom.model.footprint import Footprint
    from legroom.model.learner import FailureCause, Learner, Loop
    from legroom.model.rule import Rule
    from legroom.model.subject import SubjectRun
    from legroom.model.task import TrainTask
    from legroom.model.vocabulary import Vocabulary

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"


class Sb3Backend(Backend):
    name = "sb3"
    title = "SB3"
    extra = "sb3"
    packages = ("stable_baselines3", "safetensors")
    libraries = ("torch", "stable-baselines3", "sb3-contrib", "gymnasium", "cloudpickle")
    algorithms = SB3_ALGORITHMS
    script_packages = ("stable_baselines3", "sb3_contrib")
    classes_from = ("stable_baselines3", "sb3_contrib", "rl_zoo3", "torch")
    pins_read = ("stable-baselines3",)

    # ---- reading

    @property
    def vocabulary(self) -> Vocabulary:
        from legroom.backends.sb3.vocabulary import VOCABULARY

        return VOCABULARY

    @property
    def file_kinds(self) -> tuple[FileKind, ...]:
        from legroom.backends.sb3.sections import FILE_KIND
        from legroom.backends.sb3.zoo import FILE_KINDS

        return (*FILE_KINDS, FILE_KIND)

    def script_drafts(self, text: str, path: str) -> list[Draft]:
        from legroom.backends.sb3.script_models import drafts

        return drafts(text, path)

    def adopt_words(self, data: dict[str, Any], own: Collection[Key]) -> list[str]:
        from legroom.backends.sb3.vocabulary import adopt_words

        return adopt_words(data, own)

    def translate_hyperparams(self, data: dict[str, Any], given: Collection[Key]) -> Mapping[str, str]:
        from legroom.backends.sb3.vocabulary import translate_minibatches

        return translate_minibatches(data, given)

    def run_of_call(self, what: Any, policy: Any, env: Any, arguments: Mapping[str, Any]) -> Run | None:
        from legroom.backends.sb3.constructor_calls import run_from_call

        return run_from_call(what, policy, env, **arguments)

    def run_of_model(self, model: Any) -> Run | None:
        from legroom.backends.sb3.constructor_calls import run_from_model

        return run_from_model(model)

    def run_of_record(self, record: Mapping[str, Any]) -> Run | None:
        from legroom.backends.sb3.constructor_calls import run_from_record

        return run_from_record(record)

    # ---- facts

    def stored_observation(self, run: Run) -> Space:
        return stored.stored_observation(run)

    def constraints(self, run: Run) -> Iterable[Finding]:
        return constraints.constraints(run)

    def unread_memory(self, run: Run) -> Mapping[str, tuple[str, str]]:
        return constraints.unread_memory(run)

    # ---- predicting

    def env_task(self, run: Run) -> EnvTask:
        return stored.env_task(run)

    def base_figures(self, run: Run, device: DeviceName, *, measure: bool) -> BaseFigures:
        workers = {run.env.workers, run.eval.workers if run.eval else "dummy"}
        return base_figures(needed=figures_for(workers, run.env.start_method) if measure else (), device=device)

    def look(self, runs: Sequence[Run], devices: Sequence[DeviceName], machine: Machine, mode: Mode) -> list[Look]:
        from legroom.backends.sb3.bill.tracing import look

        return look(runs, devices, machine, mode)

    def look_answering(
        self, runs: Sequence[Run], devices: Sequence[DeviceName], machine: Machine, mode: Mode, values: Values
    ) -> list[Look]:
        from legroom.backends.sb3.bill.tracing import look

        return look(runs, devices, machine, mode, values)

    def footprint(self, run: Run, evidence: Evidence) -> Footprint:
        from legroom.backends.sb3.bill.parts import sb3_footprint

        return sb3_footprint(run, evidence)

    # ---- checking

    @property
    def run_rules(self) -> tuple[Rule, ...]:
        from legroom.backends.sb3.rules import RUN_RULES

        return RUN_RULES

    @property
    def script_rules(self) -> tuple[Rule, ...]:
        from legroom.backends.sb3.rules import SCRIPT_RULES

        return SCRIPT_RULES

    def follows(self, script: Any) -> bool | None:
        from legroom.backends.sb3.script_calls import trains

        return False if trains(script) else None

    def counts(self, run: Run) -> Counts | None:
        from legroom.backends.sb3.checking import counts

        return counts(run)

    def confirmations(self, one: SubjectRun) -> Iterable[tuple[str, str]]:
        from legroom.backends.sb3.checking import confirmations

        return confirmations(one)

    def stored_data(self, run: Run, footprint: Footprint) -> StoredData | None:
        from legroom.backends.sb3.checking import stored_data

        return stored_data(run, footprint)

    def label(self, run: Run) -> str:
        return run.algo

    def advice_for_full_gpu(self, run: Run) -> str:
        if algorithm_of(run).name in stored.MICRO_BATCHED and not run.memory.micro_batch:
            return "memory: {micro_batch: ...} gives the same gradient in pieces; legroom fit finds the size"
        return super().advice_for_full_gpu(run)

    # ---- fitting

    # SB3 trains on after a warning; a fitted run does what it says. A minibatch over the rollout is the rollout anyway.
    must_hold: Mapping[str, Price] = {
        "minibatch-does-not-divide": "changes-learning", "minibatch-exceeds-rollout": "free",
    }  # fmt: skip

    @property
    def knobs(self) -> tuple[Knob, ...]:
        from legroom.backends.sb3.knobs import SB3_KNOBS

        return SB3_KNOBS

    def with_free_savings(self, run: Run, evidence: Evidence) -> Run:
        from legroom.backends.sb3.knobs import with_free_savings

        return with_free_savings(run, evidence)

    def ways_to_grow(self, run: Run) -> tuple[Growth, ...]:
        from legroom.backends.sb3.ladders import ways_to_grow

        return ways_to_grow(run)

    def spillable_nbytes(self, run: Run, evidence: Evidence) -> int | None:
        from legroom.backends.sb3.bill.lean import stored_nbytes

        return stored_nbytes(run, evidence) if stores_leanly(run) else None

    def gradient_step(self, run: Run) -> tuple[int, int | None]:
        size = batch_samples(run)
        return size, -(-rollout_samples(run) // size) if hyper(run, "n_epochs") is not None else None

    def mended(self, run: Run, finding: Finding) -> Run | None:
        from legroom.backends.sb3.ladders import with_nearest_batch

        return with_nearest_batch(run) if finding.name == "minibatch-does-not-divide" else None

    def evidence_key(self, run: Run) -> str:
        from legroom.backends.sb3.stored import network_key

        return network_key(run)

    # ---- programs

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        from legroom.backends.sb3.attachments import ATTACHMENTS

        return ATTACHMENTS

    # ---- archives

    def export(self, directory: Path, archive: Path, *, force: bool, trust: bool) -> Exported:
        with needs("sb3", what="an export"):
            from legroom.backends.sb3.archives_zip import export_sb3

        return export_sb3(directory, archive, force=force, trust=trust)

    # ---- the page

    def layers(self, run: Run) -> Mapping[str, str]:
        return {} if isinstance(run.policy.kwargs.get("net_arch"), dict) else {"net_arch": "hidden layers"}

    def settings(self, run: Run) -> tuple[str, ...]:
        # RLlib's are among them: a run is written for SB3 and trained by RLlib with --backend rllib
        storage = "rollout" if algorithm_of(run).family == "on-policy" else "replay"
        others = (
            "micro_batch", "activation_checkpointing", "expandable_segments", "bf16", "max_bytes", "shared_data",
            "runner_bytes", "learner_bytes", "object_store_bytes",
        )  # fmt: skip
        around = ("env.workers", "env.envs_per_worker", "env.frame_stack", "eval.workers", "checkpoint.replay_buffer")
        return (*around, *(f"memory.{name}" for name in (storage, *others)))

    # ---- training

    export_file, export_use = "model.zip", "with SB3"

    def refuse_training(self, run: Run, *, fit: bool, resume: bool, pictures: bool) -> None:
        if not fit:  # which may turn them
            constraints.refuse_untrainable(run)

    def child_environment(self, task: TrainTask) -> dict[str, str]:
        return {} if task.run.memory.expandable_segments is False else {ALLOCATOR: "expandable_segments:True"}

    def learner(self, task: TrainTask, loop: Loop) -> Learner:
        from legroom.backends.sb3.light_imports import COMPILER, import_lightly

        import_lightly(COMPILER)  # a second, and a fifth of the memory of a small training
        from legroom.backends.sb3.training import Sb3Learner

        gc.freeze()  # what importing has made stays to the end: collecting garbage need not look at it, for 0.1 s each
        return Sb3Learner(task, loop)

    def failure_cause(self, error: Exception) -> FailureCause:
        from legroom.backends.sb3.training import failure_cause

        return failure_cause(error)


BACKEND = Sb3Backend()
