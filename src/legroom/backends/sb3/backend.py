"""Stable-Baselines3 and sb3-contrib behind the seam. Light: what imports the library is imported where it is needed."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from legroom.backends import base
from legroom.backends.base import hyper, lazily
from legroom.backends.sb3 import constraints as rules
from legroom.backends.sb3 import stored
from legroom.backends.sb3.base_figures import BaseFigures, base_figures, figures_for
from legroom.backends.sb3.signatures import SB3_ALGORITHMS
from legroom.extras import needs
from legroom.model.evidence import DeviceName, Evidence
from legroom.model.facts import Storage
from legroom.model.plan import Price
from legroom.model.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from legroom.model.learner import Exported, Learner, Loop, TrainTask

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
ROOM = "legroom.backends.sb3"


class Sb3Reader(base.BackendReader):
    vocabulary = lazily(f"{ROOM}.vocabulary:VOCABULARY")
    script_drafts = lazily(f"{ROOM}.script_models:drafts")
    adopt_words = lazily(f"{ROOM}.vocabulary:adopt_words")
    translate_hyperparams = lazily(f"{ROOM}.vocabulary:translate_minibatches")
    run_of_object = lazily(f"{ROOM}.constructor_calls:run_of_object")

    file_kinds = lazily(f"{ROOM}.sections:FILE_KINDS")


class Sb3Predictor(base.BackendPredictor):
    constraints = staticmethod(rules.constraints)
    unread_memory = staticmethod(rules.unread_memory)
    env_task = staticmethod(stored.env_task)
    look = lazily(f"{ROOM}.bill.tracing:look")
    footprint = lazily(f"{ROOM}.bill:sb3_footprint")

    def storage(self, run: Run) -> Storage:
        kept = super().storage(run)
        return replace(kept, observation=stored.stored_observation(run)) if run.env.spaces else kept

    def base_figures(self, run: Run, device: DeviceName, *, measure: bool) -> BaseFigures:
        workers = {run.env.workers, run.eval.workers if run.eval else "dummy"}
        return base_figures(needed=figures_for(workers, run.env.start_method) if measure else (), device=device)


class Sb3Checker(base.BackendChecker):
    run_rules = lazily(f"{ROOM}.rules:RUN_RULES")
    script_rules = lazily(f"{ROOM}.rules:SCRIPT_RULES")
    counts = lazily(f"{ROOM}.checking:counts")
    confirmations = lazily(f"{ROOM}.checking:confirmations")
    stored_data = lazily(f"{ROOM}.checking:stored_data")

    def follows(self, script: Any) -> bool | None:
        from legroom.backends.sb3.script_calls import trains

        return False if trains(script) else None


class Sb3Fitter(base.BackendFitter):
    # SB3 trains on after a warning; a fitted run does what it says. A minibatch over the rollout is the rollout anyway.
    must_hold: Mapping[str, Price] = {
        "minibatch-does-not-divide": "changes-learning", "minibatch-exceeds-rollout": "free",
    }  # fmt: skip
    attachments = lazily(f"{ROOM}.knobs:ATTACHMENTS")
    mends = lazily(f"{ROOM}.knobs:MENDS")
    knobs = lazily(f"{ROOM}.knobs:SB3_KNOBS")
    with_free_savings = lazily(f"{ROOM}.knobs:with_free_savings")
    ways_to_grow = lazily(f"{ROOM}.knobs:ways_to_grow")
    evidence_key = staticmethod(stored.network_key)
    layers: Mapping[str, str] = {"net_arch": "hidden layers"}
    # RLlib's are among them: a run is written for SB3 and trained by RLlib with --backend rllib
    settings = (
        "env.workers", "env.envs_per_worker", "env.frame_stack", "eval.workers", "checkpoint.replay_buffer",
        "memory.rollout", "memory.replay", "memory.micro_batch", "memory.activation_checkpointing",
        "memory.expandable_segments", "memory.bf16", "memory.max_bytes", "memory.shared_data", "memory.runner_bytes",
        "memory.learner_bytes", "memory.object_store_bytes",
    )  # fmt: skip

    def spillable_nbytes(self, run: Run, evidence: Evidence) -> int | None:
        from legroom.backends.sb3.bill.lean import stored_nbytes

        return stored_nbytes(run, evidence) if stored.stores_leanly(run) else None

    def gradient_step(self, run: Run) -> tuple[int, int | None]:
        size = stored.batch_samples(run)
        return size, -(-stored.rollout_samples(run) // size) if hyper(run, "n_epochs") is not None else None


class Sb3Trainer(base.BackendTrainer):
    export_file, export_use = "model.zip", "with SB3"
    failure_cause = lazily(f"{ROOM}.training:failure_cause")

    def refuse_training(self, run: Run, *, fit: bool, resume: bool, pictures: bool) -> None:
        if not fit:  # which may turn them
            rules.refuse_untrainable(run)

    def child_environment(self, task: TrainTask) -> dict[str, str]:
        return {} if task.run.memory.expandable_segments is False else {ALLOCATOR: "expandable_segments:True"}

    def learner(self, task: TrainTask, loop: Loop) -> Learner:
        from legroom.backends.sb3.light_imports import COMPILER, import_lightly

        import_lightly(COMPILER)  # a second, and a fifth of the memory of a small training
        from legroom.backends.sb3.training import Sb3Learner

        gc.freeze()  # what importing has made stays to the end: collecting garbage need not look at it, for 0.1 s each
        return Sb3Learner(task, loop)

    def export(self, directory: Path, archive: Path, *, force: bool, trust: bool) -> Exported:
        with needs("sb3", what="an export"):
            from legroom.backends.sb3.archives_zip import export_sb3

        return export_sb3(directory, archive, force=force, trust=trust)


BACKEND = base.Backend(
    name="sb3",
    title="SB3",
    extra="sb3",
    packages=("stable_baselines3", "safetensors"),
    libraries=("torch", "stable-baselines3", "sb3-contrib", "gymnasium", "cloudpickle"),
    algorithms=SB3_ALGORITHMS,
    in_headings=False,
    script_packages=("stable_baselines3", "sb3_contrib"),
    classes_from=("stable_baselines3", "sb3_contrib", "rl_zoo3", "torch"),
    reader=Sb3Reader(),
    predictor=Sb3Predictor(),
    checker=Sb3Checker(),
    fitter=Sb3Fitter(),
    trainer=Sb3Trainer(),
)
